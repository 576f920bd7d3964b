#pragma once
// From a warp's accumulators of 16 rows to memory: a chunk of columns at a time through a staging
// buffer of the warp's own, which the copy engine stores, and fills with the residual before.
//
// `Steps` (emitted by src/codegen/gemm.cc) calls the steps below in the order of the problem.

#include "elementwise/activation.cuh"
#include "elementwise/rotation.cuh"
#include "gemm/sm90/config.cuh"
#include "gemm/sm90/producer.cuh"
#include "gemm/sm90/row_norm.cuh"
#include "gemm/value_steps.cuh"
#include "ptx/barrier.cuh"
#include "ptx/copy.cuh"
#include "ptx/matrix.cuh"

namespace stof {

template <class D>
class GemmEpilogue {
  using Element = typename D::Element;

 public:
  __device__ GemmEpilogue(const GemmParams& params, const GemmMaps& maps, unsigned char* shared, int warp)
      : params_(params),
        maps_(maps),
        shared_(shared),
        staging_(ptx::shared_address(shared) + D::kStagingOffset + warp * D::kRing * D::kStagingBytes),
        barriers_{ptx::shared_address(shared) + D::kBarrierOffset},
        warp_(warp),
        lane_(static_cast<int>(threadIdx.x) & 31) {}

  /// The tile's place; the residual's first chunks are sent for. `row`: the warp's first of slab 0.
  __device__ __forceinline__ void begin(TilePlace tile, i32 row, u32 count) {
    tile_ = tile;
    row_ = row;
    count_ = count;
    if constexpr (D::kResidual) {
      if (lane_ == 0) {
        ptx::wait_stores_read<0>();
#pragma unroll
        for (int chunk = 0; chunk < D::kRing; ++chunk) fetch_residual(chunk);
      }
      __syncwarp();
    }
    if constexpr (D::kRmsScale) read_squares();
  }

  /// Slab `slab`: the steps of the problem on every chunk, then what is kept a row. Stored chunk by
  /// chunk; where a norm follows, left in the accumulators. The tile's bias lies in `slot`.
  __device__ __forceinline__ void finish(float (&accumulators)[D::kAccumulators], int slab, int slot) {
    slot_ = slot;
    const i32 row = row_ + 64 * slab + lane_ / 4;
    if constexpr (D::kRowScale) {
#pragma unroll
      for (int r = 0; r < 2; ++r)
        scale_[r] = row + 8 * r < params_.rows ? params_.row_scale[row + 8 * r] : 0.0f;
    }
    if constexpr (D::kRmsScale) scale_[0] = inverse_[slab][0], scale_[1] = inverse_[slab][1];
    if constexpr (D::kStatistics) sum_[0] = sum_[1] = squares_[0] = squares_[1] = 0.0f;
    if constexpr (D::kRopeDim > 0) rotate(accumulators, row);
#pragma unroll
    for (int chunk = 0; chunk < D::kChunks; ++chunk) {
      chunk_ = chunk;
      place_ = slab * D::kChunks + chunk;
      float values[D::kChunkValues];
#pragma unroll
      for (int i = 0; i < D::kChunkValues; ++i) values[i] = accumulators[tile_column(i) / 2 + i % 4];
      Steps::apply(*this, values);
      if constexpr (D::kNorm) {
#pragma unroll
        for (int i = 0; i < D::kChunkValues; ++i) accumulators[chunk * D::kChunkValues + i] = values[i];
      }
    }
    if constexpr (D::kStatistics) store_statistics(row);
  }

