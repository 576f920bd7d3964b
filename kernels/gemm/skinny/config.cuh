#pragma once
// Sizes that follow from a Config: warps, chunks of K, shared memory.

#include "ptx/types.cuh"

namespace stof {

/// Mirrored by src/backend/cuda/gemm/skinny_gemm.cc. Strides are in elements.
struct SkinnyGemmParams {
  const void* x;         // [rows, kIn]
  const void* w;         // [columns, kIn]
  void* y;               // [rows, columns; with a gate half of them]
  const void* residual;  // likewise; null without
  const void* bias;      // [columns], float32 or elements; null without
  const void* gamma;     // [kIn], likewise: of the norm in front; null without
  const void* beta;      // likewise
  float* partials;       // [tiles, kSplits, kTileM, kTileN]; null without splits
  u32* arrivals;         // [tiles], zeros before and after; null without splits
  i64 x_stride, y_stride, residual_stride;
  i32 rows;     // at most kTileM
  i32 columns;  // of x W^T: with a gate the gates, then what they multiply
  i32 tiles;    // of columns
  float epsilon;  // of the norm
};

/// `Config` (emitted by src/codegen/gemm_skinny.cc) has: Element, kTileM, kWarpsN, kWarpsK, kIn,
/// kSplits, kUnroll, kGate, kBias, kFloatBias, kFloatGamma, kResidual, kNorm, kCenter.
template <class Config>
struct SkinnyGemmSizes : Config {
  static constexpr int kWarps = Config::kWarpsN * Config::kWarpsK;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kGroups = Config::kTileM / 8;      // of x's rows
  static constexpr int kTileN = 16 * Config::kWarpsN;     // rows of W of a tile
  static constexpr int kOutN = Config::kGate ? kTileN / 2 : kTileN;
  static_assert(!Config::kGate || Config::kWarpsN % 2 == 0);

  /// What a warp loads at once of its 16 rows of W; kSplits blocks share the chunks of K.
  static constexpr int kChunk = 32 * Config::kUnroll;
  static constexpr int kAllChunks = (Config::kIn + kChunk - 1) / kChunk;
  static constexpr int kChunks = (kAllChunks + Config::kSplits - 1) / Config::kSplits;
  static constexpr int kSteps = (kChunks + Config::kWarpsK - 1) / Config::kWarpsK;  // of a warp

  /// Rows of x lie half a line apart from multiples of whole ones, so that the units of two rows
  /// that eight lanes read lie in different banks.
  static constexpr int kPitch = kChunks * kChunk * 2 + 64;
  static constexpr int kXBytes = Config::kTileM * kPitch;
  static constexpr int kSumPitch = kTileN + 4;  // floats: lanes' sums in different banks
  static constexpr int kSumOffset = kXBytes;
  static constexpr int kFlagOffset = kSumOffset + Config::kWarpsK * Config::kTileM * kSumPitch * 4;
  static constexpr int kSharedBytes = kFlagOffset + 16;
};

}  // namespace stof
