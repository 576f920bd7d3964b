#pragma once
// Merges the parts of sequences that several blocks walked; one block a row, parts in block order.

#include "attention/decode/finish.cuh"
#include "ptx/grid.cuh"

namespace stof::decode {

constexpr int kCombineThreads = 128;

/// Largest grid of the decode kernel, hence most parts of a sequence.
constexpr int kMaxBlocks = 4096;

/// What a block keeps in shared memory.
template <class D>
struct CombineShared {
  static constexpr int kVectors = (D::kHeadDimV + 127) / 128;  // of four columns, a lane
  float4 outputs[kCombineThreads / 32][32 * kVectors];         // of each warp
  float weights[kMaxBlocks];                                   // of the parts
  float scratch[4];
};

template <bool kMax>
__device__ __forceinline__ float reduce_block(float value, float* scratch) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const float other = __shfl_xor_sync(~0u, value, offset);
    value = kMax ? fmaxf(value, other) : value + other;
  }
  __syncthreads();
  if ((threadIdx.x & 31) == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  return kMax ? fmaxf(fmaxf(scratch[0], scratch[1]), fmaxf(scratch[2], scratch[3]))
              : (scratch[0] + scratch[1]) + (scratch[2] + scratch[3]);
}

template <class D>
__device__ __forceinline__ void combine_kernel(const DecodeParams& params) {
  extern __shared__ __align__(16) unsigned char shared[];
  CombineShared<D>& own = *reinterpret_cast<CombineShared<D>*>(shared);
  if constexpr (D::kEarlyStart) {
    ptx::wait_for_previous_kernel();
    ptx::allow_next_kernel();
  }
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread & 31;
  const i32 head_index = static_cast<i32>(blockIdx.x) / params.num_rows;  // batch * heads_kv + head
  const i32 packed = static_cast<i32>(blockIdx.x) - head_index * params.num_rows;
  const i32 row_block = packed / D::kRows;

  const Sequences<D> sequences(params);
  const Sequence s = sequences.at(head_index * params.row_blocks + row_block);
  const Partition partition =
      partition_tiles(sequences.total(), params.resident_blocks, params.max_waves);
  const i32 first = partition.owner(s.begin);
  const i32 parts = partition.owner(s.begin + s.count - 1) - first + 1;
  if (parts == 1) return;  // stored by its block
  const i32 row = packed - row_block * D::kRows;
  const auto row_of = [&](i32 part) {
    return partial_slot(first + part, part == 0) * params.slot_rows + row;
  };

  float top = -ptx::infinity(), sum = 0.0f;
  for (i32 part = thread; part < parts; part += kCombineThreads)
    top = fmaxf(top, params.partial_sums[row_of(part)].x);
  top = reduce_block<true>(top, own.scratch);
  for (i32 part = thread; part < parts; part += kCombineThreads) {
    const float2 state = params.partial_sums[row_of(part)];
    const float weight = state.x == -ptx::infinity() ? 0.0f : ptx::exp2(state.x - top);
    own.weights[part] = weight;
    sum += weight * state.y;
  }
  sum = reduce_block<false>(sum, own.scratch);

  constexpr int kVectors = CombineShared<D>::kVectors;
  float4 value[kVectors];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) value[v] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 4
  for (i32 part = warp; part < parts; part += kCombineThreads / 32) {
    const float weight = own.weights[part];
    const float4* from =
        reinterpret_cast<const float4*>(params.partial_out + row_of(part) * D::kHeadDimV);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (lane + 32 * v >= D::kHeadDimV / 4) continue;
      const float4 got = __ldcg(from + lane + 32 * v);
      value[v].x += weight * got.x;
      value[v].y += weight * got.y;
      value[v].z += weight * got.z;
      value[v].w += weight * got.w;
    }
  }
#pragma unroll
  for (int v = 0; v < kVectors; ++v) own.outputs[warp][lane + 32 * v] = value[v];
  __syncthreads();

  const OutputRow place(params, s.head, packed);
  const RowEnd end(params, place.head, top, sum);
  for (int i = thread; i < D::kHeadDimV / 4; i += kCombineThreads) {
    const float4 a = own.outputs[0][i], b = own.outputs[1][i], c = own.outputs[2][i],
                 d = own.outputs[3][i];
    uint2 words;
    words.x = D::Element::pack(((a.x + b.x) + (c.x + d.x)) * end.factor,
                               ((a.y + b.y) + (c.y + d.y)) * end.factor);
    words.y = D::Element::pack(((a.z + b.z) + (c.z + d.z)) * end.factor,
                               ((a.w + b.w) + (c.w + d.w)) * end.factor);
    *reinterpret_cast<uint2*>(place.out(params, s.batch) + 4 * i) = words;
  }
  if (thread == 0) place.store_lse(params, s.batch, end.lse);
}

}  // namespace stof::decode
