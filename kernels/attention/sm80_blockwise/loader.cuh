#pragma once
// Rows of Q, K and V into swizzled shared memory, by all threads of the block.
//
// A tile lies as [64-column chunk][row][64 columns]; the eight 16-byte units of a 128-byte row are
// permuted by XOR with the row's number, so that eight rows of one column read without conflicts.

#include "attention/sm80_blockwise/config.cuh"
#include "ptx/async_copy.cuh"

namespace stof {

/// Rows of one tensor; strides in bytes, any sign-free value that kLoadBytes divides.
struct Operand {
  const unsigned char* data;  // [batch, heads, rows, head_dim], unit last stride
  i64 batch_stride;
  i64 head_stride;
  i64 row_stride;
};

struct Operands {
  Operand q, k, v;
};

__device__ __forceinline__ const unsigned char* head_rows(const Operand& operand, i32 batch,
                                                          i32 head) {
  return operand.data + batch * operand.batch_stride + head * operand.head_stride;
}

/// Residue order (see AttentionParams::step): position p is token (p % rows) * step + p / rows.
struct TokenOrder {
  u32 rows;  // in a residue; unsigned, so that positions just past 2^31 stay positions
  u32 step;
};

constexpr int power_of_two_from(int value) {
  int power = 8;
  while (power < value) power *= 2;
  return power;
}

/// One 16-byte unit, of which nothing is read where it is not `inside`: it arrives as zero.
template <int kLoadBytes>
__device__ __forceinline__ void load_unit(u32 shared, const unsigned char* global, bool inside) {
  if constexpr (kLoadBytes == 16) {
    ptx::copy_16(shared, global, inside ? 16 : 0);
  } else if constexpr (kLoadBytes == 4) {
#pragma unroll
    for (int i = 0; i < 4; ++i) ptx::copy_4(shared + 4 * i, global + 4 * i, inside ? 4 : 0);
  } else {
    // Narrower than any asynchronous copy: through registers, visible after the block's barrier.
    u32 words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto* pair = reinterpret_cast<const unsigned short*>(global) + 2 * i;
      words[i] = inside ? pair[0] | static_cast<u32>(pair[1]) << 16 : 0;
    }
    ptx::store_shared(shared, words[0], words[1], words[2], words[3]);
  }
}

/// Loads kRows rows of kHeadDim elements with kThreads threads. In neighbour order row r of each 16
/// comes to the place where an accumulator's lane finds four neighbours (../sm80_sparse/choice.cuh):
/// of four rows 4t .. 4t + 3 two lie at 2t, two at 8 + 2t.
template <int kHeadDim, int kRows, int kThreads, int kLoadBytes, bool kNeighbours = false>
class TileLoader {
 public:
  __device__ __forceinline__ explicit TileLoader(u32 thread) {
    unit_ = thread % kLanes;
    row_ = thread / kLanes;
    target_ = (unit_ / 8) * kRows * 128 + row_ * 128 + (((unit_ ^ row_) & 7) << 4);
  }

  /// Positions [position, position + kRows) of a head; those past the last token arrive as zero.
  __device__ __forceinline__ void load(u32 shared, const unsigned char* rows, i64 row_stride,
                                       u32 position, TokenOrder order) const {
    u32 residue = 0;
    if (position >= order.rows) {
      residue = position / order.rows;
      position -= residue * order.rows;
    }
    if (unit_ >= kUnits) return;
    rows += unit_ * 16;
    if (kLoadBytes == 16 && position + kRows <= order.rows && residue < order.step) {
      const unsigned char* row =
          rows + (static_cast<i64>(position + row_at(row_)) * order.step + residue) * row_stride;
      const i64 advance = row_stride * static_cast<i64>(kRowsPerPass * order.step);
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        if (has_row(pass)) ptx::copy_16(shared + target(pass), row);
        if constexpr (kNeighbours && kRowsPerPass == 8)  // by turns 2 and 14 rows on
          row += pass % 2 == 0 ? advance >> 2 : 2 * advance - (advance >> 2);
        else
          row += advance;
      }
      return;
    }
#pragma unroll 1
    for (int pass = 0; pass < kPasses; ++pass) {
      if (!has_row(pass)) break;
      u32 at = position + row_at(row_ + pass * kRowsPerPass), of = residue;
      if (at >= order.rows) {
        of += at / order.rows;
        at %= order.rows;
      }
      const bool inside = of < order.step;
      const i64 token = inside ? static_cast<i64>(at) * order.step + of : 0;
      load_unit<kLoadBytes>(shared + target(pass), rows + token * row_stride, inside);
    }
  }

  /// Zeroes the eight columns that make an odd number of 8-column units even, which no load writes
  /// and the matrix instructions read.
  static __device__ __forceinline__ void clear_padding(u32 shared) {
    if constexpr (kUnits % 2 == 1) {
      for (u32 row = threadIdx.x; row < kRows; row += kThreads)
        ptx::store_shared(shared + (kUnits / 8) * kRows * 128 + row * 128 +
                              (((kUnits ^ row) & 7) << 4),
                          0, 0, 0, 0);
    }
  }

 private:
  static constexpr int kUnits = kHeadDim / 8;  // of 16 bytes
  static constexpr int kLanes = power_of_two_from(kUnits);
  static constexpr int kRowsPerPass = kThreads / kLanes;
  static constexpr int kPasses = (kRows + kRowsPerPass - 1) / kRowsPerPass;

  static_assert(!kNeighbours || kRowsPerPass % 8 == 0 && kRows % 16 == 0,
                "neighbour order: head dimensions to 256");

  /// The tile's row that lies at `place`.
  static __device__ __forceinline__ u32 row_at(u32 place) {
    if constexpr (!kNeighbours) return place;
    return (place & ~14u) | (place & 6) << 1 | (place & 8) >> 2;
  }
  __device__ __forceinline__ bool has_row(int pass) const {
    return kRows % kRowsPerPass == 0 || row_ + pass * kRowsPerPass < kRows;
  }
  /// A pass moves the row by a multiple of eight, or flips bits that row_ has clear.
  __device__ __forceinline__ u32 target(int pass) const {
    return (target_ ^ ((pass * kRowsPerPass & 7) << 4)) + pass * kRowsPerPass * 128;
  }

  u32 unit_, row_, target_;
};

}  // namespace stof
