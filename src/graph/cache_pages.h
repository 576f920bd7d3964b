#pragma once
// Where in a cache the keys and values of a batch's sequences are.

#include <cstdint>
#include <optional>
#include <vector>

namespace stof::graph {

/// Key j of sequence i is the cache's row pages[i][j / page_size] page_size + j % page_size, in
/// every layer alike. The rows of a pass are the last keys of their sequences, but for
/// cross-attention, whose keys another graph stored.
struct CachePages {
  std::int64_t page_size = 0;
  std::vector<std::vector<std::int32_t>> pages;  ///< of each sequence
  std::vector<std::int64_t> lengths;  ///< keys of each sequence, the pass's rows included

  std::int64_t row(std::size_t sequence, std::int64_t key) const {
    return std::int64_t{pages[sequence][static_cast<std::size_t>(key / page_size)]} * page_size +
           key % page_size;
  }
  /// The row of a sequence's first key where all of its keys lie one behind the other.
  std::optional<std::int64_t> first_row(std::size_t sequence) const;
  /// Keys of all sequences one behind the other: sequence i's from offsets[i] on.
  std::vector<std::int64_t> key_offsets() const;
  /// Of a pass in which sequence i has rows offsets[i] .. offsets[i + 1]: where each row is stored,
  /// and which key of its sequence it is.
  std::vector<std::int32_t> slots(const std::vector<std::int64_t>& offsets) const;
  std::vector<std::int32_t> positions(const std::vector<std::int64_t>& offsets) const;

  /// Throws InvalidArgument naming the sequence whose pages or length do not fit the rows of the
  /// pass or a cache of `size` rows, or a page that two places share.
  void validate(const std::vector<std::int64_t>& offsets, std::int64_t size) const;
  /// The same of keys that the rows of the pass are not among, of `sequences` sequences.
  void validate_cross(std::size_t sequences, std::int64_t size) const;
};

}  // namespace stof::graph
