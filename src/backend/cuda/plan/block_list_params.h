#pragma once
// Mirrors kernels/plan/params.cuh.

#include <cstdint>

#include "backend/cuda/driver.h"

namespace stof::cuda {

struct BlockListParams {
  CUdeviceptr counts, ids;
  CUdeviceptr full_tiles, partial_tiles, tile_payloads;
  CUdeviceptr runs, partial, row_tiles, records, error;
  std::int64_t count_strides[3], id_strides[4];
  std::int32_t num_heads, num_q_blocks, num_rows, max_blocks, num_kv_blocks, num_tiles,
      num_tile_words, tiles_per_block, run_capacity, partial_capacity, hidden_payload, num_heads_q,
      heads_per_record, record_heads, query_tile_rows, records_per_row, records_per_head,
      num_records, order_group, num_blocks, diagonal_payload, diagonal_offset;
};
static_assert(sizeof(BlockListParams) == 224, "params.cuh asserts the same");

/// What the plan kernels leave when a list is wrong: [row, 31 bits][fault, 1 bit][value, 32 bits];
/// all ones: nothing was.
struct ListFault {
  std::uint64_t word = ~std::uint64_t{0};
  bool any() const { return word != ~std::uint64_t{0}; }
  std::int64_t row() const { return static_cast<std::int64_t>(word >> 33); }
  bool in_count() const { return (word >> 32 & 1) == 0; }
  std::int32_t value() const { return static_cast<std::int32_t>(word & 0xffffffffu); }
};

}  // namespace stof::cuda
