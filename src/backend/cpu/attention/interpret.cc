// Executes a MaskPlan word for word, as a GPU kernel would read it, in double. It knows of the mask
// only what the plan's lists and payload bits say.

#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <vector>

#include "backend/cpu/attention/check.h"
#include "backend/cpu/attention/element.h"
#include "backend/cpu/attention/plan_impl.h"
#include "backend/cpu/attention/position_bias.h"
#include "backend/cpu/attention/problem.h"
#include "stof/attention.h"

namespace stof {
namespace {

constexpr double kEmpty = -std::numeric_limits<double>::infinity();

/// Online softmax of one query row.
struct RowState {
  double max = kEmpty, sum = 0;
  std::vector<double> out;  ///< not normalised
  bool any = false;

  void add(double score, double weight_of_score, const std::vector<double>& value) {
    if (score == kEmpty) return;
    any = true;
    const double top = std::fmax(max, score);
    const double rescale = max == kEmpty ? 0 : std::exp(max - top);
    const double weight = std::exp(score - top) * weight_of_score;
    sum = sum * rescale + weight;
    for (std::size_t d = 0; d < out.size(); ++d) out[d] = out[d] * rescale + weight * value[d];
    max = top;
  }

  /// The state of a disjoint key set as one key of weight `other.sum`.
  void merge(const RowState& other) {
    if (!other.any) return;
    std::vector<double> mean = other.out;
    for (double& x : mean) x /= other.sum;
    add(other.max, other.sum, mean);
  }
};

class Interpreter {
 public:
  Interpreter(const AttentionPlan& plan, const AttentionTensors& tensors)
      : impl_(plan.impl()), problem_(impl_.problem), plan_(impl_.mask_plan), tensors_(tensors) {
    if (problem_.bias) bias_ = cpu::expand_bias(problem_, tensors.bias);
  }

  void run() {
    for (const plan::WorkItem& item : plan_.items)
      for (const BatchHead place : impl_.heads_of[static_cast<std::size_t>(item.pattern)])
        run_item(item, place);
  }

 private:
  /// Splits of one (batch, head, query tile), merged when the last of them is done.
  struct Pending {
    std::vector<std::vector<RowState>> splits;
    std::int32_t done = 0;
  };

  void run_item(const plan::WorkItem& item, BatchHead place) {
    const std::int64_t q_begin = std::int64_t{item.q_tile} * plan_.config.tile_q;
    const std::int64_t rows = std::min<std::int64_t>(plan_.config.tile_q, problem_.seq_q - q_begin);
    std::vector<RowState> states(static_cast<std::size_t>(rows));
    for (RowState& state : states) state.out.resize(static_cast<std::size_t>(problem_.head_dim_v));
    for (std::int64_t i = item.partial_begin; i < item.partial_end; ++i) {
      const plan::PartialTile& tile = plan_.partial[static_cast<std::size_t>(i)];
      visit(place, q_begin, tile.tile, plan_.payloads.data() + tile.payload * plan_.payload_words(),
            states);
    }
    for (std::int64_t i = item.run_begin; i < item.run_end; ++i) {
      const plan::TileRun& run = plan_.runs[static_cast<std::size_t>(i)];
      for (std::int64_t tile = run.begin; tile < run.end; ++tile)
        visit(place, q_begin, tile, nullptr, states);
    }

    Pending& pending = pending_[{place.b, place.h, item.q_tile}];
    pending.splits.resize(static_cast<std::size_t>(item.num_splits));
    pending.splits[static_cast<std::size_t>(item.split)] = std::move(states);
    if (++pending.done < item.num_splits) return;
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto r = static_cast<std::size_t>(row);
      RowState& whole = pending.splits[0][r];
      for (std::size_t split = 1; split < pending.splits.size(); ++split)
        whole.merge(pending.splits[split][r]);
      store(place, q_begin + row, whole);
    }
    pending_.erase({place.b, place.h, item.q_tile});
  }

  /// A null payload is a full tile. Keys past the sequence are skipped in both.
  void visit(BatchHead place, std::int64_t q_begin, std::int64_t tile, const std::uint64_t* payload,
             std::vector<RowState>& states) {
    std::vector<double> value(static_cast<std::size_t>(problem_.head_dim_v));
    const std::int64_t h_kv = cpu::kv_head(problem_, place.h);
    for (std::int64_t j = 0; j < plan_.config.tile_kv; ++j) {
      const std::int64_t k = tile * plan_.config.tile_kv + j;
      if (k >= problem_.seq_kv) break;
      for (std::size_t d = 0; d < value.size(); ++d)
        value[d] = cpu::load_element(tensors_.v, {place.b, h_kv, k, static_cast<std::int64_t>(d)});
      for (std::size_t row = 0; row < states.size(); ++row) {
        const auto q = static_cast<std::int64_t>(row);
        if (payload != nullptr &&
            ((payload[q * plan_.words_per_row() + j / 64] >> (j % 64)) & 1) == 0)
          continue;
        states[row].add(score(place, h_kv, q_begin + q, k), 1, value);
      }
    }
  }

  double score(BatchHead place, std::int64_t h_kv, std::int64_t q, std::int64_t k) const {
    double dot = 0;
    for (std::int64_t d = 0; d < problem_.head_dim_qk; ++d)
      dot += cpu::load_element(tensors_.q, {place.b, place.h, q, d}) *
             cpu::load_element(tensors_.k, {place.b, h_kv, k, d});
    double result = dot * cpu::scale_of(problem_);
    if (problem_.softcap > 0) result = problem_.softcap * std::tanh(result / problem_.softcap);
    if (problem_.alibi)
      result += cpu::load_element(tensors_.alibi_slopes, {place.h}) *
                static_cast<double>(k - q - cpu::position_offset(problem_));
    const std::int64_t position = q + cpu::position_offset(problem_);
    double added = 0;
    if (problem_.position_bias.num_buckets > 0)
      added =
          cpu::load_element(tensors_.position_bias,
                            {cpu::position_bucket(problem_.position_bias, k - position), place.h});
    if (problem_.bias) added = cpu::load_element(bias_, {place.b, place.h, q, k});
    if (added == kEmpty) return kEmpty;
    result += added;
    if (impl_.score_mod == nullptr) return result;
    return impl_.score_mod
        ->evaluate(tensors_.score_tables, static_cast<float>(result), place.b, place.h, position, k)
        .f;
  }

  void store(BatchHead place, std::int64_t q, RowState& state) {
    if (problem_.sink && state.any)
      state.add(cpu::load_element(tensors_.sink, {place.h}), 1,
                std::vector<double>(state.out.size(), 0.0));
    for (std::size_t d = 0; d < state.out.size(); ++d)
      cpu::store_element(tensors_.out, {place.b, place.h, q, static_cast<std::int64_t>(d)},
                         state.any ? state.out[d] / state.sum : 0);
    if (problem_.return_lse)
      cpu::store_element(tensors_.lse, {place.b, place.h, q},
                         state.any ? state.max + std::log(state.sum) : kEmpty);
  }

  const AttentionPlan::Impl& impl_;
  const AttentionProblem& problem_;
  const plan::MaskPlan& plan_;
  const AttentionTensors& tensors_;
  TensorView bias_;
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, Pending> pending_;
};

}  // namespace

void attention_interpret(const AttentionPlan& plan, const AttentionTensors& tensors) {
  cpu::check_tensors(plan.problem(), cpu::dense_shapes(plan.problem()), tensors);
  Interpreter(plan, tensors).run();
}

}  // namespace stof
