#pragma once
// The rows of x that a block multiplies, in shared memory: as they are, or normalised on the way.

#include "elementwise/pack.cuh"
#include "gemm/skinny/config.cuh"
#include "ptx/async_copy.cuh"

namespace stof {

template <class D>
class SkinnyRows {
  using Element = typename D::Element;
  using Unit = Pack<8>;  // 16 bytes

 public:
  /// `shared`: of up to kTileM rows, kPitch bytes apart, columns from `begin` on, kSpan of them;
  /// columns that the matrix does not have are zero. Rows that it does not have stay as they are:
  /// sums of each row are its own, and theirs are not stored.
  __device__ __forceinline__ SkinnyRows(const SkinnyGemmParams& params, unsigned char* shared,
                                        u32 address, int begin)
      : params_(params), shared_(shared), address_(address), begin_(begin) {}

  /// Sends for what no kernel before makes: gamma and beta of the block's part, and what the epilogue
  /// reads of each row. There when load() returns.
  __device__ __forceinline__ void prefetch() const {
    if constexpr (D::kNorm) {
      prefetch_vector(params_.gamma, D::kGammaOffset);
      if constexpr (D::kCenter) prefetch_vector(params_.beta, D::kBetaOffset);
    }
    if constexpr (D::kRopeDim > 0) {
      prefetch_words(params_.positions, D::kPositionOffset, params_.rows);
      prefetch_words(params_.frequencies, D::kFrequencyOffset, D::kRopeDim / 2);
    }
    if constexpr (D::kCache) prefetch_words(params_.slots, D::kSlotOffset, params_.rows);
    ptx::commit_copies();
  }

  /// After prefetch(), once the kernel before has ended.
  __device__ __forceinline__ void load() const {
    if constexpr (D::kNorm) {
      normalise();
    } else {
      for (int at = static_cast<int>(threadIdx.x); at < params_.rows * kUnits; at += D::kThreads) {
        const int row = at / kUnits, column = begin_ + 8 * (at % kUnits);
        const bool inside = column < D::kIn;
        ptx::copy_16(address_ + row * D::kPitch + 16 * (at % kUnits),
                     inside ? source(row) + column : params_.x, inside ? 16 : 0);
      }
      ptx::commit_copies();
      ptx::wait_copies<0>();
    }
    __syncthreads();
  }

 private:
  static constexpr int kSpan = D::kChunks * D::kChunk, kUnits = kSpan / 8;

  __device__ __forceinline__ const unsigned short* source(int row) const {
    return static_cast<const unsigned short*>(params_.x) + row * params_.x_stride;
  }

  __device__ __forceinline__ void prefetch_words(const void* words, int offset, int count) const {
    for (int at = static_cast<int>(threadIdx.x); at < count; at += D::kThreads)
      ptx::copy_4(address_ + offset + 4 * at, static_cast<const u32*>(words) + at, 4);
  }
  __device__ __forceinline__ void prefetch_vector(const void* vector, int offset) const {
    constexpr int kBytes = D::kFloatGamma ? 4 : 2, kInPiece = 16 / kBytes;  // numbers
    const unsigned char* const from = static_cast<const unsigned char*>(vector) + begin_ * kBytes;
    for (int at = static_cast<int>(threadIdx.x); at < D::kVectorBytes / 16; at += D::kThreads) {
      const bool inside = begin_ + kInPiece * at < D::kIn;
      ptx::copy_16(address_ + offset + 16 * at, inside ? from + 16 * at : vector, inside ? 16 : 0);
    }
  }

  /// Unit number `at` of the block's part of gamma or beta.
  __device__ __forceinline__ void load_vector(int offset, int at, float (&out)[8]) const {
    if constexpr (D::kFloatGamma) {
      const float4* const quads = reinterpret_cast<const float4*>(shared_ + offset) + 2 * at;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float4 quad = quads[i];
        out[4 * i] = quad.x, out[4 * i + 1] = quad.y, out[4 * i + 2] = quad.z, out[4 * i + 3] = quad.w;
      }
    } else {
      unpack<Element>(reinterpret_cast<const Unit*>(shared_ + offset)[at], out);
    }
  }

