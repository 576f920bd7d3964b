#pragma once
// Sizes that follow from a Config: warps, stages, staging, shared memory.

#include "ptx/types.cuh"

namespace stof {

/// Mirrored by src/backend/cuda/gemm/sm80_gemm.cc. Strides are in elements.
struct Sm80GemmParams {
  const void* x;           // [rows, in]
  const void* w;           // [columns, in]
  void* y;                 // [rows, columns; with a gate half of them]
  const void* residual;    // likewise; null without
  const void* bias;        // [columns], float32 or elements; null without
  const float* row_scale;  // [rows]; null without
  float2* statistics;      // [rows, tiles_n * kWarpsN]: sum and sum of squares; null without
  float4* partials;        // [tiles, kSplits, kAccumulators / 4, threads]; null without splits
  u32* arrivals;           // [tiles], zeros before and after; null without splits
  i64 x_stride, y_stride, residual_stride;
  i32 rows, in;
  i32 columns;  // of x W^T: with a gate the gates, then what they multiply
  i32 tiles_m, tiles_n;
  i32 band;  // row tiles that are taken together, column tile by column tile
};

/// `Config` (emitted by src/codegen/gemm_sm80.cc) has: Element, kTileM, kTileN, kTileK, kStages,
/// kWarpsM, kWarpsN, kSplits, kGate, kBias, kFloatBias, kResidual, kRowScale, kStatistics.
template <class Config>
struct Sm80GemmSizes : Config {
  static constexpr int kThreads = 32 * Config::kWarpsM * Config::kWarpsN;
  static constexpr int kWarpM = Config::kTileM / Config::kWarpsM;
  static constexpr int kWarpN = Config::kTileN / Config::kWarpsN;
  static constexpr int kSlabs = kWarpM / 16;   // of a warp
  static constexpr int kGroups = kWarpN / 8;   // of eight columns, of a warp
  static constexpr int kValues = 4 * kGroups;  // of a thread in a slab
  static constexpr int kSteps = Config::kTileK / 16;
  static_assert(kWarpM % 16 == 0 && kWarpN % 16 == 0 && kSteps % 2 == 0);
  static_assert(!Config::kGate || kWarpN % 32 == 0);

  /// Rows of a stage: 64 or 128 bytes, their 16-byte units permuted (unit_of()).
  static constexpr int kRowBytes = 2 * Config::kTileK;
  static constexpr int kUnits = kRowBytes / 16;
  static constexpr int kXBytes = Config::kTileM * kRowBytes;
  static constexpr int kStageBytes = kXBytes + Config::kTileN * kRowBytes;

  /// Once all products are done the stages' memory holds the results: of each warp its rows of
  /// kOutN columns.
  static constexpr int kOutN = Config::kGate ? kWarpN / 2 : kWarpN;
  static constexpr int kOutRowBytes = 2 * kOutN;
  static constexpr int kStagingBytes = kThreads / 32 * kWarpM * kOutRowBytes;
  static constexpr int kLoadBytes = Config::kStages * kStageBytes;
  static constexpr int kFlagOffset = kLoadBytes > kStagingBytes ? kLoadBytes : kStagingBytes;
  static constexpr int kSharedBytes = kFlagOffset + (Config::kSplits > 1 ? 16 : 0);
};

/// Where unit `unit` of row `row` lies in a row of kUnits units of 16 bytes (1, 2, 4 or 8), so that
/// eight rows' units of the same number lie in different banks.
template <int kUnits>
__device__ __forceinline__ int unit_of(int row, int unit) {
  return unit ^ (row / (8 / kUnits) % kUnits);
}

}  // namespace stof
