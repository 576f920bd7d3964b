#pragma once
// Source texts of the kernels that make plans on the GPU: kernels/plan.

#include <string>

namespace stof::codegen {

/// Mirrored from kernels/plan/params.cuh.
inline constexpr int kListThreads = 128, kListRows = kListThreads / 32;
inline constexpr int kListSharedBytes = kListRows * (1024 + 2064);
inline constexpr int kOrderThreads = 256, kMaxOrderGroup = 4096;
inline constexpr int kOrderSharedBytes = 8 * kMaxOrderGroup + 512;

/// The translation unit with the entry `list_blocks`: one warp a row, kListRows rows a block.
std::string emit_list_blocks();

/// The translation unit with the entry `order_records`: one block a group of records.
std::string emit_order_records();

/// Mirrored from kernels/plan/dense_mask.cuh.
inline constexpr int kDenseThreads = 128;

/// The translation unit with the entry `classify_groups`: one warp 64 rows of 512 keys.
std::string emit_classify_groups();

/// The translation unit with the entry `fill_payloads`: one block a partial tile.
std::string emit_fill_payloads();

}  // namespace stof::codegen
