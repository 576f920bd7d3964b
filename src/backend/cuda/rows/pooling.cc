#include "backend/cuda/rows/pooling.h"

#include "core/bits.h"

namespace stof::cuda {

using codegen::PoolingConfig;
using codegen::PoolingKind;

namespace {

// Mirror of the struct in kernels/elementwise/pooling.cuh.
struct PoolingParams {
  CUdeviceptr x, offsets, out;
  std::int32_t blocks_per_text;
};

}  // namespace

std::vector<KernelSource> PoolingKernels::sources(DType element, std::int64_t width) {
  std::vector<KernelSource> sources;
  for (const PoolingKind kind : {PoolingKind::kMean, PoolingKind::kCls, PoolingKind::kMax}) {
    const PoolingConfig config{kind, element, width};
    sources.push_back({config.name(), emit_pooling(config), "pool"});
  }
  return sources;
}

PoolingKernels::PoolingKernels(const Device& device, DType element, std::int64_t width)
    : width_(width), kernels_(loaded_kernels(sources(element, width), device)) {}

void PoolingKernels::run(PoolingKind kind, CUdeviceptr x, CUdeviceptr offsets, std::int64_t texts,
                         CUdeviceptr out, CUstream stream) const {
  constexpr std::int64_t kColumns = 256;  // of a block
  const std::int64_t blocks_per_text = ceil_div(width_, kColumns);
  PoolingParams params{x, offsets, out, static_cast<std::int32_t>(blocks_per_text)};
  void* arguments[] = {&params};
  kernels_[static_cast<std::size_t>(kind)]->launch(static_cast<unsigned>(texts * blocks_per_text),
                                                   static_cast<unsigned>(PoolingConfig::kThreads),
                                                   stream, arguments);
}

}  // namespace stof::cuda
