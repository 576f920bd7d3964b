#include "backend/cuda/plan/dense_pass.h"

#include <algorithm>
#include <utility>

#include "backend/cuda/kernel_cache.h"
#include "backend/cuda/plan/dense_tiles.h"
#include "backend/cuda/upload.h"
#include "codegen/plan.h"
#include "core/bits.h"
#include "core/check.h"

namespace stof::cuda {
namespace {

/// Mirrors DenseParams in kernels/plan/dense_mask.cuh.
struct KernelParams {
  const void* visible;
  std::int64_t strides[4];
  CUdeviceptr shown, hidden, tiles, payloads;
  std::int32_t heads, seq_q, seq_kv, strips, words, num_words, wide_loads, query_tiles, slabs,
      tile_kv, payload_words, padding;
};
static_assert(sizeof(KernelParams) == 120, "dense_mask.cuh asserts the same");

KernelParams make_params(const AttentionProblem& problem, const DenseMask& mask,
                         const GroupBits& bits) {
  KernelParams params{};
  params.visible = mask.data;
  std::copy(mask.strides, mask.strides + 4, params.strides);
  params.heads = static_cast<std::int32_t>(mask.head_extent);
  params.seq_q = static_cast<std::int32_t>(problem.seq_q);
  params.seq_kv = static_cast<std::int32_t>(problem.seq_kv);
  params.strips = static_cast<std::int32_t>(bits.strips);
  params.words = static_cast<std::int32_t>(bits.words);
  params.num_words = static_cast<std::int32_t>(bits.shown.size());
  params.wide_loads = mask.wide_loads;
  return params;
}

/// Runs the classification and waits for its result.
void classify(KernelParams params, const Device& device, CUstream stream, GroupBits* bits) {
  const Kernel& kernel = loaded_kernel(
      {"classify_groups", codegen::emit_classify_groups(), "classify_groups"}, device);
  const std::size_t bytes = bits->shown.size() * 4;
  const DeviceBuffer scratch(2 * bytes, "the mask's groups");
  params.shown = scratch.address();
  params.hidden = scratch.address() + bytes;
  void* arguments[] = {&params};
  const std::int64_t warps = codegen::kDenseThreads / 32;
  kernel.launch(static_cast<unsigned>(ceil_div(params.num_words, warps)), codegen::kDenseThreads,
                stream, arguments);
  const Driver& driver = Driver::instance();
  driver.check(driver.cuMemcpyDtoHAsync(bits->shown.data(), params.shown, bytes, stream),
               "reading the mask's groups");
  driver.check(driver.cuMemcpyDtoHAsync(bits->hidden.data(), params.hidden, bytes, stream),
               "reading the mask's groups");
  driver.check(driver.cuStreamSynchronize(stream), "reading the mask's groups");
}

/// Payloads in device memory: first those the GPU fills, then those the host knows.
class Payloads {
 public:
  /// Starts filling the tiles' payloads; `tiles` must outlive finish().
  Payloads(KernelParams params, const std::vector<DenseTile>& tiles,
           const codegen::AttentionConfig& config, const Device& device, CUstream stream)
      : stream_(stream),
        filled_bytes_(tiles.size() * static_cast<std::size_t>(config.payload_bytes())),
        // The host's show no key, or the first ones of a ragged last tile.
        payloads_(filled_bytes_ + 2 * static_cast<std::size_t>(config.payload_bytes()),
                  "the plan's payloads"),
        tiles_(tiles.size() * sizeof(DenseTile), "the plan's partial tiles") {
    if (tiles.empty()) return;
    const Driver& driver = Driver::instance();
    driver.check(driver.cuMemcpyHtoDAsync(tiles_.address(), tiles.data(), tiles_.bytes(), stream),
                 "uploading partial tiles");
    params.tiles = tiles_.address();
    params.payloads = payloads_.address();
    params.slabs = config.query_rows() / 64;
    params.query_tiles = static_cast<std::int32_t>(ceil_div(params.seq_q, config.query_rows()));
    params.tile_kv = config.tile_kv;
    params.payload_words = config.payload_bytes() / (4 * 128 * params.slabs);
    void* arguments[] = {&params};
    loaded_kernel({"fill_payloads", codegen::emit_fill_payloads(), "fill_payloads"}, device)
        .launch(static_cast<unsigned>(tiles.size()), codegen::kDenseThreads, stream, arguments);
  }

  /// Adds the host's and waits for all.
  DeviceBuffer finish(const std::vector<std::uint32_t>& host) && {
    STOF_ASSERT(filled_bytes_ + host.size() * 4 <= payloads_.bytes());
    const Driver& driver = Driver::instance();
    if (!host.empty())
      driver.check(driver.cuMemcpyHtoDAsync(payloads_.address() + filled_bytes_, host.data(),
                                            host.size() * 4, stream_),
                   "uploading payloads");
    driver.check(driver.cuStreamSynchronize(stream_), "filling payloads");
    return std::move(payloads_);
  }

 private:
  CUstream stream_;
  std::size_t filled_bytes_;
  DeviceBuffer payloads_, tiles_;
};

}  // namespace

DeviceBlockwise dense_pass(const AttentionProblem& problem, const TensorView& visible,
                           const std::string& kernel, int alignment, const Device& device,
                           CUstream stream, PlanFacts* facts) {
  const DenseMask mask = dense_mask(problem, visible);
  GroupBits bits = GroupBits::of(problem, mask);
  const KernelParams params = make_params(problem, mask, bits);
  classify(params, device, stream, &bits);
  const DeviceFacts& gpu = device.facts();
  const KernelTarget target{gpu.major * 10 + gpu.minor, gpu.num_sms, alignment, gpu.name};
  const auto candidates = dense_candidates(problem, mask, bits, target);
  const ConfigCandidate& chosen = choose_candidate(candidates, kernel);
  const codegen::AttentionConfig& config = chosen.config;
  facts->kernel = config.name();
  facts->predicted_us = chosen.predicted_us;
  const DensePlan dense = dense_plan(problem, mask, bits, config);
  Payloads payloads(params, dense.tiles, config, device, stream);  // while the host goes on
  const DevicePlan plan = build_device_plan(
      problem, {whole_batch(problem, dense.plan, static_cast<std::int32_t>(dense.tiles.size()))},
      config, DeviceBlockwise::num_blocks(config, device));
  return {config, 1, plan, std::move(payloads).finish(plan.payloads), device, facts};
}

}  // namespace stof::cuda
