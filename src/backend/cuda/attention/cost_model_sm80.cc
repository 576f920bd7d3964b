#include "backend/cuda/attention/cost_model.h"

namespace stof::cuda {
namespace {

/// Matrix operations per nanosecond of one SM running warp-level instructions.
///
/// Guesses until measured. 9.0: what is left of FlashAttention-2's times on an H200 (352 TFLOP/s at
/// D=128, 296 at D=64, S=4096 and 2048) when the exponentials below are taken out. Others: scaled
/// by the ratio of dense bf16 peaks an SM.
double operations_per_ns(int compute_capability) {
  switch (compute_capability) {
    case 80:
    case 87:
      return 2500;
    case 86:
      return 750;
    case 89:
    case 120:
      return 1300;
    default:
      return 3280;
  }
}

}  // namespace

UnitCosts sm80_unit_costs(const codegen::AttentionConfig& config, int compute_capability) {
  constexpr double kNsPerScore = 0.036;  // exponentials, maxima, sums; see above
  constexpr double kItemNs = 2000, kLaunchNs = 2000, kPartial = 1.05;
  const int computed_twice = config.split_columns ? 2 : 1;
  const double scores = 64.0 * config.slabs() * config.tile_kv * computed_twice;
  const double operations =
      2 * scores * (config.head_dim_qk + config.head_dim_v / static_cast<double>(computed_twice));
  // One slab a warp reads every key and value fragment for 16 rows only: shared memory limits.
  const double fragments = config.warp_slabs == 1 ? 1.3 : 1.0;
  // Blocks of an SM share it.
  const double full =
      config.blocks_per_sm *
      (operations * fragments / operations_per_ns(compute_capability) + scores * kNsPerScore);
  return {full, full * kPartial, kItemNs + (config.merge ? kMergeItemNs : 0), kLaunchNs};
}

}  // namespace stof::cuda
