#include "backend/cuda/kernel_cache.h"

#include <fmt/core.h>

#include <mutex>
#include <unordered_map>

#include "jit/cubin_cache.h"

namespace stof::cuda {

const Kernel& loaded_kernel(const KernelSource& source, const Device& device) {
  static std::mutex mutex;
  static std::unordered_map<std::string, Kernel> kernels;
  const std::string key =
      fmt::format("{}/{}@{}", source.name, source.entry, device.facts().ordinal);
  const std::lock_guard lock(mutex);
  const auto found = kernels.find(key);
  if (found != kernels.end()) return found->second;
  const std::string cubin = jit::cubin_for(source.name, source.text, device.facts().target());
  return kernels
      .emplace(key,
               Kernel(source.name, cubin, source.entry, source.shared_bytes, source.early_start))
      .first->second;
}

}  // namespace stof::cuda
