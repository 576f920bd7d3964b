#include "backend/cuda/rows/row_kernels.h"

#include <algorithm>

#include "core/bits.h"
#include "core/check.h"

namespace stof::cuda {
namespace {

using codegen::RowConfig;
using codegen::RowOperator;

// Mirrors of the parameter structs in kernels/norm and kernels/elementwise.
struct EmbeddingParams {
  CUdeviceptr ids, positions, words, places, segment, gamma, beta, out;
  std::int64_t rows;
  float epsilon;
};
struct ResidualParams {
  CUdeviceptr x, y, bias, gamma, beta;
  std::int64_t rows;
  float epsilon;
};
struct GeluParams {
  CUdeviceptr x;
  std::int64_t packs;
};
struct PoolingParams {
  CUdeviceptr x, offsets, out;
  std::int32_t blocks_per_text;
};

constexpr RowOperator kOperators[] = {RowOperator::kEmbeddingNorm, RowOperator::kResidualNorm,
                                      RowOperator::kGeluErf,       RowOperator::kPoolMean,
                                      RowOperator::kPoolCls,       RowOperator::kPoolMax};

RowConfig config_of(RowOperator op, DType element, std::int64_t width) {
  // Out of range stays out of range when narrowed; validate() then names it.
  const std::int64_t narrow = std::min<std::int64_t>(width, RowConfig::kMaxWidth + 8);
  return {op, element, static_cast<int>(narrow)};
}

}  // namespace

std::vector<KernelSource> RowKernels::sources(DType element, std::int64_t width) {
  std::vector<KernelSource> sources;
  for (const RowOperator op : kOperators) {
    const RowConfig config = config_of(op, element, width);
    sources.push_back({config.name(), emit_rows(config), "rows"});
  }
  return sources;
}

RowKernels::RowKernels(const Device& device, DType element, std::int64_t width)
    : device_(device),
      element_(element),
      width_(width),
      kernels_(loaded_kernels(sources(element, width), device)) {}

const Kernel& RowKernels::kernel(RowOperator op) const {
  return *kernels_[static_cast<std::size_t>(op)];
}

void RowKernels::embedding_norm(const EmbeddingOperands& tables, CUdeviceptr ids,
                                CUdeviceptr places, CUdeviceptr out, std::int64_t rows,
                                CUstream stream) const {
  const RowConfig config = config_of(RowOperator::kEmbeddingNorm, element_, width_);
  EmbeddingParams params{ids,
                         places,
                         tables.words,
                         tables.positions,
                         tables.segment,
                         tables.norm.gamma,
                         tables.norm.beta,
                         out,
                         rows,
                         tables.norm.epsilon};
  void* arguments[] = {&params};
  kernel(config.op).launch(static_cast<unsigned>(ceil_div(rows, config.rows_per_block())),
                           static_cast<unsigned>(config.threads()), stream, arguments);
}

void RowKernels::residual_norm(CUdeviceptr x, CUdeviceptr y, CUdeviceptr bias,
                               const NormParameters& norm, std::int64_t rows,
                               CUstream stream) const {
  const RowConfig config = config_of(RowOperator::kResidualNorm, element_, width_);
  ResidualParams params{x, y, bias, norm.gamma, norm.beta, rows, norm.epsilon};
  void* arguments[] = {&params};
  kernel(config.op).launch(static_cast<unsigned>(ceil_div(rows, config.rows_per_block())),
                           static_cast<unsigned>(config.threads()), stream, arguments);
}

void RowKernels::gelu_erf(CUdeviceptr x, std::int64_t count, CUstream stream) const {
  STOF_ASSERT(count % 8 == 0);
  const RowConfig config = config_of(RowOperator::kGeluErf, element_, width_);
  GeluParams params{x, count / 8};
  void* arguments[] = {&params};
  // Enough blocks to fill the GPU several times; a thread then walks the rest.
  const std::int64_t blocks =
      std::min<std::int64_t>(ceil_div(params.packs, config.threads()),
                             static_cast<std::int64_t>(device_.facts().num_sms) * 32);
  kernel(config.op).launch(static_cast<unsigned>(blocks), static_cast<unsigned>(config.threads()),
                           stream, arguments);
}

void RowKernels::pool(RowOperator pooling, CUdeviceptr x, CUdeviceptr offsets, std::int64_t texts,
                      CUdeviceptr out, CUstream stream) const {
  const RowConfig config = config_of(pooling, element_, width_);
  constexpr std::int64_t kColumns = 256;  // of a block
  const std::int64_t blocks_per_text = ceil_div(width_, kColumns);
  PoolingParams params{x, offsets, out, static_cast<std::int32_t>(blocks_per_text)};
  void* arguments[] = {&params};
  kernel(pooling).launch(static_cast<unsigned>(texts * blocks_per_text),
                         static_cast<unsigned>(config.threads()), stream, arguments);
}

}  // namespace stof::cuda
