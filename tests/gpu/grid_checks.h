#pragma once
// Neighbourhoods in grid order, compared with the CPU's oracle.

#include <cstdint>
#include <string>
#include <vector>

#include "backend/cuda/device.h"

namespace stof::check {

/// Random grids of two and three dimensions, kernels up to beyond the grid, dilations and tiles,
/// any strides, batches and grouped heads, for up to four candidates in grid order; one entry a
/// seed from `first_seed` on: whether all was right. Prints what was not. Needs compute
/// capability 9.0; none elsewhere.
std::vector<bool> check_grids(const cuda::Device& device, std::uint64_t first_seed, int cases,
                              const std::string& kernel_part);

}  // namespace stof::check
