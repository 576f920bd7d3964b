#include "options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace stof::cli {

CLI::Validator whole_number(std::int64_t low, std::int64_t high) {
  const auto check = [low, high](std::string& text) -> std::string {
    std::int64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, status] = std::from_chars(text.data(), end, value);
    if (status == std::errc() && stop == end && value >= low && value <= high) {
      text = std::to_string(value);  // "010" is ten, not the octal eight CLI11 would read
      return "";
    }
    return fmt::format("expected a whole number from {} to {}, got \"{}\"", low, high, text);
  };
  return CLI::Validator(check, "", "whole_number");
}

CLI::Validator one_of(std::vector<std::string> names) {
  const std::string list = fmt::format("{}", fmt::join(names, "|"));
  const auto check = [names = std::move(names), list](std::string& text) -> std::string {
    if (std::find(names.begin(), names.end(), text) != names.end()) return "";
    return fmt::format("expected one of {}, got \"{}\"", list, text);
  };
  return CLI::Validator(check, list, "one_of");
}

std::string examples(const std::vector<std::string>& lines) {
  std::string text = "Examples:\n";
  for (const std::string& line : lines) text += "  " + line + "\n";
  return text;
}

}  // namespace stof::cli
