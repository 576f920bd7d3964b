#include "core/hash.h"

#include <fmt/core.h>
#include <xxhash.h>

#include <new>

namespace stof {
namespace {

Fingerprint from_xxh(XXH128_hash_t hash) { return {hash.high64, hash.low64}; }
XXH3_state_t* as_xxh(void* state) { return static_cast<XXH3_state_t*>(state); }

}  // namespace

std::string Fingerprint::hex() const { return fmt::format("{:016x}{:016x}", high, low); }

Fingerprint fingerprint_of(const void* data, std::size_t bytes) {
  return from_xxh(XXH3_128bits(data, bytes));
}

Fingerprint fingerprint_of(std::string_view text) {
  return fingerprint_of(text.data(), text.size());
}

Hasher::Hasher() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(as_xxh(state_));
}

Hasher::~Hasher() { XXH3_freeState(as_xxh(state_)); }

Hasher& Hasher::add(const void* data, std::size_t bytes) {
  const std::uint64_t length = bytes;
  XXH3_128bits_update(as_xxh(state_), &length, sizeof length);
  XXH3_128bits_update(as_xxh(state_), data, bytes);
  return *this;
}

Hasher& Hasher::add(std::string_view text) { return add(text.data(), text.size()); }
Hasher& Hasher::add(std::int64_t value) { return add(&value, sizeof value); }
Hasher& Hasher::add(double value) { return add(&value, sizeof value); }

Hasher& Hasher::add(const Fingerprint& value) {
  const std::uint64_t words[2] = {value.high, value.low};
  return add(words, sizeof words);
}

Fingerprint Hasher::finish() const { return from_xxh(XXH3_128bits_digest(as_xxh(state_))); }

}  // namespace stof
