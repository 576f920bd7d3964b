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
  const i32* positions;      // [rows]: by which heads are turned; null without
  const float* frequencies;  // [kRopeDim / 2], likewise
  const i32* slots;          // [rows]: rows of the cache, below 0 for none; null without
  void* cache;               // rows of cache_stride: columns of y from `cached` on; null without
  float* partials;       // [tiles, kSplits, kTileM, kTileN]; null without splits
  u32* arrivals;         // [tiles], zeros before and after; null without splits
  i64 x_stride, y_stride, residual_stride, cache_stride;
  i32 rotated;  // the first columns of y, whole heads: what is turned
  i32 cached;   // the first column of y that goes to the cache, a multiple of 8
  i32 rows;     // at most kTileM
  i32 columns;  // of x W^T: with a gate the gates, then what they multiply
  i32 tiles;    // of columns
  float epsilon;  // of the norm
};

/// `Config` (emitted by src/codegen/gemm_skinny.cc) has: Element, kTileM, kWarpsN, kWarpsK, kIn,
/// kSplits, kUnroll, kGate, kBias, kFloatBias, kFloatGamma, kResidual, kNorm, kCenter, kRopeDim (of
/// heads that are turned; 0: none), kCache (results go to a cache, too).
template <class Config>
struct SkinnyGemmSizes : Config {
  static constexpr int kWarps = Config::kWarpsN * Config::kWarpsK;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kGroups = Config::kTileM / 8;      // of x's rows
  static constexpr int kTileN = 16 * Config::kWarpsN;     // rows of W of a tile
  static constexpr int kOutN = Config::kGate ? kTileN / 2 : kTileN;
  static_assert(!Config::kGate || Config::kWarpsN % 2 == 0);
  static_assert(Config::kRopeDim % 16 == 0 && !(Config::kGate && Config::kRopeDim > 0));

  /// A gate or the partner that a rotation mixes in lies as many of a tile's rows of W further.
  static constexpr bool kPaired = Config::kGate || Config::kRopeDim > 0;
  static constexpr int kPartner = Config::kGate ? kTileN / 2 : 8;

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
  /// Of a norm: the block's part of gamma and beta, and what its warps add up.
  static constexpr int kGammaOffset = kFlagOffset + 16;
  static constexpr int kVectorBytes =
      Config::kNorm ? kChunks * kChunk * (Config::kFloatGamma ? 4 : 2) : 0;
  static constexpr int kBetaOffset = kGammaOffset + kVectorBytes;
  static constexpr int kNormOffset = kBetaOffset + (Config::kCenter ? kVectorBytes : 0);
  /// Of a rotation: positions of the rows, frequencies; of a cache: slots of the rows.
  static constexpr int kPositionOffset = kNormOffset + (Config::kNorm ? 2 * kWarps * 4 : 0);
  static constexpr int kFrequencyOffset =
      kPositionOffset + (Config::kRopeDim > 0 ? 4 * Config::kTileM : 0);
  static constexpr int kSlotOffset = kFrequencyOffset + 2 * Config::kRopeDim;
  static constexpr int kSharedBytes = kSlotOffset + (Config::kCache ? 4 * Config::kTileM : 0);
};

}  // namespace stof