  /// Stores the slab's rows normalised.
  __device__ __forceinline__ void store_normal(const float (&accumulators)[D::kAccumulators], int slab,
                                               const RowNorm<D>& norm) {
#pragma unroll
    for (int chunk = 0; chunk < D::kChunks; ++chunk) {
      chunk_ = chunk;
      place_ = slab * D::kChunks + chunk;
      float values[D::kChunkValues];
#pragma unroll
      for (int j = 0; j < D::kChunkValues / 4; ++j) {
        const int column = tile_column(4 * j) + 2 * (lane_ & 3);
        const float2 gamma = vector_pair<D::kFloatNorm>(D::kGammaOffset, column);
        const float2 beta =
            D::kCenter ? vector_pair<D::kFloatNorm>(D::kBetaOffset, column) : make_float2(0, 0);
#pragma unroll
        for (int i = 4 * j; i < 4 * j + 4; ++i) {
          const float normal = norm.normal(accumulators[chunk * D::kChunkValues + i], slab, i >> 1 & 1);
          values[i] = i & 1 ? fmaf(normal, gamma.y, beta.y) : fmaf(normal, gamma.x, beta.x);
        }
      }
      store(values);
    }
  }

  // The steps, on a chunk's values.

  template <int kCount>
  __device__ __forceinline__ void add_bias(float (&values)[kCount]) const {
    values::add_columns(values, [&](int j) {
      return bias_pair(tile_column(4 * j) + 2 * (lane_ & 3));
    });
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

  /// rotate() has seen to it, on whole heads, which chunks need not have.
  template <int kCount>
  __device__ __forceinline__ void rotated(const float (&)[kCount]) const {}

  template <int kCount>
  __device__ __forceinline__ void scale_rows(float (&values)[kCount]) const {
    values::scale_rows(values, scale_);
  }

  template <int kCount>
  __device__ __forceinline__ void add_residual(float (&values)[kCount]) {
    constexpr int kUses = D::kTileChunks / D::kRing;  // of a buffer in a tile
    const int buffer = place_ % D::kRing;
    ptx::wait(barriers_.residual(warp_, buffer), (count_ * kUses + place_ / D::kRing) & 1);
    __syncwarp();  // lanes leave the wait one by one; matrices are loaded by all at once
    u32 words[kCount / 2];
#pragma unroll
    for (int pair = 0; pair < kCount / 8; ++pair)
      ptx::load_matrices(&words[4 * pair], matrix_row(buffer, pair));
    values::add_words<Element>(values, words);
    if constexpr (D::kNorm) {  // nothing is stored from this buffer yet
      ptx::fence_copies();     // every lane has its part before more is copied there
      __syncwarp();
      if (lane_ == 0 && place_ + D::kRing < D::kTileChunks) fetch_residual(place_ + D::kRing);
      __syncwarp();
    }
  }

  template <int kCount>
  __device__ __forceinline__ void count(const float (&values)[kCount]) {
    // Columns past the matrix hold zeros and an activation of the bias, which is not to be counted.
    const i32 left = params_.columns / (D::kGate ? 2 : 1) - tile_.n * D::kOutN - chunk_ * D::kChunk;
    values::count(values, left, sum_, squares_);
  }

  /// Sums of squares of the chunk's columns, 32 each; past the matrix there are none.
  template <int kCount>
  __device__ __forceinline__ void store_squares(const float (&values)[kCount]) const {
    constexpr int kSums = kCount / 16;  // of a row
    static_assert(kSums == 1 || kSums == 2);
#pragma unroll
    for (int sum = 0; sum < kSums; ++sum) {
      float squares[2] = {0.0f, 0.0f};
#pragma unroll
      for (int i = 16 * sum; i < 16 * sum + 16; ++i) squares[i >> 1 & 1] += values[i] * values[i];
      const i32 column = out_column(chunk_) + 32 * sum;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float total = values::sum_of_four(squares[r]);
        const i32 row = slab_row() + lane_ / 4 + 8 * r;
        if ((lane_ & 3) == 2 * sum + r && row < params_.rows && column < params_.columns)
          params_.row_squares[static_cast<i64>(row) * (params_.columns / 32) + column / 32] = total;
      }
    }
  }

