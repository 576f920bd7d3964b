#pragma once
// Content hashing: XXH3-128 through libxxhash.

#include <cstddef>
#include <string_view>

#include "stof/fingerprint.h"

namespace stof {

Fingerprint fingerprint_of(const void* data, std::size_t bytes);
Fingerprint fingerprint_of(std::string_view text);

/// Hashes a sequence of fields; each is length-prefixed, so ("ab","c") and ("a","bc") differ.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;

  Hasher& add(std::string_view text);
  Hasher& add(const void* data, std::size_t bytes);
  Hasher& add(std::int64_t value);
  Hasher& add(double value);
  Hasher& add(const Fingerprint& value);
  Fingerprint finish() const;

 private:
  void* state_;
};

}  // namespace stof
