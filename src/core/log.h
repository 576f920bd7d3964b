#pragma once
// Warnings and progress notes on standard error. Level from STOF_LOG: off, warn (default), info,
// debug.

#include <fmt/core.h>

#include <string>

namespace stof {

enum class LogLevel { kOff, kWarn, kInfo, kDebug };

LogLevel log_level();
void set_log_level(LogLevel level);

/// Writes one line "stof: warning: ..." if the level allows it.
void log_line(LogLevel level, const std::string& message);

template <class... Args>
void log_warn(fmt::format_string<Args...> format, Args&&... args) {
  if (log_level() >= LogLevel::kWarn)
    log_line(LogLevel::kWarn, fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  if (log_level() >= LogLevel::kInfo)
    log_line(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace stof
