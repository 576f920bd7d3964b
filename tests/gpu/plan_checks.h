#pragma once
// Plans that are made on the GPU, compared with the CPU's oracle.

#include <cstdint>
#include <string>
#include <vector>

#include "backend/cuda/device.h"

namespace stof::check {

/// Random block lists (unsorted, with duplicates, wrong entries and empty rows, any strides), block
/// sizes and score modifications, for the cheapest and the dearest candidate for operands of 16 and
/// of 4 bytes alignment; then a captured graph replayed on other lists. One entry a seed from
/// `first_seed` on: whether all was right. Prints what was not.
std::vector<bool> check_block_lists(const cuda::Device& device, std::uint64_t first_seed, int cases,
                                    const std::string& kernel_part);

/// Random boolean tensors, any strides, shared by batch entries, heads or rows or not, for up to
/// four candidates; likewise.
std::vector<bool> check_dense_masks(const cuda::Device& device, std::uint64_t first_seed, int cases,
                                    const std::string& kernel_part);

}  // namespace stof::check
