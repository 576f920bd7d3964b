#include "graph/cache_pages.h"

#include <set>

#include "core/check.h"

namespace stof::graph {

std::optional<std::int64_t> CachePages::first_row(std::size_t sequence) const {
  const std::vector<std::int32_t>& mine = pages[sequence];
  for (std::int64_t key = page_size; key < lengths[sequence]; key += page_size) {
    const auto page = static_cast<std::size_t>(key / page_size);
    if (mine[page] != mine[page - 1] + 1) return std::nullopt;
  }
  return lengths[sequence] == 0 ? 0 : row(sequence, 0);
}

std::vector<std::int64_t> CachePages::key_offsets() const {
  std::vector<std::int64_t> offsets = {0};
  for (const std::int64_t length : lengths) offsets.push_back(offsets.back() + length);
  return offsets;
}

std::vector<std::int32_t> CachePages::positions(const std::vector<std::int64_t>& offsets) const {
  std::vector<std::int32_t> positions;
  for (std::size_t i = 0; i < lengths.size(); ++i)
    for (std::int64_t key = lengths[i] - (offsets[i + 1] - offsets[i]); key < lengths[i]; ++key)
      positions.push_back(static_cast<std::int32_t>(key));
  return positions;
}

std::vector<std::int32_t> CachePages::slots(const std::vector<std::int64_t>& offsets) const {
  std::vector<std::int32_t> slots;
  for (std::size_t i = 0; i < lengths.size(); ++i)
    for (std::int64_t key = lengths[i] - (offsets[i + 1] - offsets[i]); key < lengths[i]; ++key)
      slots.push_back(static_cast<std::int32_t>(row(i, key)));
  return slots;
}

void CachePages::validate(const std::vector<std::int64_t>& offsets, std::int64_t size) const {
  validate_cross(offsets.empty() ? 0 : offsets.size() - 1, size);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const std::int64_t rows = offsets[i + 1] - offsets[i];
    STOF_CHECK(lengths[i] >= rows, kInvalidArgument,
               "cache pages: sequence {}: expected a length of at least its {} rows, got {}", i,
               rows, lengths[i]);
  }
}

void CachePages::validate_cross(std::size_t sequences, std::int64_t size) const {
  STOF_CHECK(page_size >= 1, kInvalidArgument,
             "cache pages: page_size: expected 1 and more, got {}", page_size);
  STOF_CHECK(pages.size() == sequences && lengths.size() == sequences, kInvalidArgument,
             "cache pages: expected pages and a length for each of {} sequences, got {} and {}",
             sequences, pages.size(), lengths.size());
  std::set<std::int32_t> seen;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    STOF_CHECK(lengths[i] >= 0, kInvalidArgument,
               "cache pages: sequence {}: expected a length of 0 or more, got {}", i, lengths[i]);
    const auto wanted = static_cast<std::size_t>((lengths[i] + page_size - 1) / page_size);
    STOF_CHECK(pages[i].size() >= wanted, kInvalidArgument,
               "cache pages: sequence {}: expected {} pages of {} for {} keys, got {}", i, wanted,
               page_size, lengths[i], pages[i].size());
    for (const std::int32_t page : pages[i]) {
      STOF_CHECK(page >= 0 && (page + std::int64_t{1}) * page_size <= size, kInvalidArgument,
                 "cache pages: sequence {}: expected pages within the cache's {} rows, got page {} "
                 "of {} rows",
                 i, size, page, page_size);
      STOF_CHECK(seen.insert(page).second, kInvalidArgument,
                 "cache pages: sequence {}: expected pages of its own, got page {} twice", i, page);
    }
  }
}

}  // namespace stof::graph
