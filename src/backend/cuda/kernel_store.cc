#include "backend/cuda/kernel_store.h"

#include <map>
#include <mutex>

#include "jit/cubin_cache.h"

namespace stof::cuda {

const Kernel& loaded_kernel(const KernelSource& source, const Device& device) {
  using Key = std::pair<std::string, int>;
  // Never destroyed: at the end of the process the driver may be gone before our static objects.
  static std::mutex& mutex = *new std::mutex;
  static std::map<Key, Kernel>& kernels = *new std::map<Key, Kernel>;
  const Key key{source.name, device.facts().ordinal};
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
