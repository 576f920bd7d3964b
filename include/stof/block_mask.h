#pragma once
// BlockMask: the two-level storage format of a mask (64x64 outer tiles of 8x8 bitmaps).

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "stof/fingerprint.h"
#include "stof/mask.h"

namespace stof::mask {

inline constexpr std::int64_t kOuterTile = 64;
inline constexpr std::int64_t kInnerTile = 8;

/// One partial outer tile: 64 words, one per 8x8 inner tile, inner tiles column by column
/// (word = inner_col * 8 + inner_row); bit = row * 8 + column inside the inner tile.
/// Bits past the end of the sequence are 0.
using OuterBitmap = std::array<std::uint64_t, 64>;

/// Outer-tile columns [begin, end) that are full. A run may end in the ragged last column.
struct FullRun {
  std::int32_t begin, end;
  bool operator==(const FullRun&) const = default;
};

/// A partial outer tile: its column and its bitmap's index in BlockMask::bitmaps().
struct PartialTile {
  std::int32_t col;
  std::int32_t bitmap;
  bool operator==(const PartialTile&) const = default;
};

/// One distinct (batch, head) pattern, row by row; both lists ascend inside a row.
/// Row r owns full_runs[full_run_ptr[r] .. full_run_ptr[r+1]) and
/// partial[partial_ptr[r] .. partial_ptr[r+1]). Runs are maximal: two never touch.
struct BlockPattern {
  std::vector<std::int64_t> full_run_ptr;
  std::vector<FullRun> full_runs;
  std::vector<std::int64_t> partial_ptr;
  std::vector<PartialTile> partial;
  bool operator==(const BlockPattern&) const = default;
};

/// The six arrays of the format for one pattern, and each partial tile's bitmap index.
struct BlockMaskArrays {
  std::vector<std::int64_t> full_row_ptr, part_row_ptr, load_row_ptr;
  std::vector<std::int32_t> full_col_idx, part_col_idx, load_col_idx;
  std::vector<std::int32_t> part_bitmap;  ///< parallel to part_col_idx
};

/// An immutable mask in block form. Tiles are exact: a tile stored as partial has both visible and
/// hidden pairs inside the sequence. Bitmaps and patterns are distinct and numbered in order of
/// first use, so equal masks of equal extents have equal contents and fingerprints.
class BlockMask {
 public:
  const ScoreShape& shape() const { return shape_; }
  std::int64_t num_tile_rows() const { return (shape_.seq_q + kOuterTile - 1) / kOuterTile; }
  std::int64_t num_tile_cols() const { return (shape_.seq_kv + kOuterTile - 1) / kOuterTile; }

  std::int64_t num_patterns() const { return static_cast<std::int64_t>(patterns_.size()); }
  const BlockPattern& pattern(std::int64_t index) const {
    return patterns_[static_cast<std::size_t>(index)];
  }
  /// The pattern of (b, h), both inside shape(). Extents of 1 are broadcast.
  std::int64_t pattern_index(std::int64_t b, std::int64_t h) const;
  std::int64_t batch_extent() const { return batch_extent_; }
  std::int64_t head_extent() const { return head_extent_; }

  /// Distinct bitmaps, shared by all patterns.
  const std::vector<OuterBitmap>& bitmaps() const { return bitmaps_; }

  /// Binary search in one tile row. All four inside shape().
  bool visible(std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t k) const;

  /// The six arrays of the format, expanded from the runs of one pattern: 4 bytes per full tile,
  /// twice. Throws OutOfMemory when they do not fit.
  BlockMaskArrays arrays(std::int64_t pattern) const;

  /// Bytes held, without the object itself.
  std::size_t memory_bytes() const;

  /// Throws Internal naming the first broken invariant. load() checks the same of a file and throws
  /// Corrupt.
  void validate() const;
  /// One line for logs: shape, patterns, tile counts, bytes.
  std::string describe() const;
  /// The same facts as JSON. Contents are not included: they belong in a file, see save().
  std::string to_json() const;
  Fingerprint fingerprint() const;

  /// safetensors; see docs/file-formats.md. Loading validates everything and throws Corrupt naming
  /// the file and the field.
  void save(const std::string& path) const;
  static BlockMask load(const std::string& path);

 private:
  friend class BlockMaskBuilder;
  ScoreShape shape_;
  std::int64_t batch_extent_ = 1, head_extent_ = 1;
  std::vector<std::int32_t> pattern_of_;  ///< [batch_extent, head_extent]
  std::vector<BlockPattern> patterns_;
  std::vector<OuterBitmap> bitmaps_;
};

/// Builds by recursive subdivision: cost follows the number of partial tiles and row runs, never
/// seq_q * seq_kv. Binds the mask to the shape first (and throws as bind() does).
BlockMask build_block_mask(const Mask& mask, const ScoreShape& shape,
                           Alignment alignment = Alignment::kTopLeft);

/// Tile counts at one tile size.
struct TileCensus {
  std::int64_t tile = 0;
  std::int64_t full = 0, partial = 0, empty = 0;
  /// Share of the score matrix's tiles that is not empty, in [0, 1].
  double density() const;
};

/// Statistics over all (batch, head) pairs of the shape.
struct BlockMaskStats {
  std::int64_t visible_pairs = 0;  ///< per distinct pattern, weighted by how often it is used
  double element_density = 0;
  std::vector<TileCensus> tiles;  ///< 8, 16, 64, 128
  std::int64_t distinct_bitmaps = 0;
  std::int64_t empty_rows = 0;  ///< query rows that see nothing
  double row_imbalance = 0;     ///< most non-empty 64-tiles in a tile row / their mean; 0
                                ///< when every tile is empty
  std::size_t memory_bytes = 0;

  std::string to_json() const;
};
/// Cost follows the number of runs and partial tiles. Throws Unsupported when a count passes 2^63.
BlockMaskStats compute_stats(const BlockMask& mask);

}  // namespace stof::mask
