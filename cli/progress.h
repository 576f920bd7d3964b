#pragma once
// A progress bar with the time left, on standard error.

#include <chrono>
#include <cstdint>
#include <string>

namespace stof::cli {

/// Draws nothing when standard error is not a terminal, when quiet, and in the first half second.
/// Never wider than the terminal. Wiped when the total is reached, so that the results start on an
/// empty line, and when the bar is destroyed.
class ProgressBar {
 public:
  ProgressBar(std::string label, std::int64_t total, bool quiet);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// `done` of the total; cheap enough to be called for every item.
  void update(std::int64_t done);

 private:
  void wipe();

  using Clock = std::chrono::steady_clock;
  std::string label_;
  std::int64_t total_;
  bool visible_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = start_;
};

/// "[##########----------]  50 %  eta 0:42"
std::string progress_text(std::int64_t done, std::int64_t total, double seconds_spent);

}  // namespace stof::cli
