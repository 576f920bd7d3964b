// Predicates of divisions and remainders that are neighbourhood() along one dimension of a token
// grid, as NATTEN's examples are written:
//
//   abs(min(max(q // 64, 3), 28) - k // 64) <= 3     rows of 64 tokens, 32 of them
//   abs(min(max(q % 64, 3), 60) - k % 64) <= 3       places in them
//
// The grid ends where the clamp says, so this waits for the shape, whose tokens must lie on it.

#include <algorithm>

#include "core/bits.h"
#include "mask/interval.h"
#include "mask/predicate_atom.h"

namespace stof::mask {
namespace {

using expr::Op;
using I = std::int64_t;

/// The coordinate (token // stride) % extent; extent 0: without the remainder.
struct Coordinate {
  Op token = Op::kQuery;
  I stride = 1;
  I extent = 0;
};

struct Clamped {
  std::int32_t inside;
  I lo, hi;
};

class Matcher {
 public:
  explicit Matcher(const expr::Expression& expression) : nodes_(expression.nodes()) {}

  const expr::Node& at(std::int32_t node) const { return nodes_[static_cast<std::size_t>(node)]; }

  std::optional<Coordinate> coordinate(std::int32_t index) const {
    const expr::Node& node = at(index);
    if (node.op == Op::kQuery || node.op == Op::kKey) return Coordinate{node.op, 1, 0};
    if (node.op != Op::kFloorDiv && node.op != Op::kMod) return std::nullopt;
    std::optional<Coordinate> inner = coordinate(node.args[0]);
    const expr::Node& by = at(node.args[1]);
    if (!inner || by.op != Op::kConstant || by.integer < 1 || by.integer > kMaxPosition)
      return std::nullopt;
    if (node.op == Op::kMod) {
      if (inner->extent != 0) return std::nullopt;
      inner->extent = by.integer;
    } else if (inner->extent == 0) {  // t // a // b
      if (inner->stride > kMaxPosition / by.integer) return std::nullopt;
      inner->stride *= by.integer;
    } else {  // t % (a * b) // a
      if (inner->extent % by.integer != 0 || inner->stride != 1) return std::nullopt;
      inner->stride = by.integer;
      inner->extent /= by.integer;
    }
    return inner;
  }

  /// min(max(x, lo), hi), or the other way round.
  std::optional<Clamped> clamped(std::int32_t index) const {
    const Op outer = at(index).op;
    if (outer != Op::kMin && outer != Op::kMax) return std::nullopt;
    const auto first = with_constant(index);
    if (!first || at(first->first).op != (outer == Op::kMin ? Op::kMax : Op::kMin))
      return std::nullopt;
    const auto second = with_constant(first->first);
    if (!second) return std::nullopt;
    const I hi = outer == Op::kMin ? first->second : second->second;
    const I lo = outer == Op::kMin ? second->second : first->second;
    if (lo > hi) return std::nullopt;
    return Clamped{second->first, lo, hi};
  }

 private:
  /// The operands of an operation with a constant.
  std::optional<std::pair<std::int32_t, I>> with_constant(std::int32_t index) const {
    const expr::Node& node = at(index);
    for (const std::size_t i : {0u, 1u})
      if (at(node.args[i]).op == Op::kConstant)
        return std::pair(node.args[1 - i], at(node.args[i]).integer);
    return std::nullopt;
  }

  std::span<const expr::Node> nodes_;
};

/// A grid on which every coordinate but this one is free.
std::optional<Mask> along(const Coordinate& axis, I extent, I kernel, I tokens) {
  if (axis.extent != 0 && axis.extent != extent) return std::nullopt;
  if (extent > kMaxPosition / axis.stride) return std::nullopt;
  const I plane = extent * axis.stride;
  Neighbourhood grid;
  if (axis.extent != 0) {
    const I planes = ceil_div(std::max<I>(tokens, 1), plane);
    if (plane > kMaxPosition / planes) return std::nullopt;
    if (planes > 1) grid.grid.push_back(planes);
  } else if (tokens > plane) {
    return std::nullopt;
  }
  grid.grid.push_back(extent);
  if (axis.stride > 1) grid.grid.push_back(axis.stride);
  grid.kernel = grid.grid;
  grid.kernel[grid.grid.size() - (axis.stride > 1 ? 2 : 1)] = kernel;
  return neighbourhood(grid);
}

}  // namespace

std::optional<Mask> recognise_grid(const expr::Expression& expression,
                                   const expr::Analysis& analysis, const ScoreShape& shape,
                                   std::int64_t offset) {
  const expr::Node& root = expression.root();
  const Matcher matcher(expression);
  if (root.op != Op::kLess && root.op != Op::kLessEqual) return std::nullopt;
  const auto sum = analysis.difference(root.args[0], root.args[1]);
  if (!sum || sum->terms.size() != 1 || sum->terms[0].second != 1) return std::nullopt;
  const expr::Node& distance = matcher.at(sum->terms[0].first);
  if (distance.op != Op::kAbs) return std::nullopt;
  const I radius = -sum->constant - (root.op == Op::kLess ? 1 : 0);

  const expr::Linear& inside = analysis.linear(distance.args[0]);
  if (inside.terms.size() != 2 || inside.constant != 0 ||
      inside.terms[0].second != -inside.terms[1].second ||
      (inside.terms[0].second != 1 && inside.terms[0].second != -1))
    return std::nullopt;
  for (const std::size_t i : {0u, 1u}) {
    const auto centre = matcher.clamped(inside.terms[i].first);
    const auto key = matcher.coordinate(inside.terms[1 - i].first);
    const auto query = centre ? matcher.coordinate(centre->inside) : std::nullopt;
    if (!key || !query || query->token != Op::kQuery || key->token != Op::kKey) continue;
    if (query->stride != key->stride || query->extent != key->extent) continue;
    if (centre->lo != radius || radius < 0 || centre->hi > kMaxPosition - radius - 1) continue;
    const I tokens = std::max(shape.seq_q + offset, shape.seq_kv);
    return along(*query, centre->hi + radius + 1, 2 * radius + 1, tokens);
  }
  return std::nullopt;
}

}  // namespace stof::mask
