#include "model/merge_table.h"

#include <functional>
#include <queue>
#include <tuple>

namespace stof::model {
namespace {

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

}  // namespace

void MergeTable::add(std::int32_t left, std::int32_t right, std::int32_t rank,
                     std::int32_t merged) {
  merges_.insert_or_assign(pair_key(left, right), Merge{rank, merged});
}

void MergeTable::apply(std::vector<std::int32_t>& symbols) const {
  struct Candidate {
    std::int32_t rank;
    std::size_t left;
    std::uint64_t key;  ///< what stood there; else the candidate is out of date
    bool operator>(const Candidate& other) const {
      return std::tie(rank, left) > std::tie(other.rank, other.left);
    }
  };
  const std::size_t n = symbols.size();
  std::vector<std::size_t> next(n), previous(n);
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto offer = [&](std::size_t left, std::size_t right) {
    const std::uint64_t key = pair_key(symbols[left], symbols[right]);
    const auto found = merges_.find(key);
    if (found != merges_.end()) queue.push({found->second.rank, left, key});
  };
  for (std::size_t i = 0; i < n; ++i) {
    next[i] = i + 1;
    previous[i] = i - 1;  // of the first: n's own kind of end, never read
    if (i > 0) offer(i - 1, i);
  }
  constexpr std::int32_t kGone = -1;
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    const std::size_t left = best.left;
    if (symbols[left] == kGone) continue;
    const std::size_t right = next[left];
    if (right >= n || pair_key(symbols[left], symbols[right]) != best.key) continue;
    symbols[left] = merges_.find(best.key)->second.id;
    symbols[right] = kGone;
    next[left] = next[right];
    if (next[left] < n) {
      previous[next[left]] = left;
      offer(left, next[left]);
    }
    if (left > 0) offer(previous[left], left);
  }
  std::erase(symbols, kGone);
}

}  // namespace stof::model
