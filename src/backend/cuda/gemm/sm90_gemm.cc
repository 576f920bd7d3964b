#include "backend/cuda/gemm/sm90_gemm.h"

#include <algorithm>

#include "backend/cuda/kernel_cache.h"
#include "core/bits.h"
#include "core/check.h"

namespace stof::cuda {
namespace {

using codegen::GemmConfig;
using codegen::GemmStep;

const Kernel& kernel_of(const GemmProblem& problem, const GemmConfig& config,
                        const Device& device) {
  const std::string reason = problem.unsupported();
  STOF_CHECK(reason.empty(), kUnsupported, "{}: {}", problem.describe(), reason);
  STOF_CHECK(config.element == problem.element && config.steps == problem.steps &&
                 config.bias == problem.bias &&
                 (config.gamma == problem.gamma || !problem.has_norm()) &&
                 config.rope_dim == problem.rope_dim() && config.store_dim == problem.store_dim(),
             kInvalidArgument, "{}: configuration {} is for other steps or element types",
             problem.describe(), config.name());
  STOF_CHECK(device.facts().target() == "sm_90a", kUnsupported,
             "{}: {} needs compute capability 9.0, {} has {}.{}", problem.describe(), config.name(),
             device.facts().name, device.facts().major, device.facts().minor);
  const std::string refused = gemm_refusal(config, problem);
  STOF_CHECK(refused.empty(), kUnsupported, "{}: {}: {}", problem.describe(), config.name(),
             refused);
  constexpr bool kEarlyStart = true;
  return loaded_kernel(
      {config.name(), emit_gemm(config), "gemm", config.shared_bytes(), kEarlyStart}, device);
}

/// Of rows of 128, 64 and 32 bytes.
int swizzle_of(int box_columns) {
  return box_columns == 64 ? 3 : box_columns == 32 ? 2 : box_columns == 16 ? 1 : 0;
}

/// A row-major matrix as the copy engine sees it, in boxes of `box_columns` x `box_rows`, whose
/// rows are swizzled where they are 32, 64 or 128 bytes.
CUtensorMap matrix_map(const char* name, DType element, CUdeviceptr data, std::int64_t rows,
                       std::int64_t columns, std::int64_t stride, int box_rows, int box_columns) {
  constexpr int kFloat16 = 6, kBFloat16 = 9, kNoInterleave = 0, kPromote256 = 3, kZeroFill = 0;
  const std::uint64_t extents[] = {static_cast<std::uint64_t>(columns),
                                   static_cast<std::uint64_t>(rows)};
  const std::uint64_t strides[] = {static_cast<std::uint64_t>(stride) * 2};
  const std::uint32_t box[] = {static_cast<std::uint32_t>(box_columns),
                               static_cast<std::uint32_t>(box_rows)};
  const std::uint32_t steps[] = {1, 1};
  CUtensorMap map;
  const Driver& driver = Driver::instance();
  const CUresult result = driver.cuTensorMapEncodeTiled(
      &map, element == DType::kBFloat16 ? kBFloat16 : kFloat16, 2, device_pointer(data), extents,
      strides, box, steps, kNoInterleave, swizzle_of(box_columns), kPromote256, kZeroFill);
  if (result != 0)
    driver.check(result,
                 fmt::format("describing {} [{}, {}] with {} elements from row to row to the "
                             "copy engine",
                             name, rows, columns, stride));
  return map;
}

/// y [heads, rows, dim] in boxes of 16 rows of one head: the copy engine ends them at a head's last
/// row, and leaves out heads that are not there.
CUtensorMap heads_map(DType element, CUdeviceptr data, std::int64_t heads, std::int64_t rows,
                      std::int64_t dim, int box_columns) {
  constexpr int kFloat16 = 6, kBFloat16 = 9, kNoInterleave = 0, kPromote256 = 3, kZeroFill = 0;
  const auto bytes = [](std::int64_t elements) { return static_cast<std::uint64_t>(elements) * 2; };
  const std::uint64_t extents[] = {static_cast<std::uint64_t>(dim),
                                   static_cast<std::uint64_t>(rows),
                                   static_cast<std::uint64_t>(heads)};
  const std::uint64_t strides[] = {bytes(dim), bytes(rows * dim)};
  const std::uint32_t box[] = {static_cast<std::uint32_t>(box_columns), 16, 1};
  const std::uint32_t steps[] = {1, 1, 1};
  CUtensorMap map;
  const Driver& driver = Driver::instance();
  const CUresult result = driver.cuTensorMapEncodeTiled(
      &map, element == DType::kBFloat16 ? kBFloat16 : kFloat16, 3, device_pointer(data), extents,
      strides, box, steps, kNoInterleave, swizzle_of(box_columns), kPromote256, kZeroFill);
  if (result != 0)
    driver.check(result,
                 fmt::format("describing y [{}, {}, {}] to the copy engine", heads, rows, dim));
  return map;
}

/// Rows of x that are taken together while a column tile's W passes: where W is large, more, so
/// that it is read from memory fewer times.
constexpr std::int64_t kBandRows = 1024, kWideBandRows = 2048, kWide = 8192;

/// Blocks that run at once. A cluster's blocks are neighbours on the chip, which cannot be cut into
/// clusters without remainder; one cluster too many would run after all others.
std::int64_t slots_of(const Kernel& kernel, const GemmConfig& config, int num_sms) {
  if (config.cluster_n == 1) return static_cast<std::int64_t>(num_sms) * config.blocks_per_sm;
  return std::int64_t{kernel.max_clusters(config.cluster_n, config.threads())} * config.cluster_n;
}

}  // namespace

Sm90Gemm::Sm90Gemm(const GemmProblem& problem, const GemmConfig& config, const Device& device)
    : problem_(problem),
      config_(config),
      kernel_(&kernel_of(problem, config, device)),
      slots_(slots_of(*kernel_, config, device.facts().num_sms)) {}

Sm90Gemm::Sm90Gemm(const GemmProblem& problem, const Device& device)
    : Sm90Gemm(problem, default_gemm_config(problem, device.facts()), device) {}

std::int64_t Sm90Gemm::statistics_columns() const { return ceil_div(problem_.out, config_.tile_n); }

Sm90GemmCall Sm90Gemm::bind(const GemmOperands& operands) const {
  const GemmProblem& p = problem_;
  check_operands(p, operands);
  const std::int64_t width = p.y_columns();
  Sm90GemmCall call;
  call.kernel_ = kernel_;
  call.threads_ = static_cast<unsigned>(config_.threads());
  call.x_ = matrix_map("x", p.element, operands.x, p.rows, p.in, p.x_pitch(), config_.tile_m, 64);
  call.weight_ = matrix_map("weight", p.element, operands.weight, p.out, p.in, p.in,
                            config_.tile_n / (p.has(GemmStep::kGate) ? 2 : 1), 64);
  call.y_ = p.store_dim() > 0 ? heads_map(p.element, operands.y, p.out / p.head_dim, p.rows,
                                          p.head_dim, config_.chunk())
                              : matrix_map("y", p.element, operands.y, p.rows, width, p.y_pitch(),
                                           16, config_.chunk());
  call.residual_ = operands.residual == 0
                       ? call.y_
                       : matrix_map("residual", p.element, operands.residual, p.rows, width,
                                    p.residual_pitch(), 16, config_.chunk());
  const std::int64_t tiles_m = ceil_div(p.rows, config_.tile_m);
  const std::int64_t tiles_n = ceil_div(p.out, config_.tile_n);
  // Blocks that share sums take one tile each; others walk, clusters with whole rows together.
  const std::int64_t tiles = tiles_m * tiles_n;
  call.blocks_ = static_cast<unsigned>(config_.partners() > 1 ? tiles * config_.cluster_k
                                                              : std::min(tiles, slots_));
  const std::int64_t band_rows = p.out >= kWide ? kWideBandRows : kBandRows;
  const auto narrow = [](std::int64_t value) { return static_cast<std::int32_t>(value); };
  call.params_ = {operands.bias,        operands.gamma,        operands.beta,
                  operands.row_scale,   operands.statistics,   operands.positions,
                  operands.frequencies, operands.squares,      operands.row_squares,
                  narrow(p.rows),       narrow(p.out),         narrow(ceil_div(p.in, 64)),
                  narrow(tiles_m),      narrow(tiles_n),       narrow(band_rows / config_.tile_m),
                  narrow(p.rotated),    narrow(p.num_squares), static_cast<float>(p.epsilon)};
  return call;
}

void Sm90GemmCall::launch(CUstream stream, bool after_all) const {
  void* arguments[] = {const_cast<Params*>(&params_), const_cast<CUtensorMap*>(&x_),
                       const_cast<CUtensorMap*>(&weight_), const_cast<CUtensorMap*>(&y_),
                       const_cast<CUtensorMap*>(&residual_)};
  kernel_->launch(blocks_, threads_, stream, arguments, after_all);
}

}  // namespace stof::cuda
