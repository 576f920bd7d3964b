// random_blocks_count(): a fixed number of blocks per block row.

#include <algorithm>
#include <limits>
#include <mutex>

#include "core/bits.h"
#include "mask/arguments.h"
#include "mask/block_table.h"
#include "mask/node.h"
#include "mask/node_factories.h"
#include "mask/random.h"

namespace stof::mask {
namespace {

/// Most keys that are drawn for one mask: a minute's work, and far past any mask of use.
constexpr std::int64_t kMaxKeys = std::int64_t{1} << 36;
/// Most blocks that are kept: 8 GiB of columns.
constexpr std::int64_t kMaxBlocks = std::int64_t{1} << 31;

struct BlockGrid {
  std::int64_t heads = 0, q_blocks = 0, kv_blocks = 0;
};

/// Draws one head's pattern.
BlockTable draw(const BlockGrid& grid, std::int64_t count, std::uint64_t seed, std::int64_t head) {
  BlockTable table;
  count = std::min(count, grid.kv_blocks);
  std::vector<std::uint64_t> keys(static_cast<std::size_t>(grid.kv_blocks)), sorted;
  for (std::int64_t row = 0; row < grid.q_blocks; ++row) {
    if (count > 0) {
      const RandomRow source(seed, head, row);
      for (std::int64_t c = 0; c < grid.kv_blocks; ++c)
        keys[static_cast<std::size_t>(c)] = source.key(c);
      sorted = keys;
      const auto last = sorted.begin() + count - 1;
      std::nth_element(sorted.begin(), last, sorted.end());
      for (std::int64_t c = 0; c < grid.kv_blocks; ++c)
        if (keys[static_cast<std::size_t>(c)] <= *last)
          table.cols.push_back(static_cast<std::int32_t>(c));
    }
    table.end_row();
  }
  return table;
}

class RandomBlocks final : public Leaf {
 public:
  RandomBlocks(std::int64_t block, std::int64_t count, std::uint64_t seed, bool per_head,
               const BlockGrid& grid)
      : Leaf({"random_blocks",
              {{"block", block},
               {"count", count},
               {"seed", seed},
               {"per_head", per_head},
               {"heads", grid.heads},
               {"q_blocks", grid.q_blocks},
               {"kv_blocks", grid.kv_blocks}},
              {}}),
        block_(block),
        count_(count),
        seed_(seed),
        per_head_(per_head),
        grid_(grid) {}

  bool visible(std::int64_t, std::int64_t h, std::int64_t q, std::int64_t k) const override {
    const BlockTable& drawn = table(h);
    if (q < 0 || q >= q_limit() || k < 0) return false;
    return !drawn.columns(q / block_, k / block_, k / block_ + 1).empty();
  }
  TileClass classify(std::int64_t, std::int64_t h, const TileRect& rect) const override {
    const BlockTable& drawn = table(h);
    const ClippedRect c = clip(rect, q_limit());
    if (c.empty) return TileClass::kEmpty;
    const TileClass found =
        drawn.classify(c.rect.q_begin / block_, (c.rect.q_end - 1) / block_ + 1,
                       c.rect.k_begin / block_, (c.rect.k_end - 1) / block_ + 1);
    return found == TileClass::kFull && c.clipped ? TileClass::kPartial : found;
  }
  std::uint64_t row_bits(std::int64_t, std::int64_t h, std::int64_t q,
                         std::int64_t k_begin) const override {
    const BlockTable& drawn = table(h);
    const ClippedRect c = clip({q, q + 1, k_begin, k_begin + 64}, q_limit());
    if (c.empty) return 0;
    std::uint64_t bits = 0;
    for (const std::int64_t col :
         drawn.columns(q / block_, c.rect.k_begin / block_, (c.rect.k_end - 1) / block_ + 1))
      bits |= bits_of_range(k_begin, col * block_, (col + 1) * block_);
    return bits;
  }
  std::int64_t head_extent() const override { return per_head_ ? grid_.heads : 1; }

  std::shared_ptr<const Node> bind(const BindContext& context) const override {
    if (bound()) return bind_positional(*this, context);
    const ScoreShape& shape = context.shape;
    // The grid reaches to the last query's position, so that a step draws what a whole pass over as
    // many keys does.
    const std::int64_t offset = context.query_offset();
    const std::int64_t rows = std::max<std::int64_t>(shape.seq_q + offset, 0);
    const Mask drawn =
        random_blocks_of_grid(block_, count_, seed_, per_head_, per_head_ ? shape.num_heads : 1,
                              ceil_div(rows, block_), ceil_div(shape.seq_kv, block_));
    return offset == 0 ? drawn.shared_node() : shifted(drawn, offset, 0).shared_node();
  }
  bool bound() const override { return grid_.heads > 0; }

 private:
  std::int64_t q_limit() const { return grid_.q_blocks * block_; }

  /// Drawn at the first question, so that to parse a mask costs nothing.
  const BlockTable& table(std::int64_t h) const {
    STOF_CHECK(
        bound(), kInvalidArgument,
        "random_blocks: the columns depend on the number of keys; bind() the mask to a shape "
        "before asking what is visible");
    std::call_once(drawn_, [this] {
      for (std::int64_t head = 0; head < grid_.heads; ++head)
        tables_.push_back(draw(grid_, count_, seed_, head));
    });
    return tables_[entry_index("random_blocks", "head", h, grid_.heads)];
  }

  std::int64_t block_, count_;
  std::uint64_t seed_;
  bool per_head_;
  BlockGrid grid_;
  mutable std::once_flag drawn_;
  mutable std::vector<BlockTable> tables_;  ///< one per pattern
};

}  // namespace

Mask random_blocks_of_grid(std::int64_t block, std::int64_t count, std::uint64_t seed,
                           bool per_head, std::int64_t heads, std::int64_t q_blocks,
                           std::int64_t kv_blocks) {
  check_argument("random_blocks", "block", block, 1);
  check_argument("random_blocks", "count", count, 0);
  STOF_CHECK(heads == 0 ? q_blocks == 0 && kv_blocks == 0
                        : heads > 0 && q_blocks >= 0 && kv_blocks >= 0 && (per_head || heads == 1),
             kInvalidArgument,
             "random_blocks(heads={}, q_blocks={}, kv_blocks={}): expected all 0, or one pattern "
             "(several with per_head) of a grid",
             heads, q_blocks, kv_blocks);
  constexpr std::int64_t kMaxSide = std::numeric_limits<std::int32_t>::max();
  const bool small = q_blocks <= std::min(kMaxSide, kMaxPosition / block) &&
                     kv_blocks <= kMaxSide && heads <= kMaxSide &&
                     (q_blocks == 0 || kv_blocks <= kMaxKeys / q_blocks) &&
                     heads * q_blocks <= kMaxSide && heads * q_blocks * kv_blocks <= kMaxKeys &&
                     heads * q_blocks * std::min(count, kv_blocks) <= kMaxBlocks;
  STOF_CHECK(small, kInvalidArgument,
             "random_blocks(block={}, count={}): {} x {} blocks for {} heads are too many to draw; "
             "use larger blocks, or random_blocks_rate",
             block, count, q_blocks, kv_blocks, heads);
  return Mask(std::make_shared<RandomBlocks>(block, count, seed, per_head,
                                             BlockGrid{heads, q_blocks, kv_blocks}));
}

Mask random_blocks_count(std::int64_t block, std::int64_t count, std::uint64_t seed,
                         bool per_head) {
  return random_blocks_of_grid(block, count, seed, per_head, 0, 0, 0);
}

}  // namespace stof::mask
