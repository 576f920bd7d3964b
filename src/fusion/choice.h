#pragma once
// What a segment is run with.

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace stof::fusion {

/// A kernel family and its parameters by name: stored by content, never by place in a list, so that
/// a stored choice means the same when the list of candidates changes.
struct Choice {
  std::string
      family;  ///< "gemm_sm90", "gemm_sm80", "cublaslt", "row", "onednn", "attention"; [a-z0-9_]+
  std::map<std::string, std::int64_t> parameters;

  /// "gemm_sm90 stages=4 tile_m=128 tile_n=192": parameters in the order of their names.
  std::string text() const;
  /// Inverse of text(). Throws InvalidArgument naming the word that does not fit.
  static Choice from_text(std::string_view text);
  /// The parameter of that name. Throws InvalidArgument naming choice and parameter if absent.
  std::int64_t at(const std::string& name) const;

  auto operator<=>(const Choice&) const = default;
};

}  // namespace stof::fusion
