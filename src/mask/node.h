#pragma once
// Node: one vertex of a mask expression. Each primitive and operator is a small subclass.

#include <cstdint>
#include <memory>
#include <string>

#include "mask/spec.h"
#include "stof/mask.h"

namespace stof::mask {

/// Immutable. All questions are asked with bound coordinates; any int64 position is allowed.
class Node {
 public:
  virtual ~Node() = default;

  virtual bool visible(std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t k) const = 0;

  /// See Mask::classify().
  virtual TileClass classify(std::int64_t b, std::int64_t h, const TileRect& rect) const = 0;

  /// See Mask::row_bits(). The default asks visible() 64 times; primitives override it.
  virtual std::uint64_t row_bits(std::int64_t b, std::int64_t h, std::int64_t q,
                                 std::int64_t k_begin) const;

  virtual std::int64_t batch_extent() const { return 1; }
  virtual std::int64_t head_extent() const { return 1; }

  /// This node resolved for a shape, or null when it stays as it is. Throws InvalidArgument where
  /// an array does not fit the shape.
  virtual std::shared_ptr<const Node> bind(const ScoreShape& shape, Alignment alignment) const;
  virtual bool bound() const { return true; }

  /// Name, arguments and children: what text, JSON and the fingerprint are made of. A registry
  /// (mask/registry.h) builds the node back from it.
  virtual Spec spec() const = 0;
};

}  // namespace stof::mask
