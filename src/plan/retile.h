#pragma once
// Retiler: reads one pattern of a BlockMask through tiles of another size.

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "stof/block_mask.h"
#include "stof/mask_plan.h"

namespace stof::plan {

/// Tiles of one query tile, both lists ascending and disjoint.
struct TileRow {
  std::vector<PartialTile> partial;
  std::vector<TileRun> runs;
};

/// Scratch and the shared payload store of one build.
class Retiler {
 public:
  Retiler(const mask::BlockMask& mask, const PlanConfig& config);

  /// Classifies the key tiles of query tile `q_tile`. Cost follows the stored tiles and runs of
  /// the 64-row strips under the tile, never the sequence length.
  void read(std::int64_t pattern, std::int64_t q_tile, TileRow& out);

  /// Distinct payloads interned so far, payload_words each.
  std::vector<std::uint64_t> take_payloads() { return std::move(payloads_); }

 private:
  /// Rows [q_begin, q_end) of one 64-row strip, and how far its lists have been read.
  struct Strip {
    std::int64_t q_begin, q_end;
    const mask::FullRun *run, *run_end;
    const mask::PartialTile *partial, *partial_end;
  };

  void open_strips(std::int64_t pattern, std::int64_t q_tile);
  void find_sure_runs();
  void find_candidates();
  void read_candidate(std::int64_t tile, TileRow& out);
  void draw_strip(Strip& strip, std::int64_t k_begin, std::int64_t k_end);
  std::int32_t intern();

  const mask::BlockMask& mask_;
  std::int64_t tile_q_, tile_kv_, words_per_row_, seq_q_, seq_kv_, num_tiles_;
  std::int64_t q_begin_ = 0, q_end_ = 0;
  std::vector<std::array<std::uint64_t, 64>> bitmap_rows_;  ///< each bitmap, one word per row
  std::vector<Strip> strips_;
  std::vector<TileRun> sure_;        ///< tiles that are full by runs alone
  std::vector<TileRun> candidates_;  ///< tiles that something visible touches, sure ones included
  std::vector<mask::FullRun> common_, next_common_;
  std::vector<std::uint64_t> bits_;  ///< the tile being drawn, row-major
  std::vector<std::uint64_t> payloads_;
  std::int32_t num_payloads_ = 0;
  std::unordered_map<std::uint64_t, std::vector<std::int32_t>> payloads_by_hash_;
};

}  // namespace stof::plan
