#pragma once
// Operators over whole rows in one kernel: a short program of steps, each done to a row that stays in
// registers as float32, from its first load to its last store. A row has one or more warps; without a
// norm no thread waits for another.

#include "elementwise/activation.cuh"
#include "elementwise/pack.cuh"
#include "elementwise/rotation.cuh"
#include "ptx/grid.cuh"
#include "ptx/types.cuh"

namespace stof {

/// Mirrored by src/codegen/row_program.h, which says what each does.
enum class RowStep {
  kAddRow,
  kAddTable,
  kAddVector,
  kMultiplyRow,
  kScale,
  kRelu,
  kGeluErf,
  kGeluTanh,
  kSilu,
  kLayerNorm,
  kRmsNorm,
  kRope,
  kStore,
  kStoreHeads,
  kStoreCache,
  kRmsScale,
  kStoreSquares,
  kHeadNorm,
};

/// `wide`: the vectors the step reads are float32, not elements.
struct RowInstruction {
  RowStep step;
  int operand;
  bool wide;
};

/// A matrix, a vector, a table or a list of ids.
struct RowOperand {
  const void* data;
  i64 stride;  // from row to row, in 16-bit elements; 0: the same row for all
};

/// How a row is made of heads; zeros where no step asks. Mirrored by src/codegen/row_program.h.
struct RowHeads {
  int dim;      // of a head: a power of two, 2 kVector .. 32 kVector
  int rotated;  // columns of queries and keys, which kRope turns and kHeadNorm norms
  int cached;   // the first column that goes to a cache: queries come before it
  int queries = 0;  // columns of queries, whose gamma kHeadNorm reads first
};

/// Mirrored by src/backend/cuda/rows/row_program.h.
struct RowProgramParams {
  static constexpr int kMaxOperands = 12;
  RowOperand operands[kMaxOperands];
  i64 rows;
  float epsilon;
};

/// Config: Element, kWidth (columns), kVector (8 or 4, divides kWidth), kWarps of a row, kRows of a
/// block (1 where kWarps > 1), kHeads, kCount and instruction(i).
template <class Config>
struct ProgramRow {
  using Element = typename Config::Element;
  static constexpr int kVector = Config::kVector;
  using Packed = Pack<kVector>;
  static constexpr int kPacks = Config::kWidth / kVector;
  static constexpr int kThreads = 32 * Config::kWarps;  // of a row
  static constexpr int kSteps = (kPacks + kThreads - 1) / kThreads;

  float values[kSteps][kVector];

  static __device__ __forceinline__ int thread() {
    return static_cast<int>(threadIdx.x) % kThreads;
  }
  static __device__ __forceinline__ i64 index() {
    return static_cast<i64>(blockIdx.x) * Config::kRows + static_cast<int>(threadIdx.x) / kThreads;
  }

