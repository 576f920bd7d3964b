#include "mask/permute.h"

#include <algorithm>
#include <map>
#include <optional>

#include "core/bits.h"
#include "core/check.h"
#include "mask/interval.h"
#include "mask/node.h"
#include "mask/spec.h"

namespace stof::mask {
namespace {

/// Queries q0 + step*i for i in [0, nq) against keys k0 + step*j for j in [0, nk).
struct Lattice {
  std::int64_t q0, nq, k0, nk, step;
};

/// lo <= k - q <= hi, which causal and window are, and dilated and strided on a matching lattice.
struct Band {
  std::int64_t lo, hi;

  TileClass classify(const Lattice& l) const {
    const std::int64_t first = l.k0 - (l.q0 + l.step * (l.nq - 1));
    const std::int64_t last = l.k0 + l.step * (l.nk - 1) - l.q0;
    if (lo <= first && last <= hi) return TileClass::kFull;
    // The differences that occur are first, first + step, ..., last.
    const std::int64_t lowest =
        first + std::max<std::int64_t>(0, ceil_div(lo - first, l.step)) * l.step;
    return lowest <= std::min(last, hi) ? TileClass::kPartial : TileClass::kEmpty;
  }
  std::uint64_t row_bits(std::int64_t q, std::int64_t k0, std::int64_t step) const {
    return bits_of_range(0, ceil_div(q + lo - k0, step), floor_div(q + hi - k0, step) + 1);
  }
};

enum class Kind { kAnd, kOr, kNot, kBound, kShifted, kBand, kDilated, kStrided, kOther };

Kind kind_of(const std::string& name) {
  static const std::map<std::string, Kind> kinds = {
      {"and", Kind::kAnd},         {"or", Kind::kOr},           {"not", Kind::kNot},
      {"bound", Kind::kBound},     {"causal", Kind::kBand},     {"window", Kind::kBand},
      {"dilated", Kind::kDilated}, {"shifted", Kind::kShifted}, {"strided", Kind::kStrided}};
  const auto found = kinds.find(name);
  return found == kinds.end() ? Kind::kOther : found->second;
}

/// An expression prepared for questions about lattices.
class LatticeNode {
 public:
  explicit LatticeNode(const std::shared_ptr<const Node>& node) : node_(node) {
    Spec spec = node->spec();
    kind_ = kind_of(spec.name);
    for (const auto& child : spec.children) children_.emplace_back(child);
    const auto argument = [&](std::size_t i) {
      return std::get<std::int64_t>(spec.args[i].second);
    };
    if (spec.name == "causal") {
      band_ = Band{-kUnbounded, argument(0)};
    } else if (spec.name == "window") {
      band_ = Band{argument(0) < 0 ? -kUnbounded : -argument(0),
                   argument(1) < 0 ? kUnbounded : argument(1)};
    } else if (kind_ == Kind::kDilated || kind_ == Kind::kStrided) {
      band_ = Band{-argument(0), argument(0)};
      period_ = argument(1);
    } else if (kind_ == Kind::kShifted) {
      dq_ = argument(0);
      dk_ = argument(1);
    }
  }

  TileClass classify(std::int64_t b, std::int64_t h, const Lattice& l) const {
    if (kind_ == Kind::kAnd) return junction<true>(b, h, l);
    if (kind_ == Kind::kOr) return junction<false>(b, h, l);
    if (kind_ == Kind::kNot) return complement(children_[0].classify(b, h, l));
    if (kind_ == Kind::kBound) return children_[0].classify(b, h, l);
    if (kind_ == Kind::kShifted)
      return children_[0].classify(b, h, {l.q0 + dq_, l.nq, l.k0 + dk_, l.nk, l.step});
    if (band_ && period_ == 0) return band_->classify(l);
    if (band_ && l.step % period_ == 0) {
      const bool on_diagonal = floor_mod(l.k0 - l.q0, period_) == 0;
      if (kind_ == Kind::kDilated) return on_diagonal ? band_->classify(l) : TileClass::kEmpty;
      return on_diagonal ? TileClass::kFull : band_->classify(l);
    }
    // Everything else by the rectangle around the lattice: sound, and exact for what is uniform.
    return node_->classify(
        b, h, {l.q0, l.q0 + l.step * (l.nq - 1) + 1, l.k0, l.k0 + l.step * (l.nk - 1) + 1});
  }

