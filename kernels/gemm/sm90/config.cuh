#pragma once
// Sizes that follow from a Config: ring, staging buffers, barriers, shared memory.

#include "gemm/tiles.cuh"
#include "ptx/types.cuh"

namespace stof {

/// Mirrored by src/backend/cuda/gemm/sm90_gemm.cc.
struct GemmParams {
  const void* bias;        // [columns], float32 or elements; null without
  const void* gamma;       // likewise: what normalised rows are multiplied by
  const void* beta;        // as gamma: what is then added
  const float* row_scale;  // [rows]; null without
  float2* statistics;      // [rows, tiles_n]: sum and sum of squares; null without
  const i32* positions;    // [rows], of a rotation; null without
  const float* frequencies;  // [kRopeDim / 2], radians a position; null without
  const float* squares;    // [rows, num_squares], whose rows' means scale rows; null without
  float* row_squares;      // [rows, columns / 32]: sums of squares; null without
  i32 rows;
  i32 columns;   // of x W^T: with a gate the gates, then what they multiply
  i32 k_blocks;  // of 64 columns of x
  i32 tiles_m, tiles_n;
  i32 band;  // row tiles that are taken together, column tile by column tile
  i32 rotated;    // columns that a rotation turns: whole heads
  i32 num_squares;  // sums of 32 squares of a row, an even number
  float epsilon;  // of a norm, and of the mean of squares
};

/// `Config` (emitted by src/codegen/gemm.cc) has: Element, kTileN, kStages, kGroups (warpgroups that
/// multiply), kSlabs (of 64 rows, each warpgroup's), kPingPong, kSplitGroups, kClusterK, kClusterN,
/// kLarge, kGroupRegisters, kProducerRegisters, kChunk, kRing, kGate, kBias, kFloatBias, kResidual,
/// kRowScale, kRmsScale, kStatistics, kNorm, kFloatNorm (gamma and beta), kCenter, kRopeDim (of a head that is
/// rotated; 0 without), kStoreDim (of a head, where y is [heads, rows, kStoreDim]; 0: a matrix).
template <class Config>
struct GemmSizes : Config {
  /// Warpgroups with rows of their own in a tile.
  static constexpr bool kCooperative = Config::kGroups > 1 && !Config::kPingPong && !Config::kSplitGroups;
  static constexpr int kTileM = 64 * Config::kSlabs * (kCooperative ? Config::kGroups : 1);
  static constexpr int kBlockK = 64;  // columns of one 128-byte swizzled row

  /// Who shares a tile's sum over K: warpgroups of a block, blocks of a cluster.
  static constexpr int kPartners = Config::kClusterK * (Config::kSplitGroups ? Config::kGroups : 1);
  static_assert(kPartners == 1 || kPartners == 2 || kPartners == 4);
  static_assert(kPartners == 1 || Config::kSlabs == 1);
  /// Of its four warps' rows a partner finishes so many.
  static constexpr int kOwnWarps = 4 / kPartners;

  static constexpr int kAccumulators = Config::kTileN / 2;  // of a slab and thread
  static constexpr int kOutN = Config::kGate ? Config::kTileN / 2 : Config::kTileN;
  static constexpr int kChunks = kOutN / Config::kChunk;  // of a slab
  static_assert(kOutN % Config::kChunk == 0 && Config::kChunk % 16 == 0);
  static constexpr int kTileChunks = kChunks * Config::kSlabs;
  static_assert(kTileChunks % Config::kRing == 0);
  static constexpr int kChunkValues = Config::kTileN / 2 / kChunks;  // of a thread, before a gate

  static constexpr int kXBytes = kTileM * 128;
  static constexpr int kWBytes = Config::kTileN * 128;
  static constexpr int kWarps = 4 * Config::kGroups;
  static constexpr int kStagingBytes = 16 * Config::kChunk * 2;  // a warp's 16 rows of a chunk
  static constexpr int kReceiveBytes = 16 * Config::kTileN * 4;  // a warp's rows of one partner
  /// What epilogues read of a column: bias, gamma, beta. Blocks whose cluster has whole rows keep
  /// their column tile.
  static constexpr int kNormVectors = Config::kNorm ? (Config::kCenter ? 2 : 1) : 0;
  static constexpr int kVectors = (Config::kBias ? 1 : 0) + kNormVectors;
  static constexpr int kBiasWidth = Config::kFloatBias ? 4 : 2, kNormWidth = Config::kFloatNorm ? 4 : 2;
  static constexpr int kGammaOffset = Config::kBias ? Config::kTileN * kBiasWidth : 0;
  static constexpr int kBetaOffset = kGammaOffset + Config::kTileN * kNormWidth;
  static constexpr int kBiasBytes = kGammaOffset + kNormVectors * Config::kTileN * kNormWidth;
  static constexpr int kBiasSlots = Config::kNorm ? 1 : 2;

