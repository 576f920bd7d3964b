#include "model/stop_strings.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace stof::model {

StopStrings::StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {
  for (const std::string& text : strings_)
    STOF_CHECK(!text.empty(), kInvalidArgument, "stop: expected strings that are not empty");
}

std::string StopStrings::push(std::string_view piece) {
  if (stopped_) return {};
  held_ += piece;
  std::size_t first = std::string::npos;
  for (const std::string& text : strings_) first = std::min(first, held_.find(text));
  if (first != std::string::npos) {
    stopped_ = true;
    held_.resize(first);
    return std::exchange(held_, {});
  }
  // The longest end of what is held that begins a stop string stays.
  std::size_t keep = 0;
  for (const std::string& text : strings_)
    for (std::size_t n = std::min(text.size() - 1, held_.size()); n > keep; --n)
      if (std::string_view(held_).ends_with(std::string_view(text).substr(0, n))) keep = n;
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return out;
}

std::string StopStrings::finish() { return std::exchange(held_, {}); }

}  // namespace stof::model
