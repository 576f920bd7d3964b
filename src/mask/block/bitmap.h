#pragma once
// Bits of one 64x64 outer tile: conversion between rows of keys and 8x8 inner tiles.

#include <array>
#include <cstdint>

#include "core/bits.h"
#include "stof/block_mask.h"

namespace stof::mask {

/// An outer tile row by row: bit c of rows[r] is (row r, column c).
using TileRows = std::array<std::uint64_t, 64>;

inline constexpr std::uint64_t kAllOnes = ~std::uint64_t{0};

/// The bits of an inner tile that lie in its first `rows` rows and `cols` columns; both may be
/// negative (nothing) or above 8 (everything).
constexpr std::uint64_t inner_tile_bits(std::int64_t rows, std::int64_t cols) {
  if (rows <= 0 || cols <= 0) return 0;
  constexpr std::uint64_t kFirstColumn = 0x0101010101010101;
  return low_bits(rows * 8) & (kFirstColumn * low_bits(cols > 8 ? 8 : cols));
}

OuterBitmap pack_bitmap(const TileRows& rows);
TileRows unpack_bitmap(const OuterBitmap& bitmap);

/// Bit (row, col) of an outer tile, both in [0, 64).
inline bool bitmap_bit(const OuterBitmap& bitmap, std::int64_t row, std::int64_t col) {
  const std::uint64_t word = bitmap[static_cast<std::size_t>(col / 8 * 8 + row / 8)];
  return (word >> (row % 8 * 8 + col % 8)) & 1;
}

}  // namespace stof::mask
