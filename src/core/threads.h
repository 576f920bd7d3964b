#pragma once
// How many threads a caller may ask for.

#include "core/check.h"

namespace stof {

/// More than any machine has; OpenMP ends the process where it cannot make as many as it is told
/// to.
inline constexpr int kMostThreads = 1024;

/// 0: all cores that OpenMP gives. Throws InvalidArgument naming `name`, the option.
inline void check_num_threads(int num_threads, const char* name = "num_threads") {
  STOF_CHECK(num_threads >= 0 && num_threads <= kMostThreads, kInvalidArgument,
             "{}: expected 0 (all cores) to {}, got {}", name, kMostThreads, num_threads);
}

}  // namespace stof
