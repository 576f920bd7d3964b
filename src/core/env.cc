#include "core/env.h"

#include <charconv>
#include <cstdlib>

#include "core/check.h"

namespace stof {

std::optional<std::string> env_string(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

std::optional<long> env_int(const char* name, long low, long high) {
  const auto text = env_string(name);
  if (!text) return std::nullopt;
  long value = 0;
  const auto [end, status] = std::from_chars(text->data(), text->data() + text->size(), value);
  STOF_CHECK(
      status == std::errc() && end == text->data() + text->size() && value >= low && value <= high,
      kInvalidArgument,
      "environment variable {}: expected a whole number from {} to {}, got \"{}\"", name, low, high,
      *text);
  return value;
}

std::string cache_folder() {
  if (const auto folder = env_string("STOF_CACHE")) return *folder;
  if (const auto base = env_string("XDG_CACHE_HOME")) return *base + "/stof";
  if (const auto home = env_string("HOME")) return *home + "/.cache/stof";
  return "/tmp/stof-cache";
}

}  // namespace stof
