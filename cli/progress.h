#pragma once
// A progress bar with the time left, on standard error.

#include <chrono>
#include <cstdint>
#include <string>

namespace stof::cli {

/// One line of text that is drawn over and over. Draws nothing when standard error is not a
/// terminal or when quiet, and not oftener than ten times a second; never wider than the terminal.
class ProgressLine {
 public:
  explicit ProgressLine(bool quiet);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(const std::string& text);
  /// Leaves an empty line for what follows.
  void wipe();

 private:
  using Clock = std::chrono::steady_clock;
  bool visible_;
  bool drawn_ = false;
  Clock::time_point last_;
};

/// Draws nothing when standard error is not a terminal, when quiet, and in the first half second.
/// Never wider than the terminal. Wiped when the total is reached, so that the results start on an
/// empty line, and when the bar is destroyed.
class ProgressBar {
 public:
  ProgressBar(std::string label, std::int64_t total, bool quiet);
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// `done` of the total; cheap enough to be called for every item.
  void update(std::int64_t done);

 private:
  using Clock = std::chrono::steady_clock;
  std::string label_;
  std::int64_t total_;
  ProgressLine line_;
  Clock::time_point start_ = Clock::now();
};

/// "[##########----------]  50 %  eta 0:42"
std::string progress_text(std::int64_t done, std::int64_t total, double seconds_spent);

}  // namespace stof::cli
