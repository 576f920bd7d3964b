#include "mask/predicate_atom.h"

#include <algorithm>
#include <cstdlib>

#include "mask/interval.h"

namespace stof::mask {
namespace {

using expr::Linear;
using expr::Op;
using I = std::int64_t;

bool is_position(I value) { return value >= -kMaxPosition && value <= kMaxPosition; }

/// A comparison of a sum with 0, `sum` <= 0 or == 0.
struct Atom {
  Linear sum;
  bool equality;
};

class Recogniser {
 public:
  Recogniser(const expr::Expression& expression, const expr::Analysis& analysis)
      : nodes_(expression.nodes()), analysis_(analysis) {}

  std::optional<Mask> recognise() const {
    const expr::Node& root = nodes_.back();
    if (!is_comparison(root.op) || at(root.args[0]).type == expr::Type::kBool) return std::nullopt;
    std::optional<Linear> sum = analysis_.difference(root.args[0], root.args[1]);
    if (!sum) return std::nullopt;
    if (root.op == Op::kLess) ++sum->constant;
    const bool equality = root.op == Op::kEqual || root.op == Op::kNotEqual;
    const std::optional<Mask> mask = of({std::move(*sum), equality});
    // Below 0 the negation of what is not relative would see everything.
    if (!mask || root.op != Op::kNotEqual) return mask;
    const bool relative = analysis_.relative(static_cast<std::int32_t>(nodes_.size()) - 1);
    return relative ? std::optional(~*mask) : std::nullopt;
  }

 private:
  static bool is_comparison(Op op) { return op >= Op::kEqual && op <= Op::kLessEqual; }
  const expr::Node& at(std::int32_t node) const { return nodes_[static_cast<std::size_t>(node)]; }

  std::optional<Mask> of(const Atom& atom) const {
    const auto& terms = atom.sum.terms;
    const I c = atom.sum.constant;
    if (terms.empty()) return (atom.equality ? c == 0 : c <= 0) ? all() : none();
    if (terms.size() > 2) return std::nullopt;
    if (const auto factor = diagonal(atom.sum)) return of_diagonal(atom, *factor);
    if (terms.size() == 2) return of_blocks(atom);
    const auto& [node, factor] = terms.front();
    switch (at(node).op) {
      case Op::kAbs:
        return of_distance(atom, at(node).args[0], factor);
      case Op::kQuery:
      case Op::kKey:
        return of_position(atom, at(node).op == Op::kQuery, factor);
      case Op::kMod:
        return of_remainder(atom, at(node), factor);
      default:
        return std::nullopt;
    }
  }

  /// The factor f of a sum f * (k - q) + constant.
  std::optional<I> diagonal(const Linear& sum) const {
    if (sum.terms.size() != 2) return std::nullopt;
    const auto& [first, a] = sum.terms[0];
    const auto& [second, b] = sum.terms[1];
    if (a != -b) return std::nullopt;
    if (at(first).op == Op::kKey && at(second).op == Op::kQuery) return a;
    if (at(first).op == Op::kQuery && at(second).op == Op::kKey) return b;
    return std::nullopt;
  }

  /// lo <= k - q <= hi; an end past all positions is none.
  static std::optional<Mask> band(I lo, I hi) {
    if (lo > hi) return none();
    const bool below = lo < -kMaxPosition;
    const bool above = hi > kMaxPosition;
    if ((!below && !is_position(lo)) || (!above && !is_position(hi))) return std::nullopt;
    if (below && above) return all();
    if (below) return causal(hi);
    if (lo <= 0 && (above || hi >= 0)) return window(-lo, above ? -1 : hi);
    if (!is_position(lo - 1)) return std::nullopt;
    return above ? ~causal(lo - 1) : causal(hi) & ~causal(lo - 1);
  }
  static constexpr I kFar = kUnbounded;

  static std::optional<Mask> of_diagonal(const Atom& atom, I factor) {
    const I c = atom.sum.constant;
    if (atom.equality) {
      if (c % factor != 0) return none();
      return band(-c / factor, -c / factor);
    }
    if (factor > 0) return bounded(-kFar, floor_div(-c, factor));
    return bounded(-floor_div(-c, -factor), kFar);
  }

  /// band() of ends that the text gave, which must be positions.
  static std::optional<Mask> bounded(I lo, I hi) {
    for (const I end : {lo, hi})
      if (!is_position(end) && std::abs(end) != kFar) return std::nullopt;
    return band(lo, hi);
  }

  /// factor * |x| + constant.
  std::optional<Mask> of_distance(const Atom& atom, std::int32_t argument, I factor) const {
    const I c = atom.sum.constant;
    const Linear& inside = analysis_.linear(argument);
    if (atom.equality) return std::nullopt;
    if (const auto sign = diagonal(inside)) {
      if (std::abs(*sign) != 1) return std::nullopt;
      const I centre = -*sign * inside.constant;  // where k - q makes it 0
      const auto near = [&](I w) -> std::optional<Mask> {
        return w < 0 ? none() : bounded(centre - w, centre + w);
      };
      if (factor > 0) return near(floor_div(-c, factor));
      const I least = -floor_div(-c, -factor);  // |x| >= least
      if (least <= 0) return all();
      const std::optional<Mask> inner = near(least - 1);
      return inner ? std::optional(~*inner) : std::nullopt;
    }
    const std::optional<I> n = block_size(inside);
    if (!n || factor <= 0 || inside.constant != 0) return std::nullopt;
    const I w = floor_div(-c, factor);
    if (w > kMaxPosition) return std::nullopt;
    return w < 0 ? none() : block_window(*n, w, w);
  }

