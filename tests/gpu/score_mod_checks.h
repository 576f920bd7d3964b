#pragma once
// Score modifications on a GPU, compared with the CPU's oracle.

#include <cstdint>
#include <string>
#include <vector>

#include "backend/cuda/device.h"

namespace stof::check {

/// Each of the functions of cpu/score_mods.h in turn, with random problems, masks, other score
/// options and table strides: every candidate whose name contains `kernel_part`, then a captured
/// graph replayed on other tables; every seventh case is packed sequences. One entry a seed from
/// `first_seed` on: whether all was right. Prints what was not.
std::vector<bool> check_score_mods(const cuda::Device& device, std::uint64_t first_seed, int cases,
                                   const std::string& kernel_part);

}  // namespace stof::check
