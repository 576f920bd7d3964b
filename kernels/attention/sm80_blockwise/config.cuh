#pragma once
// Sizes that follow from a Config: threads, shared memory plan, payload layout.

#include "ptx/types.cuh"

namespace stof {

constexpr int kStreamBytes = 480;  // stream.cuh's Stream

/// `Config` (emitted by src/codegen/attention_sm80.cc) has: Element, kHeadDimQk, kHeadDimV,
/// kWarpSlabs, kRowGroups, kColumnGroups, kTileKv, kStages, kLoadBytes, kQueryInRegisters,
/// kPackHeads, kTwoOfFour, kSoftcap, kMerge, and of rows.cuh and scores.cuh kAlibi, kBias, kPositionBias,
/// kScoreMod (with it ScoreMod), kSink, kVarlen, kGridOrder (false).
template <class Config>
struct MmaDerived : Config {
  /// Four warps are a group. It owns kWarpSlabs slabs of 64 rows, of which each warp computes 16
  /// rows a slab: every key and value fragment then serves kWarpSlabs products.
  static constexpr int kSlabs = Config::kWarpSlabs * Config::kRowGroups;
  static constexpr int kThreads = 128 * Config::kRowGroups * Config::kColumnGroups;

  static constexpr int kStoreBytes = Config::kLoadBytes;  // divides out's address and strides

  /// Columns of one 128-byte swizzled row of 16-bit elements.
  static constexpr int kChunk = 64;
  static constexpr int kStepsQk = (Config::kHeadDimQk + 15) / 16;
  static constexpr int kStepsPv = Config::kTileKv / 16;
  static constexpr int kScoreRegisters = Config::kTileKv / 2;

  /// With two column groups each computes all scores and half of the output's columns, rounded up
  /// to whole chunks; what lies past head_dim_v is computed and not stored.
  static constexpr int kOutColumns =
      Config::kColumnGroups == 1 ? Config::kHeadDimV : ((Config::kHeadDimV + 1) / 2 + 63) / 64 * 64;
  static constexpr int kOutRegisters = kOutColumns / 2;

  static constexpr int kChunksQk = (Config::kHeadDimQk + kChunk - 1) / kChunk;
  static constexpr int kChunksV = (Config::kColumnGroups * kOutColumns + kChunk - 1) / kChunk;

  /// With packed heads every slab is another head and all share rows and mask.
  static constexpr int kQueryRows = Config::kPackHeads ? 64 : 64 * kSlabs;

  /// Payload: [64-row slab][word][thread of the group]; bit i of a thread's words is its score
  /// register i. The order of the Hopper kernel: both instructions lay accumulators out alike.
  static constexpr int kPayloadWords = (kScoreRegisters + 31) / 32;
  static constexpr int kSlabBytes = 128 * 4 * kPayloadWords;
  static constexpr int kPayloadBytes = kSlabBytes * (kQueryRows / 64);

  static constexpr int kQueryBytes = 64 * 128 * kChunksQk;  // one slab
  static constexpr int kKeyBytes = Config::kTileKv * 128 * kChunksQk;
  static constexpr int kValueBytes = Config::kTileKv * 128 * kChunksV;
  static constexpr int kStageBytes = kKeyBytes + kValueBytes;

  static constexpr int kStageOffset = kSlabs * kQueryBytes;
  static constexpr int kStreamOffset = kStageOffset + Config::kStages * kStageBytes;
  static constexpr int kSharedBytes = kStreamOffset + kStreamBytes;
};

}  // namespace stof
