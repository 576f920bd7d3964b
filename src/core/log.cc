#include "core/log.h"

#include <atomic>
#include <cstdio>

#include "core/env.h"
#include "core/text.h"

namespace stof {
namespace {

LogLevel level_from_environment() {
  const std::string name = env_string("STOF_LOG").value_or("warn");
  if (name == "off") return LogLevel::kOff;
  if (name == "info") return LogLevel::kInfo;
  if (name == "debug") return LogLevel::kDebug;
  if (name != "warn")
    fmt::print(stderr,
               "stof: warning: environment variable STOF_LOG: expected off, warn, info or debug, "
               "got {}; taking warn\n",
               quote_text(name));
  return LogLevel::kWarn;
}

std::atomic<LogLevel>& level_storage() {
  static std::atomic<LogLevel> level{level_from_environment()};
  return level;
}

}  // namespace

LogLevel log_level() { return level_storage().load(std::memory_order_relaxed); }
void set_log_level(LogLevel level) { level_storage().store(level, std::memory_order_relaxed); }

void log_line(LogLevel level, const std::string& message) {
  if (level == LogLevel::kOff || level > log_level()) return;
  const char* name = level == LogLevel::kWarn ? "warning" : "info";
  const std::string line = fmt::format("stof: {}: {}\n", name, message);
  std::fwrite(line.data(), 1, line.size(), stderr);  // one write, so threads don't mix lines
}

}  // namespace stof
