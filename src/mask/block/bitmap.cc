#include "mask/block/bitmap.h"

namespace stof::mask {
namespace {

/// Exchanges the bits of `high` selected by `keep << shift` with those of `low` by `keep`.
inline void exchange(std::uint64_t& low, std::uint64_t& high, int shift, std::uint64_t keep) {
  const std::uint64_t difference = ((low >> shift) ^ high) & keep;
  high ^= difference;
  low ^= difference << shift;
}

/// Transposes an 8x8 matrix of bytes; words[i] holds row i, lowest byte first. Eight rows of keys
/// become eight inner tiles and back: three rounds that swap blocks of 4, 2 and 1 bytes.
inline void transpose_bytes(std::uint64_t words[8]) {
  for (int i = 0; i < 4; ++i) exchange(words[i], words[i + 4], 32, 0x00000000FFFFFFFF);
  for (int i : {0, 1, 4, 5}) exchange(words[i], words[i + 2], 16, 0x0000FFFF0000FFFF);
  for (int i : {0, 2, 4, 6}) exchange(words[i], words[i + 1], 8, 0x00FF00FF00FF00FF);
}

}  // namespace

OuterBitmap pack_bitmap(const TileRows& rows) {
  OuterBitmap bitmap;
  for (std::size_t inner_row = 0; inner_row < 8; ++inner_row) {
    std::uint64_t words[8];
    for (std::size_t r = 0; r < 8; ++r) words[r] = rows[inner_row * 8 + r];
    transpose_bytes(words);
    for (std::size_t inner_col = 0; inner_col < 8; ++inner_col)
      bitmap[inner_col * 8 + inner_row] = words[inner_col];
  }
  return bitmap;
}

TileRows unpack_bitmap(const OuterBitmap& bitmap) {
  TileRows rows;
  for (std::size_t inner_row = 0; inner_row < 8; ++inner_row) {
    std::uint64_t words[8];
    for (std::size_t inner_col = 0; inner_col < 8; ++inner_col)
      words[inner_col] = bitmap[inner_col * 8 + inner_row];
    transpose_bytes(words);
    for (std::size_t r = 0; r < 8; ++r) rows[inner_row * 8 + r] = words[r];
  }
  return rows;
}

}  // namespace stof::mask
