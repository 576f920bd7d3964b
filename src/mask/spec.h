#pragma once
// Spec: a mask expression as plain data, the common ground of text, JSON and fingerprint.
//
// Every node's name and arguments, in this order, defaults included. They hold all that is needed
// to build the node again. int = int64_t, list = IntList.
//
//   all()  none()
//   causal(int offset)
//   window(int left, int right)                  negative = unbounded
//   chunked(int n)  block_causal(int n)
//   block_window(int block, int left, int right) negative = unbounded
//   prefix(int n)  sink(int n)
//   global(int rows, int cols)
//   global_tokens(list tokens, bool rows, bool cols)        tokens sorted and distinct
//   dilated(int window, int rate)  strided(int local, int stride)
//   summary(int stride, int count)
//   document(list lengths)  key_lengths(list lengths)
//   neighbourhood(list grid, list kernel, list dilation, list tile, list shift)   none empty
//   tree(list parents, int prefix)
//   block_list(int block_q, int block_kv, list row_sizes, list col_sizes, BlockRows heads)
//                                                rows sorted; an unused size is 0 or empty
//   random_blocks(int block, int count, uint64 seed, bool per_head,
//                 int heads, int q_blocks, int kv_blocks)   heads: 0 until bound (then the other
//                                                two are 0 too), else the number of patterns
//   random_blocks_rate(int block, double rate, uint64 seed, bool per_head)
//   random_elements(double rate, uint64 seed, bool per_head)
//   intervals(int lists, list begin, list end)   the lists one after the other
//   dense(BitArray visible)
//   predicate(string text, IntTables tables)     canonical text; the tables that it reads, by name
//   and[children]  or[children]                  two or more
//   not[child]
//   shifted(int dq, int dk)[child]
//   per_head[children]  per_batch[children]      one or more
//   batch_entry(int entry)[child]
//   bound(int batch, int heads, int seq_q, int seq_kv, bool bottom_right)[child]
//                                                what bind() returns; the child is resolved

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "expr/int_table.h"

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

/// Tables that a predicate reads.
using IntTables = std::vector<std::shared_ptr<const expr::IntTable>>;

/// An argument. Large ones are shared, not copied.
using Value =
    std::variant<bool, std::int64_t, std::uint64_t, double, std::string, IntList,
                 std::shared_ptr<const BitArray>, std::shared_ptr<const BlockRows>, IntTables>;

struct Spec {
  std::string name;                                 ///< "window", "and", ...
  std::vector<std::pair<std::string, Value>> args;  ///< in signature order, defaults included
  std::vector<std::shared_ptr<const class Node>> children;
};

}  // namespace stof::mask
