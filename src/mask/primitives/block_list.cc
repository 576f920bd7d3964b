// block_list(): visible blocks of a grid, uniform or ragged.

#include <algorithm>

#include "core/bits.h"
#include "mask/arguments.h"
#include "mask/block_table.h"
#include "mask/node.h"

namespace stof::mask {
namespace {

/// One side of the grid. Blocks of no tokens hold no position and have no index here.
class BlockAxis {
 public:
  /// Uniform blocks without end, or the ragged ones of `sizes`.
  BlockAxis(std::int64_t block, const IntList& sizes) : block_(block) {
    if (block > 0) return;
    for (const std::int64_t size : sizes) {
      index_.push_back(size > 0 ? static_cast<std::int64_t>(starts_.size()) - 1 : -1);
      if (size > 0) starts_.push_back(starts_.back() + size);
    }
  }

  /// Tokens, of `num_blocks` blocks where they are uniform.
  std::int64_t length(std::int64_t num_blocks) const {
    return block_ > 0 ? num_blocks * block_ : starts_.back();
  }
  /// The block of a token inside.
  std::int64_t block_of(std::int64_t position) const {
    if (block_ > 0) return position / block_;
    return std::upper_bound(starts_.begin(), starts_.end(), position) - starts_.begin() - 1;
  }
  std::int64_t start(std::int64_t block) const {
    return block_ > 0 ? block * block_ : starts_[static_cast<std::size_t>(block)];
  }
  /// Index here of a block of the user's, -1 if it has no tokens.
  std::int64_t index(std::int64_t block) const {
    return block_ > 0 ? block : index_[static_cast<std::size_t>(block)];
  }

 private:
  std::int64_t block_;
  std::vector<std::int64_t> starts_{0};  ///< of non-empty ragged blocks; the last is the length
  std::vector<std::int64_t> index_;
};

class Blocks final : public Node {
 public:
  /// `list` is checked and its rows ascend.
  explicit Blocks(BlockList list)
      : list_(std::move(list)),
        rows_(list_.block_q, list_.row_sizes),
        cols_(list_.block_kv, list_.col_sizes) {
    for (const auto& head : list_.heads) {
      BlockTable& table = tables_.emplace_back();
      for (std::size_t r = 0; r < head.size(); ++r) {
        if (rows_.index(static_cast<std::int64_t>(r)) < 0) continue;
        for (const std::int32_t col : head[r])
          if (const std::int64_t c = cols_.index(col); c >= 0)
            table.cols.push_back(static_cast<std::int32_t>(c));
        table.end_row();
      }
    }
    spec_rows_ = std::make_shared<const BlockRows>(std::move(list_.heads));
    q_limit_ = rows_.length(tables_.front().num_rows());
    k_limit_ = list_.block_kv > 0 ? kUnbounded : cols_.length(0);
  }

  bool visible(std::int64_t, std::int64_t h, std::int64_t q, std::int64_t k) const override {
    if (q < 0 || q >= q_limit_ || k < 0 || k >= k_limit_) return false;
    const std::int64_t col = cols_.block_of(k);
    return !table(h).columns(rows_.block_of(q), col, col + 1).empty();
  }
  TileClass classify(std::int64_t, std::int64_t h, const TileRect& rect) const override {
    const ClippedRect c = clip(rect, q_limit_, k_limit_);
    if (c.empty) return TileClass::kEmpty;
    const TileClass found =
        table(h).classify(rows_.block_of(c.rect.q_begin), rows_.block_of(c.rect.q_end - 1) + 1,
                          cols_.block_of(c.rect.k_begin), cols_.block_of(c.rect.k_end - 1) + 1);
    return found == TileClass::kFull && c.clipped ? TileClass::kPartial : found;
  }
  std::uint64_t row_bits(std::int64_t, std::int64_t h, std::int64_t q,
                         std::int64_t k_begin) const override {
    const ClippedRect c = clip({q, q + 1, k_begin, k_begin + 64}, q_limit_, k_limit_);
    if (c.empty) return 0;
    std::uint64_t bits = 0;
    for (const std::int32_t col :
         table(h).columns(rows_.block_of(q), cols_.block_of(c.rect.k_begin),
                          cols_.block_of(c.rect.k_end - 1) + 1))
      bits |= bits_of_range(k_begin, cols_.start(col), cols_.start(std::int64_t{col} + 1));
    return bits;
  }
  std::int64_t head_extent() const override { return static_cast<std::int64_t>(tables_.size()); }

