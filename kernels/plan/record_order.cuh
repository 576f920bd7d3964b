#pragma once
// Records in queue order, as src/backend/cuda/attention/queue.cc orders them on the host: groups
// one after the other, dearest first inside one where costs differ; records that alone would stretch
// the makespan before all groups. One block a group; each looks at all costs, so that none waits for
// another.

#include "plan/params.cuh"
#include "ptx/grid.cuh"
#include "ptx/thread.cuh"

namespace stof::lists {

__device__ __forceinline__ i32 row_of(const ListParams& params, i32 record) {
  const i32 head = record / params.records_per_head;
  return head / params.record_heads * params.num_q_blocks +
         (record - head * params.records_per_head) / params.records_per_row;
}

__device__ __forceinline__ i32 cost_of_row(const ListParams& params, i32 row) {
  const RowTiles tiles = params.row_tiles[row];
  return kRecordCost + kFullCost * tiles.num_full + kPartialCost * tiles.num_partial;
}

__device__ __forceinline__ i32 cost_of(const ListParams& params, i32 record) {
  return cost_of_row(params, row_of(params, record));
}

struct Costs {
  i64 total;
  i32 lowest, highest;
};

/// Of all records, row by row: fewer divisions. `scratch`: two words a warp, shared; all threads
/// call it.
__device__ __forceinline__ Costs all_costs(const ListParams& params, int thread, u64* scratch) {
  i64 total = 0;
  i32 lowest = 0x7fffffff, highest = 0;
  const i32 in_last = params.records_per_head - (params.num_q_blocks - 1) * params.records_per_row;
#pragma unroll 8
  for (i32 row = thread; row < params.num_rows; row += kOrderThreads) {
    const i32 cost = cost_of_row(params, row);
    const bool last = row % params.num_q_blocks == params.num_q_blocks - 1;
    total += static_cast<i64>(cost) * (last ? in_last : params.records_per_row);
    lowest = cost < lowest ? cost : lowest;
    highest = cost > highest ? cost : highest;
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    total += __shfl_xor_sync(~0u, total, step);
    const i32 low = __shfl_xor_sync(~0u, lowest, step), high = __shfl_xor_sync(~0u, highest, step);
    lowest = low < lowest ? low : lowest;
    highest = high > highest ? high : highest;
  }
  if (thread % 32 == 0) {
    scratch[2 * (thread / 32)] = static_cast<u64>(total);
    scratch[2 * (thread / 32) + 1] = static_cast<u64>(static_cast<u32>(lowest)) << 32 |
                                     static_cast<u32>(highest);
  }
  __syncthreads();
  Costs costs{0, 0x7fffffff, 0};
  for (int warp = 0; warp < kOrderThreads / 32; ++warp) {
    costs.total += static_cast<i64>(scratch[2 * warp]);
    const i32 low = static_cast<i32>(scratch[2 * warp + 1] >> 32);
    const i32 high = static_cast<i32>(scratch[2 * warp + 1] & 0xffffffffu);
    costs.lowest = low < costs.lowest ? low : costs.lowest;
    costs.highest = high > costs.highest ? high : costs.highest;
  }
  costs.total *= params.record_heads;
  __syncthreads();
  return costs;
}

/// How many records cost more than `bar`: before `begin`, from there to `end`, and after it.
struct Outliers {
  i32 before, inside, after;
};
__device__ __forceinline__ Outliers count_outliers(const ListParams& params, i64 bar, i32 begin,
                                                   i32 end, int thread, u64* scratch) {
  i32 counts[3] = {0, 0, 0};
#pragma unroll 4
  for (i32 record = thread; record < params.num_records; record += kOrderThreads) {
    const i32 outlier = cost_of(params, record) > bar;
    counts[0] += record < begin ? outlier : 0;
    counts[1] += record >= begin && record < end ? outlier : 0;
    counts[2] += record >= end ? outlier : 0;
  }
  i32* sums = reinterpret_cast<i32*>(scratch);
#pragma unroll
  for (int i = 0; i < 3; ++i) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) counts[i] += __shfl_xor_sync(~0u, counts[i], step);
    if (thread % 32 == 0) sums[3 * (thread / 32) + i] = counts[i];
  }
  __syncthreads();
  Outliers all{0, 0, 0};
  for (int warp = 0; warp < kOrderThreads / 32; ++warp) {
    all.before += sums[3 * warp];
    all.inside += sums[3 * warp + 1];
    all.after += sums[3 * warp + 2];
  }
  __syncthreads();
  return all;
}

