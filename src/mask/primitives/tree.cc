// tree(): the ancestors of every node of a speculation tree.

#include <algorithm>

#include "mask/arguments.h"
#include "mask/node.h"

namespace stof::mask {
namespace {

class Tree final : public Node {
 public:
  Tree(IntList parents, std::int64_t prefix)
      : parents_(std::move(parents)),
        prefix_(prefix),
        size_(static_cast<std::int64_t>(parents_.size())),
        enter_(parents_.size()),
        leave_(parents_.size()),
        jump_(parents_.size(), -1) {
    number_nodes();
    build_jumps();
  }

  bool visible(std::int64_t, std::int64_t, std::int64_t q, std::int64_t k) const override {
    if (q < 0 || q >= size_ || k < 0 || k >= prefix_ + size_) return false;
    return k < prefix_ || is_ancestor(k - prefix_, q);
  }
  TileClass classify(std::int64_t, std::int64_t, const TileRect& rect) const override {
    const ClippedRect c = clip(rect, size_, prefix_ + size_);
    if (c.empty) return TileClass::kEmpty;
    const std::int64_t q0 = c.rect.q_begin, q1 = c.rect.q_end;
    const std::int64_t j0 = std::max<std::int64_t>(c.rect.k_begin - prefix_, 0);
    const std::int64_t j1 = c.rect.k_end - prefix_;
    const bool in_prefix = c.rect.k_begin < prefix_;
    if (!in_prefix && !any_ancestor(q0, q1, j0, j1)) return TileClass::kEmpty;
    return !c.clipped && (j1 <= 0 || all_ancestors(q0, q1, j0, j1)) ? TileClass::kFull
                                                                    : TileClass::kPartial;
  }
  std::uint64_t row_bits(std::int64_t, std::int64_t, std::int64_t q,
                         std::int64_t k_begin) const override {
    if (q < 0 || q >= size_) return 0;
    std::uint64_t bits = bits_of_range(k_begin, 0, prefix_);
    // Up the ancestors from the last one in reach.
    const std::int64_t first = k_begin - prefix_;
    for (std::int64_t j = ancestor_below(q, first + 64); j >= std::max<std::int64_t>(first, 0);
         j = parent(j))
      bits |= std::uint64_t{1} << (j - first);
    return bits;
  }
  std::shared_ptr<const Node> bind(const BindContext& context) const override {
    const ScoreShape& shape = context.shape;
    STOF_CHECK(context.free_lengths || (shape.seq_q == size_ && shape.seq_kv == prefix_ + size_),
               kInvalidArgument,
               "tree: expected one query per node, {}, and {} keys (a prefix of {} and the nodes), "
               "got {} and {} in scores {}",
               size_, prefix_ + size_, prefix_, shape.seq_q, shape.seq_kv, shape.to_string());
    return nullptr;
  }
  Spec spec() const override { return {"tree", {{"parents", parents_}, {"prefix", prefix_}}, {}}; }

 private:
  std::int64_t parent(std::int64_t node) const { return parents_[static_cast<std::size_t>(node)]; }
  std::int64_t enter(std::int64_t node) const { return enter_[static_cast<std::size_t>(node)]; }
  std::int64_t leave(std::int64_t node) const { return leave_[static_cast<std::size_t>(node)]; }

  bool is_ancestor(std::int64_t j, std::int64_t i) const {
    return enter(j) <= enter(i) && enter(i) < leave(j);
  }

  /// Gives every node the interval of its subtree in depth-first order. Parents come first in
  /// parents_, so sizes add up backwards and places are handed out forwards.
  void number_nodes() {
    std::vector<std::int64_t> subtree(parents_.size(), 1), next(parents_.size());
    for (std::size_t i = parents_.size(); i-- > 0;)
      if (parents_[i] >= 0) subtree[static_cast<std::size_t>(parents_[i])] += subtree[i];
    std::int64_t next_root = 0;
    for (std::size_t i = 0; i < parents_.size(); ++i) {
      std::int64_t& place =
          parents_[i] < 0 ? next_root : next[static_cast<std::size_t>(parents_[i])];
      enter_[i] = place;
      leave_[i] = place + subtree[i];
      next[i] = place + 1;
      place += subtree[i];
    }
  }

  /// jump_[i] is an ancestor such that any ancestor is met in O(log n) steps of jump or parent
  /// (Myers 1983, "An applicative random-access stack").
  void build_jumps() {
    std::vector<std::int64_t> depth(parents_.size());
    const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
    for (std::size_t i = 0; i < parents_.size(); ++i) {
      const std::int64_t p = parents_[i];
      if (p < 0) continue;
      depth[i] = depth[at(p)] + 1;
      jump_[i] = p;
      const std::int64_t j = jump_[at(p)];
      if (j >= 0 && jump_[at(j)] >= 0 &&
          depth[at(p)] - depth[at(j)] == depth[at(j)] - depth[at(jump_[at(j)])])
        jump_[i] = jump_[at(j)];
    }
  }

  /// The last of i and its ancestors whose index is below the limit, or -1. Indices fall on the way
  /// up.
  std::int64_t ancestor_below(std::int64_t i, std::int64_t limit) const {
    while (i >= limit && i >= 0) {
      const std::int64_t j = jump_[static_cast<std::size_t>(i)];
      i = j >= limit ? j : parent(i);
    }
    return i;
  }

  bool any_ancestor(std::int64_t q0, std::int64_t q1, std::int64_t j0, std::int64_t j1) const {
    if (std::max(q0, j0) < std::min(q1, j1)) return true;  // a node sees itself
    for (std::int64_t q = std::max(q0, j0); q < q1; ++q)
      if (ancestor_below(q, j1) >= j0) return true;
    return false;
  }

  /// Every query of [q0, q1) lies in the subtree of every node of [j0, j1).
  bool all_ancestors(std::int64_t q0, std::int64_t q1, std::int64_t j0, std::int64_t j1) const {
    if (j1 - 1 > q0) return false;
    std::int64_t low = 0, high = size_;
    for (std::int64_t j = j0; j < j1; ++j) {
      low = std::max(low, enter(j));
      high = std::min(high, leave(j));
    }
    for (std::int64_t q = q0; q < q1 && low < high; ++q)
      if (enter(q) < low || enter(q) >= high) return false;
    return low < high;
  }

  IntList parents_;
  std::int64_t prefix_, size_;
  std::vector<std::int64_t> enter_, leave_;  ///< a node's subtree in depth-first order
  std::vector<std::int64_t> jump_;
};

}  // namespace

Mask tree(const std::vector<std::int64_t>& parents, std::int64_t prefix) {
  check_argument("tree", "prefix", prefix, 0);
  for (std::size_t i = 0; i < parents.size(); ++i)
    STOF_CHECK(parents[i] >= -1 && parents[i] < static_cast<std::int64_t>(i), kInvalidArgument,
               "tree(parents[{}]={}): expected -1 (a root) or a node before it", i, parents[i]);
  return Mask(std::make_shared<Tree>(parents, prefix));
}

}  // namespace stof::mask
