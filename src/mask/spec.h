#pragma once
// Spec: a mask expression as plain data, the common ground of text, JSON and fingerprint.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace stof::mask {

/// Bits of a boolean array, row-major, 64 per word, every row padded to whole words.
/// shape is [B, H, Sq, Sk], extents of 1 broadcast.
struct BitArray {
  std::int64_t shape[4] = {1, 1, 1, 1};
  std::vector<std::uint64_t> words;
  std::int64_t words_per_row() const { return (shape[3] + 63) / 64; }
  bool operator==(const BitArray& other) const = default;
};

using IntList = std::vector<std::int64_t>;
/// Ragged lists of lists, e.g. a block list's heads[h][row] = columns.
using BlockRows = std::vector<std::vector<std::vector<std::int32_t>>>;

/// An argument. Large ones are shared, not copied.
using Value = std::variant<bool, std::int64_t, std::uint64_t, double, IntList,
                           std::shared_ptr<const BitArray>, std::shared_ptr<const BlockRows>>;

struct Spec {
  std::string name;  ///< "window", "and", ...
  std::vector<std::pair<std::string, Value>> args;  ///< in signature order, defaults included
  std::vector<std::shared_ptr<const class Node>> children;
};

}  // namespace stof::mask