  /// visit(step, pack index) for each pack of this thread.
  template <class Visit>
  static __device__ __forceinline__ void for_each_pack(const Visit& visit) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int at = step * kThreads + thread();
      if (kPacks % kThreads == 0 || at < kPacks) visit(step, at);
    }
  }

  /// value = function(value), for every column.
  template <class Function>
  __device__ __forceinline__ void map(const Function& function) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int i = 0; i < kVector; ++i) values[step][i] = function(values[step][i]);
  }

  /// Pack `at` of a row of elements.
  static __device__ __forceinline__ void load(const void* row, int at, float (&out)[kVector]) {
    unpack<Element>(static_cast<const Packed*>(row)[at], out);
  }

  /// The same of a row of float32 where `kWide`.
  template <bool kWide>
  static __device__ __forceinline__ void load_vector(const void* row, int at,
                                                     float (&out)[kVector]) {
    if constexpr (kWide) {
      const float4* const quads = static_cast<const float4*>(row) + at * (kVector / 4);
#pragma unroll
      for (int i = 0; i < kVector / 4; ++i) {
        const float4 quad = quads[i];
        out[4 * i] = quad.x;
        out[4 * i + 1] = quad.y;
        out[4 * i + 2] = quad.z;
        out[4 * i + 3] = quad.w;
      }
    } else {
      load(row, at, out);
    }
  }

  static __device__ __forceinline__ const void* row_of(const RowOperand& operand, i64 row) {
    return static_cast<const unsigned short*>(operand.data) + row * operand.stride;
  }

  template <bool kWide>
  __device__ __forceinline__ void add(const void* row) {
    for_each_pack([&](int step, int at) {
      float more[kVector];
      load_vector<kWide>(row, at, more);
#pragma unroll
      for (int i = 0; i < kVector; ++i) values[step][i] += more[i];
    });
  }

  __device__ __forceinline__ void multiply(const void* row) {
    for_each_pack([&](int step, int at) {
      float more[kVector];
      load(row, at, more);
#pragma unroll
      for (int i = 0; i < kVector; ++i) values[step][i] *= more[i];
    });
  }

  /// Queries and keys turn by their position. Both halves of a pair are in one warp, since a head is
  /// no wider than a warp's packs, and a thread's packs all have the same place in their heads.
  __device__ __forceinline__ void rope(float position, const float* frequencies) {
    constexpr int kHalf = Config::kHeads.dim / 2;
    static_assert(kHalf >= kVector && kHalf <= 16 * kVector && (kHalf & (kHalf - 1)) == 0);
    const int place = thread() * kVector % Config::kHeads.dim;
    float turn[kVector], cosine[kVector], sine[kVector];
    load_vector<true>(frequencies, place % kHalf / kVector, turn);
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      cos_sin(position * turn[i], cosine[i], sine[i]);
      if (place < kHalf) sine[i] = -sine[i];
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step * kThreads * kVector >= Config::kHeads.rotated) continue;
      const bool turns = (step * kThreads + thread()) * kVector < Config::kHeads.rotated;
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        const float mine = values[step][i];
        const float other = __shfl_xor_sync(0xffffffffu, mine, kHalf / kVector);
        if (turns) values[step][i] = mine * cosine[i] + other * sine[i];
      }
    }
  }

  /// Every head of queries and keys by x / sqrt(mean of its squares + epsilon) * its gamma. A head's
  /// packs are neighbours in one warp, and a thread's packs all have the same place in their heads.
  template <bool kWide>
  __device__ __forceinline__ void head_norm(const void* query_gamma, const void* key_gamma,
                                            float epsilon) {
    constexpr int kLanes = Config::kHeads.dim / kVector;  // of a head
    static_assert(kLanes >= 1 && kLanes <= 32 && (kLanes & (kLanes - 1)) == 0);
    const int place = thread() % kLanes;
    float of_queries[kVector], of_keys[kVector];
    load_vector<kWide>(query_gamma, place, of_queries);
    load_vector<kWide>(key_gamma, place, of_keys);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step * kThreads * kVector >= Config::kHeads.rotated) continue;
      float squares = 0;
#pragma unroll
      for (int i = 0; i < kVector; ++i) squares += values[step][i] * values[step][i];
#pragma unroll
      for (int offset = kLanes / 2; offset > 0; offset >>= 1)
        squares += __shfl_xor_sync(0xffffffffu, squares, offset);
      const float inverse = 1.0f / sqrtf(squares * (1.0f / Config::kHeads.dim) + epsilon);
      const int column = (step * kThreads + thread()) * kVector;
      if (column >= Config::kHeads.rotated) continue;  // values stay