  /// Warps that share a row, number `lane` of their lanes, which row: as many rows as there are, or
  /// as there are warps, are worked on at once. A warp that is left over has none.
  struct Team {
    int warps, lane, row, rows_at_once;
    __device__ explicit Team(int rows) {
      rows_at_once = min(rows, D::kWarps);
      warps = D::kWarps / rows_at_once;
      row = static_cast<int>(threadIdx.x) / 32 / warps;
      lane = static_cast<int>(threadIdx.x) - row * warps * 32;
    }
  };

  /// function(value) of every element of the row, summed over the team's lanes; all threads of the
  /// block together. `sums`: a float a warp.
  template <class Function>
  __device__ __forceinline__ float sum_over_row(const Team& team, const unsigned short* row,
                                                bool has_row, float* sums,
                                                const Function& function) const {
    float sum = 0;
#pragma unroll 4
    for (int column = 8 * team.lane; column < (has_row ? D::kIn : 0); column += 256 * team.warps) {
      float values[8];
      unpack<Element>(*reinterpret_cast<const Unit*>(row + column), values);
#pragma unroll
      for (int k = 0; k < 8; ++k) sum += function(values[k]);
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) sum += __shfl_xor_sync(~0u, sum, offset);
    if (team.warps == 1) return sum;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if ((threadIdx.x & 31) == 0) sums[warp] = sum;
    __syncthreads();
    const int first = team.row * team.warps;
    sum = 0;
    for (int i = 0; has_row && i < team.warps; ++i) sum += sums[first + i];
    return sum;
  }

  /// Mean and scale are of all of K, what is kept of this block's part. The row is read anew each
  /// time, from the first-level cache: registers are taken by weights that are under way. The
  /// variance is that of centred values, so that a large mean does not cancel.
  __device__ __forceinline__ void normalise() const {
    const int rows = params_.rows;
    const Team team(rows);
    float* const sums = reinterpret_cast<float*>(shared_ + D::kNormOffset);
    for (int first = 0; first < rows; first += team.rows_at_once) {
      const int row = first + team.row;
      const bool has_row = row < rows && team.row < team.rows_at_once;
      const unsigned short* const x = source(has_row ? row : 0);
      float mean = 0;
      if constexpr (D::kCenter)
        mean = sum_over_row(team, x, has_row, sums, [](float v) { return v; }) * (1.0f / D::kIn);
      const float squares = sum_over_row(team, x, has_row, sums + D::kWarps,
                                         [&](float v) { return (v - mean) * (v - mean); });
      const float scale = 1.0f / sqrtf(squares * (1.0f / D::kIn) + params_.epsilon);
      if (first == 0) {  // gamma and beta, of all threads' copies
        ptx::wait_copies<0>();
        __syncthreads();
      }
      if (has_row) store_normal(team, row, x, mean, scale);
    }
  }

  __device__ __forceinline__ void store_normal(const Team& team, int row, const unsigned short* x,
                                               float mean, float scale) const {
#pragma unroll 2
    for (int unit = team.lane; unit < kUnits; unit += 32 * team.warps) {
      const int column = begin_ + 8 * unit;
      Unit normal{};
      if (column < D::kIn) {
        float values[8], gamma[8], beta[8] = {};
        unpack<Element>(*reinterpret_cast<const Unit*>(x + column), values);
        load_vector(D::kGammaOffset, unit, gamma);
        if constexpr (D::kCenter) load_vector(D::kBetaOffset, unit, beta);
#pragma unroll
        for (int k = 0; k < 8; ++k) values[k] = fmaf((values[k] - mean) * scale, gamma[k], beta[k]);
        normal = pack<Element>(values);
      }
      *reinterpret_cast<Unit*>(shared_ + row * D::kPitch + 16 * unit) = normal;
    }
  }

  const SkinnyGemmParams& params_;
  unsigned char* const shared_;
  const u32 address_;
  const int begin_;
};

}  // namespace stof