  template <int kCount>
  __device__ __forceinline__ void store(const float (&values)[kCount]) {
    const int buffer = place_ % D::kRing;
    if constexpr (!D::kResidual || D::kNorm) {
      if (lane_ == 0) ptx::wait_stores_read<D::kRing - 1>();
      __syncwarp();
    }
#pragma unroll
    for (int pair = 0; pair < kCount / 8; ++pair) {
      const float* v = &values[8 * pair];
      ptx::store_matrices(matrix_row(buffer, pair), Element::pack(v[0], v[1]),
                          Element::pack(v[2], v[3]), Element::pack(v[4], v[5]),
                          Element::pack(v[6], v[7]));
    }
    ptx::fence_copies();
    __syncwarp();
    if (lane_ == 0) {
      const u32 from = staging_ + buffer * D::kStagingBytes;
      const i32 column = out_column(chunk_);
      if constexpr (D::kStoreDim > 0)
        ptx::store_matrix_box(from, maps_.y, column % D::kStoreDim, slab_row(), column / D::kStoreDim);
      else
        ptx::store_matrix_box(from, maps_.y, column, slab_row());
      ptx::commit_stores();
      refill_residual();
    }
    __syncwarp();
  }

 private:
  /// What rows of the tile are scaled by. Four lanes share a row's sums, in a fixed order.
  __device__ __forceinline__ void read_squares() {
    const i32 pairs = params_.num_squares / 2;
    const float width = static_cast<float>(32 * params_.num_squares);
#pragma unroll
    for (int slab = 0; slab < D::kSlabs; ++slab)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const i32 row = row_ + 64 * slab + lane_ / 4 + 8 * r;
        float sum = 0.0f;
        if (row < params_.rows) {
          const float2* const sums =
              reinterpret_cast<const float2*>(params_.squares) + static_cast<i64>(row) * pairs;
          for (i32 pair = lane_ & 3; pair < pairs; pair += 4) {
            const float2 two = sums[pair];
            sum += two.x + two.y;
          }
        }
        inverse_[slab][r] = 1.0f / sqrtf(values::sum_of_four(sum) / width + params_.epsilon);
      }
  }

  /// Scales, if asked for, adds the bias, if any, and turns the heads of queries and keys by the positions of rows `row` and
  /// row + 8. All heads of a tile turn by the same angles.
  __device__ __forceinline__ void rotate(float (&accumulators)[D::kAccumulators], i32 row) const {
    constexpr int kDim = D::kRopeDim, kHalf = kDim / 2;
    float position[2];
#pragma unroll
    for (int r = 0; r < 2; ++r)
      position[r] = row + 8 * r < params_.rows ? static_cast<float>(params_.positions[row + 8 * r]) : 0.0f;
#pragma unroll
    for (int eight = 0; eight < kHalf / 8; ++eight) {
      const int column = 8 * eight + 2 * (lane_ & 3);
      const float2 turn = *reinterpret_cast<const float2*>(params_.frequencies + column);
      float cosine[4], sine[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        cos_sin(position[i >> 1] * (i & 1 ? turn.y : turn.x), cosine[i], sine[i]);
#pragma unroll
      for (int head = 0; head < D::kTileN / kDim; ++head) {
        float* const low = accumulators + (head * kDim + 8 * eight) / 2;
        float* const high = low + kHalf / 2;
        if constexpr (D::kRmsScale) {
#pragma unroll
          for (int i = 0; i < 4; ++i) low[i] *= scale_[i >> 1], high[i] *= scale_[i >> 1];
        }
        if constexpr (D::kBias) {
          const float2 first = bias_pair(head * kDim + column), second = bias_pair(head * kDim + kHalf + column);
#pragma unroll
          for (int i = 0; i < 4; ++i)
            low[i] += i & 1 ? first.y : first.x, high[i] += i & 1 ? second.y : second.x;
        }
        if (tile_.n * D::kTileN + head * kDim >= params_.rotated) continue;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float a = low[i], b = high[i];
          low[i] = a * cosine[i] - b * sine[i];
          high[i] = b * cosine[i] + a * sine[i];
        }
      }
    }
  }