#pragma unroll
      for (int i = 0; i < kVector; ++i)
        values[step][i] *= inverse * (column < Config::kHeads.queries ? of_queries[i] : of_keys[i]);
    }
  }

  /// Head after head, each a matrix of `rows` rows: [heads, rows, dim].
  __device__ __forceinline__ void store_heads(void* out, i64 row, i64 rows) const {
    for_each_pack([&](int step, int at) {
      constexpr int kPacksOfHead = Config::kHeads.dim / kVector;
      const i64 to = (at / kPacksOfHead * rows + row) * kPacksOfHead + at % kPacksOfHead;
      static_cast<Packed*>(out)[to] = pack<Element>(values[step]);
    });
  }

  /// The columns from `cached` on, into a cache's row.
  __device__ __forceinline__ void store_cached(void* row) const {
    constexpr int kFirst = Config::kHeads.cached / kVector;
    for_each_pack([&](int step, int at) {
      if (at >= kFirst) static_cast<Packed*>(row)[at - kFirst] = pack<Element>(values[step]);
    });
  }

  static constexpr int kSquaredColumns = 32;  // of a sum of squares

  /// x / sqrt(mean of squares + epsilon): `count` sums of them in `row`, which every warp adds up.
  __device__ __forceinline__ void rms_scale(const float* row, int count, float epsilon) {
    float squares = 0;
    for (int i = static_cast<int>(threadIdx.x) % 32; i < count; i += 32) squares += row[i];
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1)
      squares += __shfl_xor_sync(0xffffffffu, squares, offset);
    const float mean = squares / static_cast<float>(count * kSquaredColumns);
    const float inverse = 1.0f / sqrtf(mean + epsilon);
    map([&](float x) { return x * inverse; });
  }

  /// Neighbours of one warp have the columns of a sum.
  __device__ __forceinline__ void store_squares(float* row) const {
    constexpr int kLanes = kSquaredColumns / kVector;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      float squares = 0;
#pragma unroll
      for (int i = 0; i < kVector; ++i) squares += values[step][i] * values[step][i];
#pragma unroll
      for (int offset = kLanes / 2; offset > 0; offset >>= 1)
        squares += __shfl_xor_sync(0xffffffffu, squares, offset);
      const int at = step * kThreads + thread();
      if (at < kPacks && at % kLanes == 0) row[at / kLanes] = squares;
    }
  }

  __device__ __forceinline__ void store(void* row) const {
    for_each_pack([&](int step, int at) {
      static_cast<Packed*>(row)[at] = pack<Element>(values[step]);
    });
  }

  /// Sum over the row, the same in every thread of it.
  static __device__ __forceinline__ float sum_over_row(float mine) {
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1)
      mine += __shfl_xor_sync(0xffffffffu, mine, offset);
    if constexpr (Config::kWarps > 1) {
      __shared__ float partial[Config::kWarps];
      __syncthreads();  // the values of an earlier sum have been read
      if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = mine;
      __syncthreads();
      mine = 0;
#pragma unroll
      for (int warp = 0; warp < Config::kWarps; ++warp) mine += partial[warp];
    }
    return mine;
  }

  /// Sum of (value - centre)^2 over the row. The packs of no column count nothing.
  __device__ __forceinline__ float squares_around(float centre) const {
    float squares = 0;
    for_each_pack([&](int step, int) {
#pragma unroll
      for (int i = 0; i < kVector; ++i)
        squares += (values[step][i] - centre) * (values[step][i] - centre);
    });
    return sum_over_row(squares);
  }

  /// (x - mean) / sqrt(variance + epsilon) * gamma + beta; the variance is that of the centred values,
  /// so that a large mean does not cancel.
  template <bool kWide>
  __device__ __forceinline__ void layer_norm(const void* gamma, const void* beta, float epsilon) {
    float sum = 0;
    for_each_pack([&](int step, int) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) sum += values[step][i];
    });
    const float mean = sum_over_row(sum) * (1.0f / Config::kWidth);
    const float variance = squares_around(mean) * (1.0f / Config::kWidth);
    const float inverse = 1.0f / sqrtf(variance + epsilon);
    for_each_pack([&](int step, int at) {
      float scale[kVector], shift[kVector];
      load_vector<kWide>(gamma, at, scale);
      load_vector<kWide>(beta, at, shift);
#pragma unroll
      for (int i = 0; i < kVector; ++i)
        values[step][i] = (values[step][i] - mean) * inverse * scale[i] + shift[i];
    });
  }

  /// x / sqrt(mean of squares + epsilon) * gamma.
  template <bool kWide>
  __device__ __forceinline__ void rms_norm(const void* gamma, float epsilon) {
    const float inverse = 1.0f / sqrtf(squares_around(0) * (1.0f / Config::kWidth) + epsilon);
    for_each_pack([&](int step, int at) {
      float scale[kVector];
      load_vector<kWide>(gamma, at, scale);
#pragma unroll
      for (int i = 0; i < kVector; ++i) values[step][i] *= inverse * scale[i];
    });
  }
};