  /// Bit j: does query q see key k0 + step*j?
  std::uint64_t row_bits(std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t k0,
                         std::int64_t step) const {
    if (kind_ == Kind::kAnd || kind_ == Kind::kOr) {
      const bool is_and = kind_ == Kind::kAnd;
      std::uint64_t bits = is_and ? ~std::uint64_t{0} : 0;
      for (const LatticeNode& child : children_) {
        const std::uint64_t more = child.row_bits(b, h, q, k0, step);
        bits = is_and ? bits & more : bits | more;
      }
      return bits;
    }
    if (kind_ == Kind::kNot) return ~children_[0].row_bits(b, h, q, k0, step);
    if (kind_ == Kind::kBound) return children_[0].row_bits(b, h, q, k0, step);
    if (kind_ == Kind::kShifted) return children_[0].row_bits(b, h, q + dq_, k0 + dk_, step);
    if (band_ && period_ == 0) return band_->row_bits(q, k0, step);
    if (band_ && step % period_ == 0) {
      const bool on_diagonal = floor_mod(k0 - q, period_) == 0;
      if (kind_ == Kind::kDilated) return on_diagonal ? band_->row_bits(q, k0, step) : 0;
      return on_diagonal ? ~std::uint64_t{0} : band_->row_bits(q, k0, step);
    }
    std::uint64_t bits = 0;
    for (int j = 0; j < 64; ++j)
      bits |= static_cast<std::uint64_t>(node_->visible(b, h, q, k0 + step * j)) << j;
    return bits;
  }

  void collect_periods(std::vector<std::int64_t>& periods) const {
    // A strided mask's local band that reaches all residues lies scattered in their order.
    const bool scattered = kind_ == Kind::kStrided && band_->hi >= period_;
    if (period_ > 1 && !scattered) periods.push_back(period_);
    for (const LatticeNode& child : children_) child.collect_periods(periods);
  }

 private:
  template <bool kAnd>
  TileClass junction(std::int64_t b, std::int64_t h, const Lattice& l) const {
    constexpr TileClass kDecisive = kAnd ? TileClass::kEmpty : TileClass::kFull;
    bool neutral = true;
    for (const LatticeNode& child : children_) {
      const TileClass found = child.classify(b, h, l);
      if (found == kDecisive) return kDecisive;
      neutral &= found != TileClass::kPartial;
    }
    return neutral ? complement(kDecisive) : TileClass::kPartial;
  }

  std::shared_ptr<const Node> node_;
  Kind kind_;
  std::vector<LatticeNode> children_;
  std::optional<Band> band_;
  std::int64_t period_ = 0;  ///< of dilated and strided
  std::int64_t dq_ = 0, dk_ = 0;
};

class Permuted final : public Node {
 public:
  Permuted(const std::shared_ptr<const Node>& child, const ScoreShape& shape, std::int64_t step)
      : child_(child),
        lattice_(child),
        step_(step),
        n_q_(shape.seq_q / step),
        n_k_(shape.seq_kv / step) {}

  bool visible(std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t k) const override {
    return child_->visible(b, h, q % n_q_ * step_ + q / n_q_, k % n_k_ * step_ + k / n_k_);
  }

