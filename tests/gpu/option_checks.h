#pragma once
// Random problems with strided operands and score modifications, compared with the CPU's oracle.

#include <cstdint>
#include <string>
#include <vector>

#include "backend/cuda/device.h"

namespace stof::check {

/// "strides", "alibi", "bias", "sink", "position", "options" (any of them together, with softcap),
/// "varlen", and "nonfinite": queries with NaN and infinities.
const std::vector<std::string>& option_names();

/// Runs the cheapest, the dearest and one other candidate (of those whose names
/// contain `kernel_part`) of a random problem that has the option:
/// out and LSE against attention_reference(), guard bytes, unchanged inputs, equal bits in a second
/// run. Prints what is wrong; returns whether all was right.
bool check_option(const cuda::Device& device, const std::string& option, std::uint64_t seed,
                  const std::string& kernel_part);

/// Outputs that the kernels cannot store to are refused. Prints what was not.
bool check_refusals();

}  // namespace stof::check
