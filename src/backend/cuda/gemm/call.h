#pragma once
// A product's kernel and what launches it.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "backend/cuda/gemm/split_sums.h"
#include "backend/cuda/kernel_cache.h"
#include "core/check.h"

namespace stof::cuda {

/// A product with its operands bound, for a kernel that takes `Params`. Launches of one call, and
/// of all that share a workspace, must be on one stream, unless the configuration splits no sums.
template <class Params>
class GemmCall {
 public:
  /// `arrivals`: counters that the parameters refer to; null without splits.
  GemmCall(const Kernel& kernel, std::int64_t blocks, int threads, const Params& params,
           std::shared_ptr<const DeviceBuffer> arrivals)
      : kernel_(&kernel),
        blocks_(static_cast<unsigned>(blocks)),
        threads_(static_cast<unsigned>(threads)),
        params_(params),
        arrivals_(std::move(arrivals)) {}

  /// Asynchronous; neither allocates nor compiles nor synchronises. Where launches overlap (from
  /// 9.0 on) the kernel may start before the one before it in the stream has ended, and then reads
  /// the weight at once, all else when that has ended. `after_all`: it does not; needed where the
  /// kernel before writes the weight.
  void launch(CUstream stream, bool after_all = false) const {
    void* arguments[] = {const_cast<Params*>(&params_)};
    kernel_->launch(blocks_, threads_, stream, arguments, after_all);
  }

 private:
  const Kernel* kernel_;
  unsigned blocks_, threads_;
  Params params_;
  std::shared_ptr<const DeviceBuffer> arrivals_;
};

/// The configuration's kernel, which starts early where launches overlap. Throws Unsupported with
/// `refused`, where that is not empty, and what loaded_kernel() throws.
/// `shared_percent`: see Kernel.
template <class Config>
const Kernel& gemm_kernel(const Config& config, const std::string& problem,
                          const std::string& refused, const Device& device,
                          int shared_percent = -1) {
  STOF_CHECK(refused.empty(), kUnsupported, "{}: {}: {}", problem, config.name(), refused);
  const bool early_start = device.facts().major >= 9;
  return loaded_kernel(
      {config.name(), emit_gemm(config), "gemm", config.shared_bytes(), early_start,
       /*may_spill=*/false, shared_percent},
      device);
}

}  // namespace stof::cuda
