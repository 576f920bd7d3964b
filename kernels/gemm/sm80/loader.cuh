#pragma once
// Blocks of x and W on their way to shared memory, by asynchronous copies of all threads. What lies
// outside the matrices arrives as zero.

#include "gemm/sm80/config.cuh"
#include "gemm/tiles.cuh"
#include "ptx/async_copy.cuh"

namespace stof {

template <class D>
class Sm80Loader {
 public:
  __device__ __forceinline__ Sm80Loader(const Sm80GemmParams& params, TilePlace tile, u32 shared)
      : params_(params), shared_(shared) {
    const int thread = static_cast<int>(threadIdx.x);
    unit_ = thread % D::kUnits;
    row_ = thread / D::kUnits;
    x_ = elements(params.x) + (static_cast<i64>(tile.m) * D::kTileM + row_) * params.x_stride + 8 * unit_;
    rows_left_ = params.rows - tile.m * D::kTileM - row_;
    // With a gate a tile has as many rows of W from its first half, the gates, as from its second.
    constexpr int kParts = D::kGate ? 2 : 1, kPartRows = D::kTileN / kParts;
    const i32 part_columns = params.columns / kParts;
    w_ = elements(params.w) + (static_cast<i64>(tile.n) * kPartRows + row_) * params.in + 8 * unit_;
    columns_left_ = part_columns - tile.n * kPartRows - row_;
    second_ = static_cast<i64>(part_columns - kPartRows) * params.in;
  }

  /// Columns of x and W from `k` on.
  __device__ __forceinline__ void load_x(int stage, i32 k) const {
    load<D::kTileM>(shared_ + stage * D::kStageBytes, k, [&](int row) {
      return row < rows_left_ ? x_ + row * params_.x_stride : nullptr;
    });
  }
  __device__ __forceinline__ void load_w(int stage, i32 k) const {
    load<D::kTileN>(shared_ + stage * D::kStageBytes + D::kXBytes, k, [&](int row) {
      constexpr int kHalf = D::kTileN / 2;
      const bool second = D::kGate && row_ + row >= kHalf;
      const unsigned short* from = w_ + static_cast<i64>(row) * params_.in + (second ? second_ : 0);
      return row - (second ? kHalf : 0) < columns_left_ ? from : nullptr;
    });
  }

 private:
  static __device__ __forceinline__ const unsigned short* elements(const void* matrix) {
    return static_cast<const unsigned short*>(matrix);
  }

  /// from(row): the thread's unit of the block's row `row` past its own first; null: outside.
  template <int kRows, class From>
  __device__ __forceinline__ void load(u32 to, i32 k, const From& from) const {
    constexpr int kRowsAtOnce = D::kThreads / D::kUnits;
    const bool inside = k + 8 * unit_ < params_.in;
#pragma unroll
    for (int first = 0; first < kRows; first += kRowsAtOnce) {
      if (kRows % kRowsAtOnce != 0 && first + row_ >= kRows) continue;
      const unsigned short* const source = from(first);
      const bool read = inside && source != nullptr;
      const int row = row_ + first;
      ptx::copy_16(to + row * D::kRowBytes + 16 * unit_of<D::kUnits>(row, unit_),
                   read ? static_cast<const void*>(source + k) : params_.x, read ? 16 : 0);
    }
  }

  const Sm80GemmParams& params_;
  const u32 shared_;
  int unit_, row_;
  const unsigned short *x_, *w_;
  i32 rows_left_, columns_left_;  // from the thread's first row on
  i64 second_;                    // from a gate's rows to those of what it multiplies
};

}  // namespace stof
