#pragma once
// The device sources under kernels/, compiled into the library.

#include <span>
#include <string_view>

namespace stof::jit {

struct EmbeddedSource {
  std::string_view name;  ///< as included: "ptx/barrier.cuh"
  std::string_view text;
};

/// All of them, sorted by name.
std::span<const EmbeddedSource> embedded_sources();

}  // namespace stof::jit
