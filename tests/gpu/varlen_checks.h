#pragma once
// Packed sequences on a GPU, compared with the CPU's oracle sequence by sequence.

#include <cstdint>
#include <string>

#include "backend/cuda/device.h"

namespace stof::check {

/// Random lengths (0 included), masks, ALiBi, position bias and sinks; the cheapest and the dearest
/// candidate for operands of 16 and of 4 bytes alignment, of those whose names contain
/// `kernel_part`. Prints what is wrong; returns whether all was right.
/// score_mod: number of one (cpu/score_mods.h), or -1 for none.
bool check_varlen(const cuda::Device& device, std::uint64_t seed, const std::string& kernel_part,
                  int score_mod = -1);

}  // namespace stof::check
