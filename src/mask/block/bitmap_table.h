#pragma once
// BitmapTable: stores each distinct bitmap once and numbers them in order of first use.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "stof/block_mask.h"

namespace stof::mask {

/// Open addressing over indices, at most half full; allocates only when it grows. Equal hashes are
/// settled by comparing contents.
class BitmapTable {
 public:
  BitmapTable();

  /// The bitmap's number. Throws Unsupported past 2^31-1 distinct bitmaps.
  std::int32_t intern(const OuterBitmap& bitmap);

  const std::vector<OuterBitmap>& bitmaps() const { return bitmaps_; }
  /// Leaves the table empty.
  std::vector<OuterBitmap> release();

 private:
  std::size_t find_slot(const OuterBitmap& bitmap) const;
  void grow();

  std::vector<std::int32_t> slots_;  ///< size a power of two; kFree or an index
  std::vector<OuterBitmap> bitmaps_;
};

}  // namespace stof::mask
