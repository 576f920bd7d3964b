#pragma once
// The merges of byte pair encoding (Sennrich et al. 2016, arXiv 1508.07909, section 3.2).

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace stof::model {

class MergeTable {
 public:
  /// The tokens `left` and `right` become `merged`; of two merges of one pair the later one counts.
  void add(std::int32_t left, std::int32_t right, std::int32_t rank, std::int32_t merged);

  /// Merges neighbours, always by the merge of lowest rank, of those the leftmost; O(n log n).
  void apply(std::vector<std::int32_t>& symbols) const;

 private:
  struct Merge {
    std::int32_t rank, id;
  };
  std::unordered_map<std::uint64_t, Merge> merges_;  ///< by both ids
};

}  // namespace stof::model
