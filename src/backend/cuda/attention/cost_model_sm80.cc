#include "backend/cuda/attention/cost_model.h"

namespace stof::cuda {
namespace {

/// Matrix operations per nanosecond of one SM running warp-level instructions: what is left of
/// times measured on an H200 when the terms below are taken out. Others are guesses until measured:
/// scaled by the ratio of dense bf16 peaks an SM.
double operations_per_ns(int compute_capability) {
  switch (compute_capability) {
    case 80:
    case 87:
      return 2900;
    case 86:
      return 870;
    case 89:
    case 120:
      return 1500;
    default:
      return 3800;
  }
}

}  // namespace

UnitCosts sm80_unit_costs(const codegen::AttentionConfig& config, int compute_capability) {
  // Fitted to eight configurations on the dense mask, D=64 and 128, S=4096 and 16384 (README.md of
  // the kernel): exponentials, maxima and sums of a score, then barriers and addresses of a tile.
  constexpr double kNsPerScore = 0.025, kNsPerRow = 1.6;
  constexpr double kItemNs = 2000, kLaunchNs = 2000, kPartial = 1.05;
  const int computed_twice = config.split_columns ? 2 : 1;
  const double rows = 64.0 * config.slabs();
  const double scores = rows * config.tile_kv * computed_twice;
  const double operations =
      2 * scores * (config.head_dim_qk + config.head_dim_v / static_cast<double>(computed_twice));
  // One slab a warp reads every key and value fragment for 16 rows only: shared memory limits.
  const double fragments = config.warp_slabs == 1 ? 1.3 : 1.0;
  // Blocks of an SM share it.
  const double full =
      config.blocks_per_sm * (operations * fragments / operations_per_ns(compute_capability) +
                              scores * kNsPerScore + rows * kNsPerRow);
  return {full, full * kPartial, kItemNs, kLaunchNs};
}

}  // namespace stof::cuda
