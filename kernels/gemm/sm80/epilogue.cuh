#pragma once
// From a warp's accumulators to memory, 16 rows at a time: steps in registers, results into shared
// memory of the warp's own, from there in whole lines to y.
//
// `Steps` (emitted by src/codegen/gemm_sm80.cc) calls the steps below in the order of the problem.

#include "elementwise/activation.cuh"
#include "elementwise/pack.cuh"
#include "gemm/sm80/config.cuh"
#include "gemm/tiles.cuh"
#include "gemm/value_steps.cuh"
#include "ptx/async_copy.cuh"

namespace stof {

template <class D>
class Sm80Epilogue {
  using Element = typename D::Element;

 public:
  /// `staging`: the block's, free for use.
  __device__ __forceinline__ Sm80Epilogue(const Sm80GemmParams& params, TilePlace tile,
                                          unsigned char* staging, u32 staging_address, int warp)
      : params_(params),
        staging_(staging + warp * D::kWarpM * D::kOutRowBytes),
        address_(staging_address + warp * D::kWarpM * D::kOutRowBytes),
        lane_(static_cast<int>(threadIdx.x) & 31),
        warp_n_(warp % D::kWarpsN),
        tile_n_(tile.n),
        row_(tile.m * D::kTileM + warp / D::kWarpsN * D::kWarpM),
        out_columns_(params.columns / (D::kGate ? 2 : 1)),
        out_column_((tile.n * D::kWarpsN + warp_n_) * D::kOutN) {}

  /// Sends for the residual of all slabs.
  __device__ __forceinline__ void begin() const {
    if constexpr (D::kResidual) {
      for_each_unit(0, D::kWarpM, [&](int row, int unit, bool inside) {
        ptx::copy_16(address_ + place(row, unit),
                     inside ? static_cast<const unsigned short*>(params_.residual) +
                                  (row_ + row) * params_.residual_stride + out_column_ + 8 * unit
                            : params_.residual,
                     inside ? 16 : 0);
      });
      ptx::commit_copies();
      ptx::wait_copies<0>();
      __syncwarp();
    }
  }

  __device__ __forceinline__ void finish(float (&values)[D::kValues], int slab) {
    slab_ = slab;
    if constexpr (D::kRowScale) {
#pragma unroll
      for (int r = 0; r < 2; ++r) scale_[r] = has_row(r) ? params_.row_scale[row(r)] : 0.0f;
    }
    Steps::apply(*this, values);
  }

  // The steps, on the warp's columns of 16 rows.

  template <int kCount>
  __device__ __forceinline__ void add_bias(float (&values)[kCount]) const {
    values::add_columns(values, [&](int j) { return bias_pair(j); });
  }
  template <int kCount, class Function>
  __device__ __forceinline__ void activate(float (&values)[kCount], const Function& function) const {
    values::activate(values, function);
  }
  template <int kCount, class Function>
  __device__ __forceinline__ void gate(const float (&values)[2 * kCount], float (&gated)[kCount],
                                       const Function& function) const {
    values::gate(values, gated, function);
  }
  template <int kCount>
  __device__ __forceinline__ void scale_rows(float (&values)[kCount]) const {
    values::scale_rows(values, scale_);
  }
  template <int kCount>
  __device__ __forceinline__ void add_residual(float (&values)[kCount]) const {
    u32 words[kCount / 2];
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) words[i] = *word(i / 2, i % 2);
    values::add_words<Element>(values, words);
    __syncwarp();  // read by all before results take its place
  }
  template <int kCount>
  __device__ __forceinline__ void count(const float (&values)[kCount]) const {
    float sum[2] = {}, squares[2] = {};
    values::count(values, out_columns_ - out_column_, sum, squares);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float all = values::sum_of_four(sum[r]), all_squares = values::sum_of_four(squares[r]);
      if ((lane_ & 3) == 0 && has_row(r))
        params_.statistics[(static_cast<i64>(row(r)) * params_.tiles_n + tile_n_) * D::kWarpsN +
                           warp_n_] = make_float2(all, all_squares);
    }
  }
  template <int kCount>
  __device__ __forceinline__ void store(const float (&values)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i)
      *word(i / 2, i % 2) = Element::pack(values[2 * i], values[2 * i + 1]);
    __syncwarp();
    for_each_unit(16 * slab_, 16, [&](int row, int unit, bool inside) {
      if (inside)
        *reinterpret_cast<Pack<8>*>(static_cast<unsigned short*>(params_.y) +
                                    (row_ + row) * params_.y_stride + out_column_ + 8 * unit) =
            *reinterpret_cast<const Pack<8>*>(staging_ + place(row, unit));
    });
  }

 private:
  static constexpr int kUnits = D::kOutRowBytes / 16;

  __device__ __forceinline__ i32 row(int r) const { return row_ + 16 * slab_ + lane_ / 4 + 8 * r; }
  __device__ __forceinline__ bool has_row(int r) const { return row(r) < params_.rows; }

  /// In the warp's staging: 16 bytes of a row.
  static __device__ __forceinline__ int place(int row, int unit) {
    return row * D::kOutRowBytes + 16 * unit_of<kUnits>(row, unit);
  }
  /// The lane's two results of the eight columns j, of row lane/4 or (r = 1) lane/4 + 8.
  __device__ __forceinline__ u32* word(int j, int r) const {
    return reinterpret_cast<u32*>(staging_ + place(16 * slab_ + lane_ / 4 + 8 * r, j) +
                                  4 * (lane_ & 3));
  }

  /// visit(row, unit, whether y has it) for the lane's units of `count` of the warp's rows.
  template <class Visit>
  __device__ __forceinline__ void for_each_unit(int first, int count, const Visit& visit) const {
#pragma unroll
    for (int at = 0; at < count * kUnits; at += 32) {
      const int index = at + lane_, row = first + index / kUnits, unit = index % kUnits;
      if (index < count * kUnits)
        visit(row, unit, row_ + row < params_.rows && out_column_ + 8 * unit < out_columns_);
    }
  }

  /// With a gate the first half of a warp's columns are gates, the others what they multiply.
  __device__ __forceinline__ float2 bias_pair(int j) const {
    constexpr int kHalf = D::kGroups / 2;
    const bool second = D::kGate && j >= kHalf;
    const i32 out = out_column_ + 8 * (second ? j - kHalf : j);
    if (out >= out_columns_) return make_float2(0, 0);
    const i32 column = out + (second ? out_columns_ : 0) + 2 * (lane_ & 3);
    if constexpr (D::kFloatBias)
      return *reinterpret_cast<const float2*>(static_cast<const float*>(params_.bias) + column);
    const u32 pair =
        *reinterpret_cast<const u32*>(static_cast<const unsigned short*>(params_.bias) + column);
    return make_float2(Element::low(pair), Element::high(pair));
  }

  const Sm80GemmParams& params_;
  unsigned char* const staging_;
  const u32 address_;
  const int lane_, warp_n_;
  const i32 tile_n_, row_, out_columns_, out_column_;
  int slab_;
  float scale_[2];
};

}  // namespace stof
