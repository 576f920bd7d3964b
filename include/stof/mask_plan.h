#pragma once
// MaskPlan: a BlockMask re-tiled for one kernel: tile lists, payload bits, work queue, splits.

#include <cstdint>
#include <string>
#include <vector>

#include "stof/block_mask.h"
#include "stof/fingerprint.h"

namespace stof::plan {

/// How a partial tile's bits are laid out for the kernel that reads them.
enum class PayloadOrder : std::uint8_t {
  kRowMajor,  ///< tile_q rows of tile_kv bits, rows padded to whole 64-bit words
};

/// What a kernel wants of its plan.
struct PlanConfig {
  std::string kernel = "cpu_flash";  ///< names the reader, part of the fingerprint
  std::int32_t tile_q = 64;          ///< multiples of 8
  std::int32_t tile_kv = 64;         ///< multiples of 8
  PayloadOrder payload_order = PayloadOrder::kRowMajor;
  /// A query tile with more than this many tiles is cut into splits merged by LSE; 0 = never.
  std::int64_t max_tiles_per_split = 0;
};

/// Key tiles [begin, end), all full.
struct TileRun {
  std::int32_t begin, end;
};

/// A partial key tile and the index of its payload.
struct PartialTile {
  std::int32_t tile;
  std::int32_t payload;
};

/// The tiles one query tile (or one split of it) walks: partial ones first, then full runs.
struct WorkItem {
  std::int32_t pattern = 0;
  std::int32_t q_tile = 0;
  std::int32_t split = 0;
  std::int32_t num_splits = 1;
  std::int64_t partial_begin = 0, partial_end = 0;  ///< into MaskPlan::partial
  std::int64_t run_begin = 0, run_end = 0;          ///< into MaskPlan::runs
  double cost = 0;                                  ///< in units of one full tile
};

/// An immutable plan. The last key tile may be ragged: a kernel must give keys >= seq_kv weight 0
/// and must not store queries >= seq_q.
struct MaskPlan {
  PlanConfig config;
  mask::ScoreShape shape;
  std::int64_t batch_extent = 1, head_extent = 1;
  std::vector<std::int32_t> pattern_of;  ///< [batch_extent, head_extent]
  std::int32_t num_patterns = 0;

  std::vector<WorkItem> items;  ///< the queue: dearest first, every (pattern, q_tile) once
                                ///< per split, empty rows included (they store zeros)
  std::vector<PartialTile> partial;
  std::vector<TileRun> runs;
  std::vector<std::uint64_t> payloads;  ///< distinct payloads, payload_words() each

  std::int64_t num_q_tiles() const;
  std::int64_t num_kv_tiles() const;
  std::int64_t payload_words() const;  ///< 64-bit words per payload
  std::int64_t words_per_row() const;  ///< of a row-major payload
  std::int32_t pattern_index(std::int64_t b, std::int64_t h) const;

  /// Throws Internal naming the first broken invariant.
  void validate() const;
  std::string describe() const;
  std::string to_json() const;
  Fingerprint fingerprint() const;
};

/// Re-tiles a BlockMask. Cost follows the number of stored tiles and runs.
MaskPlan build_mask_plan(const mask::BlockMask& mask, const PlanConfig& config);

}  // namespace stof::plan
