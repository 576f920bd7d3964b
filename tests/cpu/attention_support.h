#pragma once
// One call that runs a problem everywhere and compares with the reference.

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "backend/cpu/attention/launch.h"
#include "backend/cpu/attention/plan_impl.h"
#include "cpu/operands.h"
#include "stof/attention.h"

namespace stof::cpu {

/// Runs the fast path at every vector level of this machine with 1 to 4 threads, and the
/// interpreter, all on poisoned outputs; compares with the reference, checks guards, unchanged
/// inputs, and that threads and repetition do not change a bit.
void expect_right_everywhere(const mask::Mask& mask, Operands& operands);
void expect_right_everywhere(const mask::Mask& mask, Operands& operands,
                             const plan::PlanConfig& config);

/// The message of the stof::Error thrown, or "no error".
std::string error_of(const std::function<void()>& action);

}  // namespace stof::cpu
