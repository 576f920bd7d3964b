#include "backend/cuda/attention/score_mod.h"

#include <algorithm>

#include "backend/cpu/attention/score_mod.h"

namespace stof::cuda {
namespace {

static_assert(kMaxTableWords == cpu::kMaxScoreTables * (1 + Dims::kMaxRank));

/// The least of a few bounds that `count` values lie below: code that is right for one length is
/// right, and compiled once, for all up to its bound. Products of positions below 2^15 fit 32 bits.
std::int64_t bound_of(std::int64_t count) {
  for (const std::int64_t bound : {std::int64_t{1} << 15, std::int64_t{1} << 20})
    if (count <= bound) return bound;
  return std::int64_t{1} << 31;
}

}  // namespace

std::shared_ptr<const codegen::ScoreModCode> score_mod_code(const AttentionProblem& problem) {
  if (problem.score_mod.empty()) return nullptr;
  const std::int64_t reach = bound_of(std::max(problem.seq_q, problem.seq_kv));
  const bool offset = problem.alignment == mask::Alignment::kBottomRight;  // of either sign
  const expr::Ranges ranges = {{0, bound_of(problem.batch) - 1},
                               {0, bound_of(problem.num_heads_q) - 1},
                               {offset ? -reach : 0, reach - 1},
                               {0, reach - 1}};
  return std::make_shared<codegen::ScoreModCode>(
      codegen::score_mod_code(cpu::score_expression(problem), ranges));
}

void set_table_words(const std::vector<TensorView>& tables, std::uint64_t* words) {
  for (const TensorView& table : tables) {
    *words++ = reinterpret_cast<std::uint64_t>(table.data);
    for (const std::int64_t stride : table.strides) *words++ = static_cast<std::uint64_t>(stride);
  }
}

}  // namespace stof::cuda
