#pragma once
// Of each query block the key blocks that stay and those of the largest pooled scores: the choice of
// src/mask/dynamic/blocks.cc for block_topk, bit for bit.

#include "prune/params.cuh"
#include "ptx/math.cuh"

namespace stof::prune {

/// A score as a number that orders as the pruner takes blocks: what stays first, then the larger
/// score, NaN last; 0: hidden.
__device__ __forceinline__ u32 order_of(float score, unsigned char state) {
  if (state == kHidden) return 0;
  if (state == kStays) return ~0u;
  if (score != score) return 1;
  const u32 bits = static_cast<u32>(ptx::bits_of(score + 0.0f));  // -0 is 0
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/// The largest number that at least `count` of the warp's orders reach.
__device__ __forceinline__ u32 least_taken(const u32* orders, i32 num, i32 count, i32 lane) {
  u32 reached = 0;
  for (u32 bit = 0x80000000u; bit != 0; bit >>= 1) {
    const u32 wanted = reached | bit;
    i32 taken = 0;
    for (i32 first = 0; first < num; first += 32)
      taken += __popc(__ballot_sync(~0u, first + lane < num && orders[first + lane] >= wanted));
    if (taken >= count) reached = wanted;
  }
  return reached;
}

/// Writes the ids of the `count` first of them, ascending; equal ones in their order.
__device__ __forceinline__ void take(const u32* orders, i32 num, i32 count, i32* ids, i32 lane) {
  if (count == 0) return;
  const u32 least = least_taken(orders, num, count, lane);
  i32 above = 0;
  for (i32 first = 0; first < num; first += 32)
    above += __popc(__ballot_sync(~0u, first + lane < num && orders[first + lane] > least));
  i32 equal_left = count - above, written = 0;
  const u32 below = (1u << lane) - 1;
  for (i32 first = 0; first < num; first += 32) {
    const u32 order = first + lane < num ? orders[first + lane] : 0;
    const u32 equal = __ballot_sync(~0u, order == least && order != 0);
    const bool mine =
        order > least || (order == least && order != 0 && __popc(equal & below) < equal_left);
    const u32 taken = __ballot_sync(~0u, mine);
    if (mine) ids[written + __popc(taken & below)] = first + lane;
    written += __popc(taken);
    equal_left -= __popc(equal) < equal_left ? __popc(equal) : equal_left;
  }
}

/// A thread block has kChooseRows rows of a head of a batch entry. Products are exact in double and
/// added in the order of the elements, as score_of() has them. Dynamic shared memory: queries
/// [head_dim][row] in double, then orders [row][key block].
template <class Config>
__device__ __forceinline__ void choose_blocks(const BlockParams& params) {
  extern __shared__ __align__(16) unsigned char shared[];
  auto* const queries = reinterpret_cast<double*>(shared);
  auto* const orders = reinterpret_cast<u32*>(queries + Config::kHeadDim * kChooseRows);
  const i32 thread = static_cast<i32>(threadIdx.x);
  const i32 groups = (params.q_blocks + kChooseRows - 1) / kChooseRows;
  const i64 head = static_cast<i32>(blockIdx.x) / groups;
  const i32 first_row = (static_cast<i32>(blockIdx.x) - static_cast<i32>(head) * groups) * kChooseRows;
  const i64 head_kv = head / (params.heads_q / params.heads_kv);  // both of all batch entries
  for (i32 i = thread; i < Config::kHeadDim * kChooseRows; i += kChooseThreads) {
    const i32 row = first_row + i / Config::kHeadDim, column = i % Config::kHeadDim;
    queries[column * kChooseRows + i / Config::kHeadDim] =
        row < params.q_blocks
            ? static_cast<double>(
                  params.pooled_q[(head * params.q_blocks + row) * Config::kHeadDim + column])
            : 0.0;
  }
  __syncthreads();
  const float* const keys = params.pooled_k + head_kv * Config::kHeadDim * params.kv_blocks;
  for (i32 block = thread; block < params.kv_blocks; block += kChooseThreads) {
    double sums[kChooseRows] = {};
#pragma unroll 8
    for (int column = 0; column < Config::kHeadDim; ++column) {
      const double key = static_cast<double>(keys[static_cast<i64>(column) * params.kv_blocks + block]);
#pragma unroll
      for (int row = 0; row < kChooseRows; ++row)
        sums[row] = fma(queries[column * kChooseRows + row], key, sums[row]);
    }
#pragma unroll
    for (int row = 0; row < kChooseRows; ++row) {
      const i32 of_all = first_row + row;
      const unsigned char state =
          of_all < params.q_blocks
              ? params.states[static_cast<i64>(of_all) * params.kv_blocks + block]
              : static_cast<unsigned char>(kHidden);
      orders[row * params.kv_blocks + block] =
          order_of(static_cast<float>(static_cast<double>(params.scale) * sums[row]), state);
    }
  }
  __syncthreads();
  const i32 row = first_row + thread / 32;
  if (row >= params.q_blocks) return;
  take(orders + thread / 32 * params.kv_blocks, params.kv_blocks, params.kept[row],
       params.ids + (head * params.q_blocks + row) * params.max_kept, thread % 32);
}

}  // namespace stof::prune
