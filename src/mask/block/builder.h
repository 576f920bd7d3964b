#pragma once
// BlockMaskBuilder: turns a bound mask into its block form, and the only one who fills BlockMasks.

#include <cstdint>
#include <string>
#include <vector>

#include "mask/block/bitmap_table.h"
#include "stof/block_mask.h"

namespace stof::mask {

class BlockMaskBuilder {
 public:
  /// The mask must be bound to the shape.
  BlockMaskBuilder(const Mask& bound_mask, const ScoreShape& shape);

  BlockMask build();

  /// A block mask of ready parts, not validated: for files, which are checked after by
  /// find_fault().
  static BlockMask assemble(const ScoreShape& shape, std::int64_t batch_extent,
                            std::int64_t head_extent, std::vector<std::int32_t> pattern_of,
                            std::vector<BlockPattern> patterns, std::vector<OuterBitmap> bitmaps);

  /// The first broken invariant: field, expected, got. Empty where all hold.
  static std::string find_fault(const BlockMask& mask);

 private:
  BlockPattern build_pattern(std::int64_t b, std::int64_t h);
  void repeat(std::size_t source, std::int64_t shift);
  void subdivide(std::int64_t col_begin, std::int64_t col_end);
  void add_full(std::int64_t col_begin, std::int64_t col_end);
  void add_leaf(std::int64_t col);

  const Mask mask_;
  const ScoreShape shape_;
  const std::int64_t num_tile_rows_, num_tile_cols_;
  BitmapTable bitmaps_;

  // The pattern and tile row under construction.
  std::int64_t b_ = 0, h_ = 0, q_begin_ = 0, q_end_ = 0;
  BlockPattern pattern_;
};

}  // namespace stof::mask
