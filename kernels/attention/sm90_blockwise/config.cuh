#pragma once
// Sizes that follow from a Config: shared memory plan, barriers, payload layout.

#include "ptx/types.cuh"

namespace stof {

/// `Config` (emitted by src/codegen/attention.cc) has: Element, kHeadDimQk, kHeadDimV, kWarpgroups,
/// kTileKv, kStages, kQueryStages, kQueryInRegisters, kPackHeads, kPingPong, kMerge,
/// kConsumerRegisters, kProducerRegisters, and of scores.cuh and rows.cuh kSoftcap, kAlibi, kBias,
/// kPositionBias, kScoreMod (with it ScoreMod), kSink, kVarlen, kGridOrder.
template <class Config>
struct Derived : Config {
  static constexpr int kWarpgroupRows = 64;  // rows of one wgmma
  /// Columns of one 128-byte swizzled row of 16-bit elements.
  static constexpr int kChunk = 64;
  static constexpr int kChunksQk = (Config::kHeadDimQk + kChunk - 1) / kChunk;
  static constexpr int kChunksV = (Config::kHeadDimV + kChunk - 1) / kChunk;
  /// wgmma consumes 16 columns of Q and K a step; columns past head_dim arrive as zero.
  static constexpr int kStepsQk = (Config::kHeadDimQk + 15) / 16;
  static constexpr int kStepsPv = Config::kTileKv / 16;

  static constexpr int kScoreRegisters = Config::kTileKv / 2;
  static constexpr int kOutRegisters = Config::kHeadDimV / 2;

  /// With packed heads every warpgroup has its own head and all share rows and mask.
  static constexpr int kQueryRows = Config::kPackHeads ? 64 : 64 * Config::kWarpgroups;
  static constexpr int kHeads = Config::kPackHeads ? Config::kWarpgroups : 1;

  /// Payload: [64-row slab][word][thread of the warpgroup]; bit i of a thread's words is its score
  /// register i.
  static constexpr int kPayloadWords = (kScoreRegisters + 31) / 32;
  static constexpr int kSlabBytes = 128 * 4 * kPayloadWords;
  static constexpr int kPayloadBytes = kSlabBytes * (kQueryRows / 64);

  static constexpr int kQueryBytes = 64 * 128 * kChunksQk;  // one warpgroup's rows
  static constexpr int kKeyBytes = Config::kTileKv * 128 * kChunksQk;
  static constexpr int kValueBytes = Config::kTileKv * 128 * kChunksV;

  static constexpr int kQueryOffset = 0;
  static constexpr int kKeyOffset = kQueryOffset + Config::kQueryStages * Config::kWarpgroups * kQueryBytes;
  static constexpr int kValueOffset = kKeyOffset + Config::kStages * kKeyBytes;
  static constexpr int kPayloadOffset = kValueOffset + Config::kStages * kValueBytes;
  static constexpr int kRecordOffset = kPayloadOffset + Config::kStages * kPayloadBytes;
  /// What consumers read of an item: its record, and of a packed batch its sequence.
  static constexpr int kItemBytes = Config::kVarlen ? 64 : 32;
  /// ALiBi, biases and the caller's function need to know which keys a stage holds: the first one's
  /// position.
  static constexpr bool kNeedsKeys =
      Config::kAlibi || Config::kBias || Config::kPositionBias || Config::kScoreMod;
  static constexpr int kKeyPositionOffset = kRecordOffset + Config::kQueryStages * kItemBytes;
  static constexpr int kBarrierOffset = kKeyPositionOffset + (kNeedsKeys ? 8 * Config::kStages : 0);
  static constexpr int kNumBarriers = 2 * Config::kQueryStages + 4 * Config::kStages;
  static constexpr int kSharedBytes = kBarrierOffset + 8 * kNumBarriers;

  static constexpr int kStoreBytes = 16;  // divides out's address and strides

  static constexpr int kThreads = 128 * (Config::kWarpgroups + 1);
  static constexpr int kConsumerWarps = 4 * Config::kWarpgroups;
};

/// Shared-memory addresses of the barriers: full ones are completed by the copy engine, empty ones
/// by one arrival per consumer warp.
template <class D>
struct Barriers {
  u32 base;
  __device__ u32 query_full(int stage) const { return base + 8 * stage; }
  __device__ u32 query_empty(int stage) const { return base + 8 * (D::kQueryStages + stage); }
  __device__ u32 key_full(int stage) const { return base + 8 * (2 * D::kQueryStages + stage); }
  __device__ u32 key_empty(int stage) const { return key_full(stage) + 8 * D::kStages; }
  __device__ u32 value_full(int stage) const { return key_full(stage) + 16 * D::kStages; }
  __device__ u32 value_empty(int stage) const { return key_full(stage) + 24 * D::kStages; }
};

/// Position in a ring of buffers; the parity flips at every wrap.
template <int kStages>
struct Ring {
  int stage = 0;
  u32 parity = 0;
  __device__ __forceinline__ void next() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

}  // namespace stof
