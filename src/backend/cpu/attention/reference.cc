// The oracle: one query at a time, every pair asked of the mask, everything in double. It shares
// nothing with the fast path but the tensor checks.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "backend/cpu/attention/check.h"
#include "backend/cpu/attention/element.h"
#include "backend/cpu/attention/position_bias.h"
#include "backend/cpu/attention/problem.h"
#include "backend/cpu/attention/score_mod.h"
#include "stof/attention.h"

namespace stof {
namespace {

constexpr double kHidden = -std::numeric_limits<double>::infinity();

/// The logit of one visible pair: scale, softcap, ALiBi, position bias or bias, score modification,
/// in this order. What a bias hides stays hidden.
double logit(const AttentionProblem& problem, const AttentionTensors& tensors,
             const TensorView& bias, const expr::Program* score_mod, std::int64_t b, std::int64_t h,
             std::int64_t q, std::int64_t k) {
  double dot = 0;
  for (std::int64_t d = 0; d < problem.head_dim_qk; ++d)
    dot += cpu::load_element(tensors.q, {b, h, q, d}) *
           cpu::load_element(tensors.k, {b, cpu::kv_head(problem, h), k, d});
  double score = dot * cpu::scale_of(problem);
  if (problem.softcap > 0) {
    const double cap = problem.softcap;
    score = cap * std::tanh(score / cap);
  }
  if (problem.alibi) {
    const double slope = cpu::load_element(tensors.alibi_slopes, {h});
    score += slope * static_cast<double>(k - q - cpu::position_offset(problem));
  }
  double added = 0;
  if (problem.position_bias.num_buckets > 0)
    added = cpu::load_element(
        tensors.position_bias,
        {cpu::position_bucket(problem.position_bias, k - q - cpu::position_offset(problem)), h});
  if (problem.bias) added = cpu::load_element(bias, {b, h, q, k});
  if (added == kHidden) return kHidden;
  score += added;
  if (score_mod == nullptr) return score;
  return score_mod
      ->evaluate(tensors.score_tables, static_cast<float>(score), b, h,
                 q + cpu::position_offset(problem), k)
      .f;
}

}  // namespace

void attention_reference(const AttentionProblem& problem, const mask::Mask& mask,
                         const AttentionTensors& tensors) {
  problem.validate();
  cpu::check_tensors(problem, cpu::dense_shapes(problem), tensors);
  const mask::Mask bound = mask.bind(cpu::score_shape(problem), problem.alignment);
  const TensorView bias = problem.bias ? cpu::expand_bias(problem, tensors.bias) : TensorView();

  const auto score_mod = cpu::score_program(problem);

  std::vector<double> scores(static_cast<std::size_t>(problem.seq_kv));
  std::vector<double> out(static_cast<std::size_t>(problem.head_dim_v));
  for (std::int64_t b = 0; b < problem.batch; ++b)
    for (std::int64_t h = 0; h < problem.num_heads_q; ++h)
      for (std::int64_t q = 0; q < problem.seq_q; ++q) {
        double top = kHidden;
        bool empty = true;
        for (std::int64_t k = 0; k < problem.seq_kv; ++k) {
          double& score = scores[static_cast<std::size_t>(k)];
          score = bound.visible(b, h, q, k)
                      ? logit(problem, tensors, bias, score_mod.get(), b, h, q, k)
                      : kHidden;
          empty = empty && score == kHidden;
          top = std::fmax(top, score);  // skips NaN, which the weights below carry on
        }
        const double sink = problem.sink ? cpu::load_element(tensors.sink, {h}) : kHidden;
        top = std::fmax(top, sink);
        double sum = sink == kHidden ? 0 : std::exp(sink - top);
        std::fill(out.begin(), out.end(), 0.0);
        for (std::int64_t k = 0; k < problem.seq_kv; ++k) {
          const double score = scores[static_cast<std::size_t>(k)];
          if (score == kHidden) continue;
          const double weight = std::exp(score - top);
          sum += weight;
          for (std::int64_t d = 0; d < problem.head_dim_v; ++d)
            out[static_cast<std::size_t>(d)] +=
                weight * cpu::load_element(tensors.v, {b, cpu::kv_head(problem, h), k, d});
        }
        const double lse = empty ? kHidden : top + std::log(sum);
        for (std::int64_t d = 0; d < problem.head_dim_v; ++d)
          cpu::store_element(tensors.out, {b, h, q, d},
                             empty ? 0 : out[static_cast<std::size_t>(d)] / sum);
        if (problem.return_lse) cpu::store_element(tensors.lse, {b, h, q}, lse);
      }
}

}  // namespace stof
