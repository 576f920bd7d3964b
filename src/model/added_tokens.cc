#include "model/added_tokens.h"

#include <functional>

namespace stof::model {

void AddedTokens::add(std::u32string content, const AddedToken* token) {
  if (content.empty()) return;
  const auto insert_sorted = [](auto& list, auto value, auto less) {
    const auto at = std::lower_bound(list.begin(), list.end(), value, less);
    if (at == list.end() || *at != value) list.insert(at, value);
  };
  insert_sorted(lengths_, content.size(), std::greater<>());
  insert_sorted(first_letters_, content[0], std::less<>());
  by_content_.insert_or_assign(std::move(content), token);
}

std::pair<const AddedToken*, std::size_t> AddedTokens::match(std::u32string_view text,
                                                             std::size_t at) const {
  if (!std::binary_search(first_letters_.begin(), first_letters_.end(), text[at])) return {};
  for (const std::size_t length : lengths_) {
    if (length > text.size() - at) continue;
    const auto found = by_content_.find(std::u32string(text.substr(at, length)));
    if (found != by_content_.end()) return {found->second, length};
  }
  return {};
}

}  // namespace stof::model