  TileClass classify(std::int64_t b, std::int64_t h, const TileRect& rect) const override {
    std::optional<TileClass> common;
    for (std::int64_t q = rect.q_begin; q < rect.q_end;) {
      const std::int64_t q_end = std::min(rect.q_end, (q / n_q_ + 1) * n_q_);
      for (std::int64_t k = rect.k_begin; k < rect.k_end;) {
        const std::int64_t k_end = std::min(rect.k_end, (k / n_k_ + 1) * n_k_);
        const TileClass found = lattice_.classify(b, h,
                                                  {q % n_q_ * step_ + q / n_q_, q_end - q,
                                                   k % n_k_ * step_ + k / n_k_, k_end - k, step_});
        if (found == TileClass::kPartial || (common && *common != found))
          return TileClass::kPartial;
        common = found;
        k = k_end;
      }
      q = q_end;
    }
    return *common;
  }

  std::uint64_t row_bits(std::int64_t b, std::int64_t h, std::int64_t q,
                         std::int64_t k_begin) const override {
    const std::int64_t token = q % n_q_ * step_ + q / n_q_;
    std::uint64_t bits = 0;
    for (std::int64_t k = k_begin; k < k_begin + 64;) {
      const std::int64_t residue = k / n_k_, in_residue = k % n_k_;
      if (residue >= step_) break;  // past the end of the sequence
      const std::int64_t count = std::min(k_begin + 64 - k, n_k_ - in_residue);
      const std::uint64_t part =
          lattice_.row_bits(b, h, token, in_residue * step_ + residue, step_) & low_bits(count);
      bits |= part << (k - k_begin);
      k += count;
    }
    return bits;
  }

  /// The next residue's tokens are the next ones.
  std::int64_t diagonal_period() const override {
    return child_->diagonal_period() == 1 && n_q_ == n_k_ ? n_q_ : 0;
  }
  std::int64_t batch_extent() const override { return child_->batch_extent(); }
  std::int64_t head_extent() const override { return child_->head_extent(); }
  Spec spec() const override { return {"permuted", {{"step", step_}}, {child_}}; }

 private:
  std::shared_ptr<const Node> child_;
  LatticeNode lattice_;
  std::int64_t step_, n_q_, n_k_;
};

}  // namespace

std::vector<std::int64_t> permutation_candidates(const Mask& bound, const ScoreShape& shape) {
  std::vector<std::int64_t> periods;
  LatticeNode(bound.shared_node()).collect_periods(periods);
  std::sort(periods.begin(), periods.end());
  periods.erase(std::unique(periods.begin(), periods.end()), periods.end());
  std::erase_if(periods, [&](std::int64_t p) {
    return shape.seq_q % p != 0 || shape.seq_kv % p != 0 || p >= shape.seq_q || p >= shape.seq_kv;
  });
  return periods;
}

Mask permuted(const Mask& bound, const ScoreShape& shape, std::int64_t step) {
  STOF_ASSERT(step >= 1 && shape.seq_q % step == 0 && shape.seq_kv % step == 0);
  return Mask(std::make_shared<Permuted>(bound.shared_node(), shape, step));
}

std::vector<MaskPart> split_strided(const Mask& bound) {
  std::shared_ptr<const Node> top = bound.shared_node();
  Spec spec = top->spec();
  if (spec.name == "bound") {
    top = spec.children[0];
    spec = top->spec();
  }
  std::vector<std::shared_ptr<const Node>> operands = {top};
  if (spec.name == "and") operands = spec.children;
  Mask others = all();
  std::optional<Spec> found;
  for (const auto& operand : operands) {
    Spec inner = operand->spec();
    if (inner.name == "strided" && !found)
      found = std::move(inner);
    else
      others = others & Mask(operand);
  }
  if (!found) return {};
  const std::int64_t local = std::get<std::int64_t>(found->args[0].second);
  const std::int64_t stride = std::get<std::int64_t>(found->args[1].second);
  const Mask band = window(local, local);
  return {{others & band, 1}, {others & dilated(kMaxPosition, stride) & ~band, stride}};
}

}  // namespace stof::mask
