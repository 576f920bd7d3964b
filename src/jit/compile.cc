#include "jit/compile.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>

#include "core/check.h"
#include "core/log.h"
#include "jit/nvrtc.h"
#include "jit/packed_cubins.h"

namespace stof::jit {
namespace {

/// Null, with the reason, where there is none.
const Nvrtc* compiler_or_null(std::string* reason) {
  try {
    return &Nvrtc::instance();
  } catch (const Error& error) {
    *reason = error.what();
    return nullptr;
  }
}

}  // namespace

std::string cubin_for(const std::string& name, const std::string& source,
                      const std::string& target) {
  return cubin_for(CubinRequest{name, source, target});
}

std::string cubin_for(const CubinRequest& request) {
  const auto& [name, source, target, may_spill] = request;
  CubinKey key{source, target, ""};
  if (const std::string* packed = PackedCubins::instance().find(key.content())) return *packed;
  std::string reason;
  const Nvrtc* const compiler = compiler_or_null(&reason);
  if (compiler != nullptr) key.compiler_version = compiler->version();
  const CubinCache cache = CubinCache::standard();
  if (auto cubin = cache.load(key)) return std::move(*cubin);
  STOF_CHECK(compiler != nullptr, kNotFound,
             "{} for {} is not in the kernel cache, and NVRTC, which compiles it, is missing: "
             "install a CUDA toolkit or pip's nvidia-cuda-nvrtc, or stof cache import a file from "
             "another machine ({})",
             name, target, reason);
  const CompiledModule module = compiler->compile(name, source, target);
  const ResourceReport resources = parse_resources(module.log);
  const std::string found =
      fmt::format("{} bytes spilled, matrix instructions {}", resources.spill_bytes,
                  resources.wgmma_serialized ? "serialised" : "overlapped");
  const bool clean = resources.spill_bytes == 0 && !resources.wgmma_serialized;
  STOF_CHECK(clean || may_spill, kJit, "{} for {}: rejected: {}", name, target, found);
  if (!clean) log_warn("{} for {} will be slow: {}", name, target, found);
  cache.store(key, name, module.cubin);
  return module.cubin;
}

std::vector<std::string> cubins_for(std::span<const CubinRequest> requests, int num_threads) {
  std::vector<std::string> cubins(requests.size());
  std::vector<std::exception_ptr> failures(requests.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < requests.size(); i = next++) {
      try {
        cubins[i] = cubin_for(requests[i]);
      } catch (...) {
        failures[i] = std::current_exception();
      }
    }
  };
  const std::size_t wanted = num_threads > 0
                                 ? static_cast<std::size_t>(num_threads)
                                 : std::max<std::size_t>(1, std::thread::hardware_concurrency());
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < std::min(wanted, requests.size()); ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
  return cubins;
}

}  // namespace stof::jit
