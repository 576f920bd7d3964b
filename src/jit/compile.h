#pragma once
// From source text to cubin: out of the library, the cache folder, or the compiler.

#include <span>
#include <string>
#include <vector>

#include "jit/cubin_cache.h"

namespace stof::jit {

/// A translation unit to be had as a cubin.
struct CubinRequest {
  std::string name;  ///< kernel configuration, for messages and listings
  std::string source;
  std::string target;  ///< "sm_90a"
  /// What the caller writes is in it: a result that spills runs slower, which is said in a warning,
  /// but is no mistake of ours.
  bool may_spill = false;
};

/// From the kernels inside the library, else from the cache, else compiled and stored. Throws as
/// Nvrtc::compile() does, Jit naming the kernel when the result spills or serialises its matrix
/// instructions, or NotFound when it would have to be compiled and NVRTC is missing.
std::string cubin_for(const CubinRequest& request);
std::string cubin_for(const std::string& name, const std::string& source,
                      const std::string& target);

/// The same for several, compiled by `num_threads` (0: one for each core) at once. When some fail,
/// the first of them throws, after all others have been stored.
std::vector<std::string> cubins_for(std::span<const CubinRequest> requests, int num_threads = 0);

}  // namespace stof::jit
