#include "stof/mask.h"

#include <bit>
#include <utility>

#include "core/check.h"
#include "mask/node.h"
#include "mask/node_factories.h"

namespace stof::mask {
namespace {

/// Appends the visible keys of [k_begin, k_end), halving what is neither full nor empty.
void append_keys(const Node& node, std::int64_t b, std::int64_t h, std::int64_t q,
                 std::int64_t k_begin, std::int64_t k_end, std::vector<std::int64_t>& keys) {
  const TileClass found = node.classify(b, h, {q, q + 1, k_begin, k_end});
  if (found == TileClass::kEmpty) return;
  if (found == TileClass::kFull) {
    for (std::int64_t k = k_begin; k < k_end; ++k) keys.push_back(k);
    return;
  }
  const std::int64_t length = k_end - k_begin;
  if (length <= 64) {
    std::uint64_t bits = node.row_bits(b, h, q, k_begin);
    if (length < 64) bits &= (std::uint64_t{1} << length) - 1;
    for (; bits != 0; bits &= bits - 1) keys.push_back(k_begin + std::countr_zero(bits));
    return;
  }
  const std::int64_t middle = k_begin + length / 2;
  append_keys(node, b, h, q, k_begin, middle, keys);
  append_keys(node, b, h, q, middle, k_end, keys);
}

}  // namespace

const char* to_string(TileClass tile_class) {
  switch (tile_class) {
    case TileClass::kEmpty:
      return "empty";
    case TileClass::kPartial:
      return "partial";
    case TileClass::kFull:
      return "full";
  }
  return "unknown";
}

const char* to_string(Alignment alignment) {
  return alignment == Alignment::kTopLeft ? "top_left" : "bottom_right";
}

std::string ScoreShape::to_string() const {
  return fmt::format("[{}, {}, {}, {}]", batch, num_heads, seq_q, seq_kv);
}

Mask::Mask() : Mask(all()) {}

Mask::Mask(std::shared_ptr<const Node> node) : node_(std::move(node)) {
  STOF_ASSERT(node_ != nullptr);
}

bool Mask::visible(std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t k) const {
  return node_->visible(b, h, q, k);
}

TileClass Mask::classify(std::int64_t b, std::int64_t h, const TileRect& rect) const {
  STOF_CHECK(rect.q_begin < rect.q_end && rect.k_begin < rect.k_end, kInvalidArgument,
             "classify: expected a rectangle with rows and columns, got queries [{}, {}), keys "
             "[{}, {})",
             rect.q_begin, rect.q_end, rect.k_begin, rect.k_end);
  return node_->classify(b, h, rect);
}

std::uint64_t Mask::row_bits(std::int64_t b, std::int64_t h, std::int64_t q,
                             std::int64_t k_begin) const {
  return node_->row_bits(b, h, q, k_begin);
}

std::vector<std::int64_t> Mask::visible_keys(std::int64_t b, std::int64_t h, std::int64_t q,
                                             std::int64_t seq_kv) const {
  STOF_CHECK(seq_kv >= 0, kInvalidArgument, "visible_keys: expected seq_kv of at least 0, got {}",
             seq_kv);
  std::vector<std::int64_t> keys;
  if (seq_kv > 0) append_keys(*node_, b, h, q, 0, seq_kv, keys);
  return keys;
}

std::int64_t Mask::batch_extent() const { return node_->batch_extent(); }

std::int64_t Mask::head_extent() const { return node_->head_extent(); }

Mask Mask::bind(const ScoreShape& shape, Alignment alignment) const {
  STOF_CHECK(shape.batch >= 1 && shape.num_heads >= 1 && shape.seq_q >= 0 && shape.seq_kv >= 0,
             kInvalidArgument,
             "bind: expected a batch and heads of at least 1 and lengths of at least 0, got {}",
             shape.to_string());
  const std::shared_ptr<const Node> resolved = node_->bind({shape, alignment});
  const Mask child = resolved ? Mask(resolved) : *this;
  return node_->spec().name == "bound" ? child : make_bound(child, shape, alignment);
}

bool Mask::bound() const { return node_->bound(); }

}  // namespace stof::mask
