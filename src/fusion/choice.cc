#include "fusion/choice.h"

#include <charconv>

#include "core/check.h"
#include "core/text.h"

namespace stof::fusion {
namespace {

bool is_name(std::string_view text) {
  for (const char c : text)
    if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '_') return false;
  return !text.empty();
}

}  // namespace

std::string Choice::text() const {
  std::string text = family;
  for (const auto& [name, value] : parameters) text += fmt::format(" {}={}", name, value);
  return text;
}

Choice Choice::from_text(std::string_view text) {
  Choice choice;
  bool first = true;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string_view word = text.substr(at, end - at);
    at = end + 1;
    if (first) {
      STOF_CHECK(is_name(word), kInvalidArgument,
                 "choice {}: expected a family of a-z, 0-9 and _ first, got {}", quote_text(text),
                 quote_text(word));
      choice.family = word;
      first = false;
      continue;
    }
    const std::size_t equals = std::min(word.find('='), word.size());
    const std::string_view name = word.substr(0, equals);
    std::int64_t value = 0;
    const char* const begin = word.data() + std::min(equals + 1, word.size());
    const char* const stop = word.data() + word.size();
    const auto [parsed, error] = std::from_chars(begin, stop, value);
    STOF_CHECK(is_name(name) && error == std::errc() && parsed == stop, kInvalidArgument,
               "choice {}: expected name=integer, got {}", quote_text(text), quote_text(word));
    STOF_CHECK(choice.parameters.emplace(name, value).second, kInvalidArgument,
               "choice {}: expected each parameter once, got {} again", quote_text(text),
               quote_text(name));
  }
  return choice;
}

std::int64_t Choice::at(const std::string& name) const {
  const auto found = parameters.find(name);
  STOF_CHECK(found != parameters.end(), kInvalidArgument, "choice {}: expected a parameter {}",
             quote_text(text()), quote_text(name));
  return found->second;
}

}  // namespace stof::fusion
