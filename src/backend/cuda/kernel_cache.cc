#include "backend/cuda/kernel_cache.h"

#include <map>
#include <mutex>
#include <tuple>

#include "jit/compile.h"

namespace stof::cuda {
namespace {

/// Never destroyed: at the end of the process the driver may be gone before our static objects.
struct Store {
  using Key = std::tuple<std::string, std::string, int>;  // name, entry, device
  std::mutex mutex;
  std::map<Key, Kernel> kernels;

  static Store& instance() {
    static Store& store = *new Store;
    return store;
  }
};

}  // namespace

std::vector<const Kernel*> loaded_kernels(const std::vector<KernelSource>& sources,
                                          const Device& device) {
  Store& store = Store::instance();
  const auto key = [&](const KernelSource& source) {
    return Store::Key{source.name, source.entry, device.facts().ordinal};
  };
  std::unique_lock lock(store.mutex);
  std::vector<const KernelSource*> missing;
  std::vector<jit::CubinRequest> requests;
  for (const KernelSource& source : sources)
    if (!store.kernels.contains(key(source))) {
      missing.push_back(&source);
      requests.push_back({source.name, source.text, device.facts().target(), source.may_spill});
    }
  std::vector<std::string> cubins;
  if (!requests.empty()) {
    // Others need not wait for what takes seconds; who compiles the same loses only time.
    lock.unlock();
    cubins = jit::cubins_for(requests);
    lock.lock();
  }
  for (std::size_t i = 0; i < missing.size(); ++i) {
    const KernelSource& source = *missing[i];
    if (!store.kernels.contains(key(source)))
      store.kernels.emplace(key(source),
                            Kernel(source.name, cubins[i], source.entry, source.shared_bytes,
                                   source.early_start, source.shared_percent));
  }
  std::vector<const Kernel*> kernels;
  kernels.reserve(sources.size());
  for (const KernelSource& source : sources) kernels.push_back(&store.kernels.at(key(source)));
  return kernels;
}

const Kernel& loaded_kernel(const KernelSource& source, const Device& device) {
  return *loaded_kernels({source}, device)[0];
}

}  // namespace stof::cuda
