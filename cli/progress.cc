#include "progress.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "output.h"

namespace stof::cli {
namespace {

constexpr int kBarCells = 30;
constexpr double kFirstDrawSeconds = 0.5;  // shorter work needs no bar
constexpr double kRedrawSeconds = 0.1;

/// Columns of the terminal behind standard error; "unlimited" where it does not say. A line of full
/// width would wrap on some terminals.
std::size_t usable_columns() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 2) return 1000;
  return size.ws_col - 1u;
}

}  // namespace

std::string progress_text(std::int64_t done, std::int64_t total, double seconds_spent) {
  const double share =
      total > 0 ? std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0)
                : 1.0;
  const auto filled = static_cast<std::size_t>(share * kBarCells);
  std::string text = fmt::format("[{}{}] {:3.0f} %", std::string(filled, '#'),
                                 std::string(kBarCells - filled, '-'), share * 100);
  if (share <= 0) return text;
  const auto left = static_cast<std::int64_t>(seconds_spent * (1 - share) / share + 0.5);
  return text + fmt::format("  eta {}:{:02}", left / 60, left % 60);
}

ProgressLine::ProgressLine(bool quiet) : visible_(!quiet && ::isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() { wipe(); }

void ProgressLine::wipe() {
  if (!drawn_) return;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
  drawn_ = false;
}

void ProgressLine::show(const std::string& text) {
  const auto now = Clock::now();
  if (!visible_ || std::chrono::duration<double>(now - last_).count() < kRedrawSeconds) return;
  last_ = now;
  drawn_ = true;
  fmt::print(stderr, "\r{}\x1b[K", shorten(text, usable_columns()));
  std::fflush(stderr);
}

ProgressBar::ProgressBar(std::string label, std::int64_t total, bool quiet)
    : label_(std::move(label)), total_(total), line_(quiet) {}

void ProgressBar::update(std::int64_t done) {
  if (done >= total_) return line_.wipe();
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  if (seconds < kFirstDrawSeconds) return;
  line_.show(label_ + " " + progress_text(done, total_, seconds));
}

}  // namespace stof::cli