/// Ascending order of `size` keys, a power of two, in shared memory: Batcher's bitonic sort.
__device__ __forceinline__ void sort_keys(u64* keys, i32 size, int thread) {
  for (i32 length = 2; length <= size; length *= 2)
    for (i32 step = length / 2; step > 0; step /= 2) {
      for (i32 pair = thread; pair < size / 2; pair += kOrderThreads) {
        const i32 low = 2 * pair - (pair & (step - 1)), high = low + step;
        const u64 a = keys[low], b = keys[high];
        if ((a > b) == ((low & length) == 0)) {
          keys[low] = b;
          keys[high] = a;
        }
      }
      __syncthreads();
    }
}

__device__ __forceinline__ void write_record(const ListParams& params, i32 record, i32 position) {
  const i32 record_head = record / params.records_per_head;
  const i32 head_of_all = record_head * params.heads_per_record;
  const i32 batch = head_of_all / params.num_heads_q;
  const i32 row = row_of(params, record);
  const RowTiles tiles = params.row_tiles[row];
  WorkRecord out;
  out.q_row = (record - record_head * params.records_per_head) * params.query_tile_rows;
  out.head = head_of_all - batch * params.num_heads_q;
  out.batch = batch;
  out.num_partial = tiles.num_partial;
  out.num_full = tiles.num_full;
  out.partial_begin = row * params.partial_capacity;
  out.run_begin = row * params.run_capacity;
  out.part = -1;
  params.records[position] = out;
}

__device__ __forceinline__ void order_records(const ListParams& params) {
  extern __shared__ __align__(16) unsigned char shared[];
  u64* keys = reinterpret_cast<u64*>(shared);
  u64* scratch = keys + kMaxOrderGroup;
  ptx::wait_for_previous_kernel();
  const int thread = static_cast<int>(ptx::thread_index());
  const i32 begin = static_cast<i32>(blockIdx.x) * params.order_group;
  const i32 rest = params.num_records - begin;
  const i32 count = rest < params.order_group ? rest : params.order_group;
  const Costs costs = all_costs(params, thread, scratch);
  if (2 * static_cast<i64>(costs.highest) <= 3 * static_cast<i64>(costs.lowest)) {  // all alike
    for (i32 i = thread; i < count; i += kOrderThreads)
      write_record(params, begin + i, begin + i);
    return;
  }
  // Records above 0.15 of a block's share are outliers, unless most records are.
  const i64 bar = 3 * costs.total / (20 * static_cast<i64>(params.num_blocks));
  Outliers outliers{0, 0, 0};
  if (costs.highest * static_cast<i64>(params.num_records) > 4 * costs.total)
    outliers = count_outliers(params, bar, begin, begin + count, thread, scratch);
  i32 size = 1;
  while (size < count) size *= 2;
  for (i32 i = thread; i < size; i += kOrderThreads)
    keys[i] = i < count
                  ? static_cast<u64>(0x7fffffff - cost_of(params, begin + i)) << 32 | static_cast<u32>(i)
                  : ~static_cast<u64>(0);
  __syncthreads();
  sort_keys(keys, size, thread);
  const i32 all_outliers = outliers.before + outliers.inside + outliers.after;
  for (i32 i = thread; i < count; i += kOrderThreads) {
    const i32 position = i < outliers.inside
                             ? outliers.before + i
                             : all_outliers + begin - outliers.before + (i - outliers.inside);
    write_record(params, begin + static_cast<i32>(keys[i] & 0xffffffffu), position);
  }
}

}  // namespace stof::lists