  static_assert(Config::kStoreDim % Config::kChunk == 0);
  /// Both halves of a head's pairs lie in one tile, eight columns of the one opposite eight of the other.
  static_assert(Config::kRopeDim == 0 ||
                (Config::kTileN % Config::kRopeDim == 0 && Config::kRopeDim % 16 == 0 && !Config::kGate));

  static constexpr int kClusterBlocks = Config::kClusterK * Config::kClusterN;
  static_assert(Config::kClusterN == 1 || (Config::kNorm && kPartners == 1));
  /// What a warp hears from another block of its rows: for each slab 8 x (sum, squares) of two rows.
  /// Twice, since that block may be one tile ahead.
  static constexpr int kHearBytes = 128 * Config::kSlabs;
  static constexpr int kHears = Config::kClusterN - 1;

  static constexpr int kXOffset = 0;
  static constexpr int kWOffset = kXOffset + Config::kStages * kXBytes;
  static constexpr int kStagingOffset = kWOffset + Config::kStages * kWBytes;
  static constexpr int kReceiveOffset = kStagingOffset + kWarps * Config::kRing * kStagingBytes;
  static constexpr int kReceives = (kPartners - 1) * kOwnWarps * (Config::kSplitGroups ? Config::kGroups : 1);
  static constexpr int kHearOffset = kReceiveOffset + kReceives * kReceiveBytes;
  static constexpr int kBiasOffset = kHearOffset + kWarps * 2 * kHears * kHearBytes;
  static constexpr int kBarrierOffset = kBiasOffset + kBiasSlots * kBiasBytes;
  static constexpr int kResidualBarriers = Config::kResidual ? kWarps * Config::kRing : 0;
  static constexpr int kReceiveBarriers = Config::kClusterK > 1 ? kWarps : 0;
  static constexpr int kHearBarriers = kHears > 0 ? 2 * kWarps : 0;
  static constexpr int kNumBarriers =
      2 * Config::kStages + 2 * kBiasSlots + kResidualBarriers + kReceiveBarriers + kHearBarriers;
  static constexpr int kSharedBytes = kBarrierOffset + 8 * kNumBarriers;

  /// Warps that read a stage and a tile's bias. Blocks that share sums take one tile: what they have
  /// read nobody waits for.
  static constexpr int kReaders = Config::kPingPong ? 4 : kWarps;
  static constexpr int kThreads = Config::kLarge ? 128 * (Config::kGroups + 1) : 128 * Config::kGroups + 32;
};

/// Shared-memory addresses of the barriers.
template <class D>
struct GemmBarriers {
  u32 base;
  __device__ u32 full(int stage) const { return base + 8 * stage; }
  __device__ u32 empty(int stage) const { return base + 8 * (D::kStages + stage); }
  __device__ u32 bias_full(int slot) const { return base + 8 * (2 * D::kStages + slot); }
  __device__ u32 bias_empty(int slot) const { return bias_full(slot) + 8 * D::kBiasSlots; }
  __device__ u32 residual(int warp, int buffer) const {
    return bias_full(0) + 8 * (2 * D::kBiasSlots + warp * D::kRing + buffer);
  }
  __device__ u32 receive(int warp) const {
    return bias_full(0) + 8 * (2 * D::kBiasSlots + D::kResidualBarriers + warp);
  }
  __device__ u32 hear(int warp, u32 buffer) const {
    return receive(0) + 8 * (D::kReceiveBarriers + 2 * warp + buffer);
  }
};

/// Number of a block of K in this block's life -> its place in the ring.
template <class D>
struct GemmRing {
  int stage;
  u32 parity;
  __device__ __forceinline__ explicit GemmRing(u32 number)
      : stage(static_cast<int>(number % D::kStages)), parity(number / D::kStages & 1) {}
  __device__ __forceinline__ void next() {
    if (++stage == D::kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

/// The tiles of one block, and its part of K.
template <class D>
struct TileWalk {
  i32 index, stride, end;  // of tiles; with a norm of rows of tiles
  i32 k_begin, k_blocks;   // of this block of the cluster
  i32 rank;                // of this block in the cluster
  __device__ __forceinline__ explicit TileWalk(const GemmParams& params)
      : index(static_cast<i32>(blockIdx.x) / D::kClusterBlocks),
        stride(static_cast<i32>(gridDim.x) / D::kClusterBlocks),
        end(params.tiles_m * (D::kNorm ? 1 : params.tiles_n)),
        rank(static_cast<i32>(blockIdx.x) % D::kClusterBlocks) {
    const i32 part = D::kClusterK > 1 ? rank : 0;
    k_begin = part * params.k_blocks / D::kClusterK;
    k_blocks = (part + 1) * params.k_blocks / D::kClusterK - k_begin;
  }
  __device__ __forceinline__ TilePlace place(const GemmParams& params) const {
    if constexpr (D::kNorm)
      return {index, rank};
    else
      return tile_place(params, index);
  }
};

}  // namespace stof