  /// The n of a sum +-(k // n - q // n) + constant, and the sign of its first part.
  std::optional<I> block_size(const Linear& sum, I* sign = nullptr) const {
    if (sum.terms.size() != 2) return std::nullopt;
    const auto& [first, a] = sum.terms[0];
    const auto& [second, b] = sum.terms[1];
    if (a != -b || std::abs(a) != 1) return std::nullopt;
    if (at(first).op != Op::kFloorDiv || at(second).op != Op::kFloorDiv) return std::nullopt;
    const expr::Node& n = at(at(first).args[1]);
    if (at(second).args[1] != at(first).args[1] || n.op != Op::kConstant || n.integer < 1 ||
        n.integer > kMaxPosition)
      return std::nullopt;
    const Op x = at(at(first).args[0]).op, y = at(at(second).args[0]).op;
    const bool key_first = x == Op::kKey && y == Op::kQuery;
    if (!key_first && !(x == Op::kQuery && y == Op::kKey)) return std::nullopt;
    if (sign != nullptr) *sign = key_first ? a : b;
    return n.integer;
  }

  std::optional<Mask> of_blocks(const Atom& atom) const {
    I sign = 0;
    const std::optional<I> n = block_size(atom.sum, &sign);
    if (!n) return std::nullopt;
    const I c = atom.sum.constant;
    if (atom.equality) return c == 0 ? std::optional(chunked(*n)) : std::nullopt;
    if (c > 0 || !is_position(c)) return std::nullopt;
    if (sign < 0) return block_window(*n, -c, -1);
    return c == 0 ? block_causal(*n) : block_window(*n, -1, -c);
  }

  static std::optional<Mask> of_position(const Atom& atom, bool is_query, I factor) {
    const I c = atom.sum.constant;
    if (atom.equality) {
      if (c % factor != 0) return none();
      const I place = -c / factor;
      if (place < 0) return none();
      if (place > kMaxPosition) return std::nullopt;
      return global_tokens({place}, is_query, !is_query);
    }
    if (factor < 0) return std::nullopt;
    const I count = floor_div(-c, factor) + 1;
    if (count <= 0) return none();
    if (count > kMaxPosition) return std::nullopt;
    return is_query ? global(count, 0) : prefix(count);
  }

  /// factor * (x % n) + constant.
  std::optional<Mask> of_remainder(const Atom& atom, const expr::Node& node, I factor) const {
    const expr::Node& divisor = at(node.args[1]);
    if (divisor.op != Op::kConstant || divisor.integer < 1 || divisor.integer > kMaxPosition ||
        std::abs(factor) != 1)
      return std::nullopt;
    const I n = divisor.integer, c = atom.sum.constant;
    const Linear& inside = analysis_.linear(node.args[0]);
    if (atom.equality) {
      const std::optional<I> sign = diagonal(inside);
      const I rest = -c * factor;
      if (!sign || std::abs(*sign) != 1) return std::nullopt;
      if (rest < 0 || rest >= n) return none();
      const I shift = floor_mod(*sign * (inside.constant - rest), n);
      const Mask multiples = strided(0, n);
      return shift == 0 ? multiples : shifted(multiples, 0, shift);
    }
    const bool is_key = inside.terms.size() == 1 && inside.constant == 0 &&
                        at(inside.terms[0].first).op == Op::kKey && inside.terms[0].second == 1;
    const I count = n - c;  // k % n >= c
    if (!is_key || factor > 0 || count < 0 || count > n) return std::nullopt;
    return summary(n, count);
  }

  std::span<const expr::Node> nodes_;
  const expr::Analysis& analysis_;
};

/// w of window(w, w), or stride of strided(0, stride).
std::optional<I> width_of(const Mask& mask) {
  const Spec spec = mask.node().spec();
  if (spec.name != "window" || spec.args[0].second != spec.args[1].second) return std::nullopt;
  const I width = std::get<I>(spec.args[0].second);
  return width < 0 ? std::nullopt : std::optional(width);
}

std::optional<I> stride_of(const Mask& mask) {
  const Spec spec = mask.node().spec();
  if (spec.name != "strided" || std::get<I>(spec.args[0].second) != 0) return std::nullopt;
  return std::get<I>(spec.args[1].second);
}

}  // namespace

expr::TableBounds bounds_of_tables(const IntTables& tables) {
  return [tables](std::size_t table, std::span<const expr::Interval> indices) {
    return tables[table]->range(indices);
  };
}

std::optional<Mask> recognise(const expr::Expression& expression, const expr::Analysis& analysis) {
  return Recogniser(expression, analysis).recognise();
}

Mask join_atoms(bool is_and, std::vector<Mask> operands) {
  for (std::size_t i = 0; i < operands.size(); ++i)
    for (std::size_t j = 0; j < operands.size(); ++j) {
      const auto width = width_of(operands[i]);
      const auto stride = width ? stride_of(operands[j]) : std::nullopt;
      if (!stride) continue;
      operands[i] = is_and ? dilated(*width, *stride) : strided(*width, *stride);
      operands.erase(operands.begin() + static_cast<std::ptrdiff_t>(j));
      return join_atoms(is_and, std::move(operands));
    }
  // Joined pairwise like a tree: a chain of n costs n log n.
  while (operands.size() > 1) {
    std::vector<Mask> joined;
    for (std::size_t i = 0; i + 1 < operands.size(); i += 2)
      joined.push_back(is_and ? operands[i] & operands[i + 1] : operands[i] | operands[i + 1]);
    if (operands.size() % 2 == 1) joined.push_back(operands.back());
    operands = std::move(joined);
  }
  return operands.front();
}

}  // namespace stof::mask