  std::shared_ptr<const Node> bind(const BindContext& context) const override {
    const ScoreShape& shape = context.shape;
    STOF_CHECK(head_extent() == 1 || head_extent() == shape.num_heads, kInvalidArgument,
               "block_list: expected 1 or {} heads for scores {}, got {}", shape.num_heads,
               shape.to_string(), head_extent());
    if (context.free_lengths) return nullptr;
    const auto block_rows = static_cast<std::int64_t>(spec_rows_->front().size());
    if (list_.block_q > 0)
      STOF_CHECK(block_rows == ceil_div(shape.seq_q, list_.block_q), kInvalidArgument,
                 "block_list: expected {} block rows of {} for {} queries, got {}",
                 ceil_div(shape.seq_q, list_.block_q), list_.block_q, shape.seq_q, block_rows);
    else
      STOF_CHECK(q_limit_ == shape.seq_q, kInvalidArgument,
                 "block_list: expected row_sizes that add up to {} queries, got {}", shape.seq_q,
                 q_limit_);
    if (list_.block_kv > 0)
      check_columns(ceil_div(shape.seq_kv, list_.block_kv), shape.seq_kv);
    else
      STOF_CHECK(k_limit_ == shape.seq_kv, kInvalidArgument,
                 "block_list: expected col_sizes that add up to {} keys, got {}", shape.seq_kv,
                 k_limit_);
    return nullptr;
  }
  Spec spec() const override {
    return {"block_list",
            {{"block_q", list_.block_q},
             {"block_kv", list_.block_kv},
             {"row_sizes", list_.row_sizes},
             {"col_sizes", list_.col_sizes},
             {"heads", spec_rows_}},
            {}};
  }

 private:
  const BlockTable& table(std::int64_t h) const {
    return tables_[entry_index("block_list", "head", h, head_extent())];
  }
  void check_columns(std::int64_t num_cols, std::int64_t seq_kv) const {
    for (std::size_t h = 0; h < spec_rows_->size(); ++h)
      for (std::size_t r = 0; r < (*spec_rows_)[h].size(); ++r) {
        const auto& row = (*spec_rows_)[h][r];
        STOF_CHECK(
            row.empty() || row.back() < num_cols, kInvalidArgument,
            "block_list(heads[{}][{}]): expected columns below {} ({} keys in blocks of {}), "
            "got {}",
            h, r, num_cols, seq_kv, list_.block_kv, row.back());
      }
  }

  BlockList list_;  ///< without heads, which are in spec_rows_
  BlockAxis rows_, cols_;
  std::shared_ptr<const BlockRows> spec_rows_;
  std::vector<BlockTable> tables_;  ///< one per head
  std::int64_t q_limit_ = 0, k_limit_ = 0;
};

/// One side is either uniform or ragged.
void check_axis(const char* block_name, std::int64_t block, const char* sizes_name,
                const IntList& sizes) {
  if (sizes.empty()) {
    check_argument("block_list", block_name, block, 1);
    return;
  }
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    STOF_CHECK(sizes[i] >= 0 && sizes[i] <= kMaxPosition - sum, kInvalidArgument,
               "block_list({}[{}]={}): expected at least 0 and a sum of at most {}", sizes_name, i,
               sizes[i], kMaxPosition);
    sum += sizes[i];
  }
}

}  // namespace

Mask block_list(BlockList list) {
  check_axis("block_q", list.block_q, "row_sizes", list.row_sizes);
  check_axis("block_kv", list.block_kv, "col_sizes", list.col_sizes);
  if (!list.row_sizes.empty()) list.block_q = 0;
  if (!list.col_sizes.empty()) list.block_kv = 0;
  STOF_CHECK(!list.heads.empty(), kInvalidArgument,
             "block_list(heads=[]): expected one list of block rows, or one per head");
  const std::size_t num_rows =
      list.row_sizes.empty() ? list.heads.front().size() : list.row_sizes.size();
  for (std::size_t h = 0; h < list.heads.size(); ++h) {
    STOF_CHECK(list.heads[h].size() == num_rows, kInvalidArgument,
               "block_list(heads[{}]): expected {} block rows, got {}", h, num_rows,
               list.heads[h].size());
    for (std::size_t r = 0; r < num_rows; ++r) {
      auto& row = list.heads[h][r];
      std::sort(row.begin(), row.end());
      const auto twice = std::adjacent_find(row.begin(), row.end());
      STOF_CHECK(twice == row.end(), kInvalidArgument,
                 "block_list(heads[{}][{}]): block column {} is listed twice", h, r, *twice);
      STOF_CHECK(row.empty() || row.front() >= 0, kInvalidArgument,
                 "block_list(heads[{}][{}]): expected block columns of at least 0, got {}", h, r,
                 row.front());
      STOF_CHECK(list.block_kv > 0 || row.empty() ||
                     row.back() < static_cast<std::int64_t>(list.col_sizes.size()),
                 kInvalidArgument,
                 "block_list(heads[{}][{}]): expected columns below {} (the col_sizes), got {}", h,
                 r, list.col_sizes.size(), row.back());
    }
  }
  STOF_CHECK(
      list.block_q == 0 || static_cast<std::int64_t>(num_rows) <= kMaxPosition / list.block_q,
      kInvalidArgument, "block_list(block_q={}): {} block rows pass position {}", list.block_q,
      num_rows, kMaxPosition);
  return Mask(std::make_shared<Blocks>(std::move(list)));
}

}  // namespace stof::mask
