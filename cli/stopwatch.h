#pragma once
// Wall time of repeated work.

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

namespace stof::cli {

struct Timing {
  double median = 0, fastest = 0;  ///< seconds
  int repeats = 0;
};

/// Runs `work` once unmeasured, then at least three times and until `min_seconds` have gone by.
inline Timing measure_seconds(const std::function<void()>& work, double min_seconds) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  work();
  std::vector<double> times;
  for (const auto start = Clock::now(); times.size() < 3 || seconds_since(start) < min_seconds;) {
    const auto begin = Clock::now();
    work();
    times.push_back(seconds_since(begin));
  }
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.front(), static_cast<int>(times.size())};
}

}  // namespace stof::cli