  /// First column of the tile's eight that the chunk's values 4 (i / 4) to + 3 are of. With a gate
  /// the first half of a chunk's values are of the tile's first half, the others of its second.
  __device__ __forceinline__ int tile_column(int i) const {
    if constexpr (D::kGate) {
      constexpr int kHalf = D::kChunkValues / 2;
      return (i < kHalf ? 0 : D::kOutN) + chunk_ * D::kChunk + i % kHalf / 4 * 8;
    } else {
      return chunk_ * D::kChunk + i / 4 * 8;
    }
  }
  __device__ __forceinline__ float2 bias_pair(int column) const {
    return vector_pair<D::kFloatBias>(0, column);
  }
  /// Of the vector at that offset, float32 where `kFloat`: the tile's column and the next.
  template <bool kFloat>
  __device__ __forceinline__ float2 vector_pair(int offset, int column) const {
    const unsigned char* values = shared_ + D::kBiasOffset + slot_ * D::kBiasBytes + offset;
    if constexpr (kFloat) return reinterpret_cast<const float2*>(values)[column / 2];
    const u32 pair = reinterpret_cast<const u32*>(values)[column / 2];
    return make_float2(Element::low(pair), Element::high(pair));
  }
  __device__ __forceinline__ i32 out_column(int chunk) const {
    return tile_.n * D::kOutN + chunk * D::kChunk;
  }
  __device__ __forceinline__ i32 slab_row() const { return row_ + 64 * (place_ / D::kChunks); }

  /// Sends for the residual of the tile's chunk `place`; its buffer is free.
  __device__ __forceinline__ void fetch_residual(int place) {
    const int buffer = place % D::kRing;
    const u32 barrier = barriers_.residual(warp_, buffer);
    ptx::arrive_expect_bytes(barrier, D::kStagingBytes);
    ptx::load_matrix_box(staging_ + buffer * D::kStagingBytes, maps_.residual, barrier,
                         out_column(place % D::kChunks), row_ + 64 * (place / D::kChunks));
  }

  /// Once the chunk before this one has left its buffer, that takes its next residual.
  __device__ __forceinline__ void refill_residual() {
    if constexpr (D::kResidual && !D::kNorm) {
      constexpr int kLag = D::kRing > 1 ? 1 : 0;
      const int next = place_ - kLag + D::kRing;
      if (place_ < kLag || next >= D::kTileChunks) return;
      ptx::wait_stores_read<kLag>();
      fetch_residual(next);
    }
  }

  /// The lane's row of the matrices of 16 columns, `pair` of a chunk, for load_ and
  /// store_matrices(): upper left, lower left, upper right, lower right. Rows of 128, 64 and 32 bytes
  /// are swizzled as the copy engine has it; others are not.
  __device__ __forceinline__ u32 matrix_row(int buffer, int pair) const {
    constexpr int kRowBytes = 2 * D::kChunk;
    const int row = lane_ & 15;
    int piece = 2 * pair + (lane_ >> 4);  // of 16 bytes
    if constexpr (kRowBytes == 128) piece ^= row & 7;
    if constexpr (kRowBytes == 64) piece ^= row >> 1 & 3;
    if constexpr (kRowBytes == 32) piece ^= row >> 2 & 1;
    return staging_ + buffer * D::kStagingBytes + row * kRowBytes + piece * 16;
  }

  /// Of rows `row` and row + 8.
  __device__ __forceinline__ void store_statistics(i32 row) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float sum = values::sum_of_four(sum_[r]), squares = values::sum_of_four(squares_[r]);
      if ((lane_ & 3) == 0 && row + 8 * r < params_.rows)
        params_.statistics[static_cast<i64>(row + 8 * r) * params_.tiles_n + tile_.n] =
            make_float2(sum, squares);
    }
  }

  const GemmParams& params_;
  const GemmMaps& maps_;
  unsigned char* shared_;
  const u32 staging_;
  const GemmBarriers<D> barriers_;
  const int warp_, lane_;
  TilePlace tile_;
  i32 row_;
  u32 count_;  // tiles of this warp before this one
  int slot_;
  int chunk_;  // of the slab
  int place_;  // of the tile's chunks
  float scale_[2];
  float inverse_[D::kSlabs][2];  // with Config::kRmsScale
  float sum_[2], squares_[2];
};

}  // namespace stof
