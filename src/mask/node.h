#pragma once
// Node: one vertex of a mask expression. Each primitive and operator is a small subclass.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "mask/spec.h"
#include "stof/mask.h"

namespace stof::mask {

/// What bind() resolves against.
struct BindContext {
  ScoreShape shape;
  Alignment alignment = Alignment::kTopLeft;
  /// Below a shifted() of the user's or a batch_entry(), where an array need not match the shape's
  /// extents.
  bool free_lengths = false;

  /// Added to a query's index to get its position among the keys.
  std::int64_t query_offset() const {
    return alignment == Alignment::kBottomRight ? shape.seq_kv - shape.seq_q : 0;
  }
};

/// Immutable. Positions may be negative or past the end, up to kMaxPosition (mask/interval.h) times
/// the depth of the expression; nothing is ever allocated or looped over in their proportion.
class Node : public std::enable_shared_from_this<Node> {
 public:
  virtual ~Node() = default;

  virtual bool visible(std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t k) const = 0;

  /// See Mask::classify().
  virtual TileClass classify(std::int64_t b, std::int64_t h, const TileRect& rect) const = 0;

  /// See Mask::row_bits(). The default asks visible() 64 times; primitives override it.
  virtual std::uint64_t row_bits(std::int64_t b, std::int64_t h, std::int64_t q,
                                 std::int64_t k_begin) const;

  /// See Mask::batch_extent(). 0 where every entry differs and their number is not yet bound.
  virtual std::int64_t batch_extent() const { return 1; }
  virtual std::int64_t head_extent() const { return 1; }

  /// Where not 0: q + p sees k + p exactly when q sees k, for all multiples p of this and positions
  /// inside the sequences.
  virtual std::int64_t diagonal_period() const { return 0; }

  /// This node resolved for a shape, or null when it stays as it is. Throws InvalidArgument where
  /// an array does not fit the shape.
  virtual std::shared_ptr<const Node> bind(const BindContext& context) const;
  /// False where visible() would have to know the lengths.
  virtual bool bound() const { return true; }

  /// Name, arguments and children: what text, JSON and the fingerprint are made of. A registry
  /// (mask/registry.h) builds the node back from it.
  virtual Spec spec() const = 0;
};

/// A primitive whose arguments are few: it keeps its spec.
class Leaf : public Node {
 public:
  explicit Leaf(Spec spec) : spec_(std::move(spec)) {}
  Spec spec() const final { return spec_; }

 private:
  Spec spec_;
};

/// bind() of a primitive that speaks of query positions: shifted by the alignment's offset.
std::shared_ptr<const Node> bind_positional(const Node& node, const BindContext& context);

/// A Leaf about query positions.
class PositionalLeaf : public Leaf {
 public:
  using Leaf::Leaf;
  std::shared_ptr<const Node> bind(const BindContext& context) const final {
    return bind_positional(*this, context);
  }
};

}  // namespace stof::mask