namespace row_program {

/// The vectors' lines, into this SM's cache; nothing that the previous kernel may write.
template <class Config, int kAt>
__device__ __forceinline__ void touch_weights(const RowProgramParams& params) {
  if constexpr (kAt < Config::kCount) {
    constexpr RowInstruction now = Config::instruction(kAt);
    constexpr bool kOfHeads = now.step == RowStep::kHeadNorm;
    constexpr int kVectors = now.step == RowStep::kLayerNorm || kOfHeads                        ? 2
                             : now.step == RowStep::kAddVector || now.step == RowStep::kRmsNorm ? 1
                                                                                                : 0;
    constexpr int kColumns = kOfHeads ? Config::kHeads.dim : Config::kWidth;
    constexpr int kBytes = kColumns * (now.wide ? 4 : 2), kLine = 128;
#pragma unroll
    for (int vector = 0; vector < kVectors; ++vector)
      for (int at = static_cast<int>(threadIdx.x) * kLine; at < kBytes;
           at += 32 * Config::kWarps * Config::kRows * kLine)
        ptx::touch_global(static_cast<const char*>(params.operands[now.operand + vector].data) +
                          at);
    touch_weights<Config, kAt + 1>(params);
  }
}

template <class Config, int kAt>
__device__ __forceinline__ void run_steps(ProgramRow<Config>& row, const RowProgramParams& params,
                                          i64 index) {
  if constexpr (kAt < Config::kCount) {
    using R = ProgramRow<Config>;
    constexpr RowInstruction now = Config::instruction(kAt);
    constexpr RowStep kStep = now.step;
    const RowOperand& operand = params.operands[now.operand];
    if constexpr (kStep == RowStep::kAddRow) {
      row.template add<false>(R::row_of(operand, index));
    } else if constexpr (kStep == RowStep::kAddTable) {
      const i32 id = static_cast<const i32*>(operand.data)[index];
      row.template add<false>(R::row_of(params.operands[now.operand + 1], id));
    } else if constexpr (kStep == RowStep::kAddVector) {
      row.template add<now.wide>(operand.data);
    } else if constexpr (kStep == RowStep::kMultiplyRow) {
      row.multiply(R::row_of(operand, index));
    } else if constexpr (kStep == RowStep::kScale) {
      const u32 word = *static_cast<const unsigned short*>(R::row_of(operand, index));
      const float factor = R::Element::low(word);
      row.map([&](float x) { return x * factor; });
    } else if constexpr (kStep == RowStep::kRelu) {
      row.map([](float x) { return relu(x); });
    } else if constexpr (kStep == RowStep::kGeluErf) {
      row.map([](float x) { return gelu_erf(x); });
    } else if constexpr (kStep == RowStep::kGeluTanh) {
      row.map([](float x) { return gelu_tanh(x); });
    } else if constexpr (kStep == RowStep::kSilu) {
      row.map([](float x) { return silu(x); });
    } else if constexpr (kStep == RowStep::kLayerNorm) {
      row.template layer_norm<now.wide>(operand.data, params.operands[now.operand + 1].data,
                                        params.epsilon);
    } else if constexpr (kStep == RowStep::kRmsNorm) {
      row.template rms_norm<now.wide>(operand.data, params.epsilon);
    } else if constexpr (kStep == RowStep::kHeadNorm) {
      row.template head_norm<now.wide>(operand.data, params.operands[now.operand + 1].data,
                                       params.epsilon);
    } else if constexpr (kStep == RowStep::kRope) {
      const float position =
          static_cast<float>(static_cast<const i32*>(operand.data)[index]);
      row.rope(position, static_cast<const float*>(params.operands[now.operand + 1].data));
    } else if constexpr (kStep == RowStep::kRmsScale) {
      row.rms_scale(static_cast<const float*>(R::row_of(operand, index)),
                    static_cast<int>(operand.stride / 2), params.epsilon);
    } else if constexpr (kStep == RowStep::kStoreSquares) {
      row.store_squares(static_cast<float*>(const_cast<void*>(R::row_of(operand, index))));
    } else if constexpr (kStep == RowStep::kStoreHeads) {
      row.store_heads(const_cast<void*>(operand.data), index, params.rows);
    } else if constexpr (kStep == RowStep::kStoreCache) {
      const i32 slot = static_cast<const i32*>(operand.data)[index];
      if (slot >= 0)
        row.store_cached(const_cast<void*>(R::row_of(params.operands[now.operand + 1], slot)));
    } else {
      static_assert(kStep == RowStep::kStore);
      row.store(const_cast<void*>(R::row_of(operand, index)));
    }
    run_steps<Config, kAt + 1>(row, params, index);
  }
}

}  // namespace row_program

/// Starts from a row of zeros. Early start: only weights are read before the previous kernel has ended.
/// Last rows first: of a matrix larger than the cache, those that the kernel before wrote last are still
/// there, and the kernel after begins with those written last here.
template <class Config>
__device__ __forceinline__ void run_row_program(const RowProgramParams& params) {
  using R = ProgramRow<Config>;
  row_program::touch_weights<Config, 0>(params);
  ptx::wait_for_previous_kernel();
  ptx::allow_next_kernel();
  const i64 index = params.rows - 1 - R::index();
  if (index < 0) return;
  R row;
  row.map([](float) { return 0.0f; });
  row_program::run_steps<Config, 0>(row, params, index);
}

}  // namespace stof
