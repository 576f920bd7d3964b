#include "backend/cpu/attention/score_mod.h"

#include <algorithm>
#include <limits>

#include "core/check.h"
#include "stof/error.h"

namespace stof::cpu {

expr::Expression score_expression(const AttentionProblem& problem) try {
  return expr::parse_score(problem.score_mod, problem.score_tables);
} catch (const Error& error) {
  throw Error(error.code(), std::string("attention problem score_mod: ") + error.what());
}

std::shared_ptr<const expr::Program> score_program(const AttentionProblem& problem) {
  if (problem.score_mod.empty()) return nullptr;
  return std::make_shared<expr::Program>(score_expression(problem));
}

void change_scores(const KernelParams& params, const ScoreHead& head, const ScoreBlock& block) {
  constexpr float kHidden = -std::numeric_limits<float>::infinity();
  constexpr std::int64_t kLanes = expr::Program::kLanes;
  thread_local expr::Program::Scratch scratch;
  float held[kLanes], changed[kLanes];
  for (std::int64_t row = 0; row < block.num_rows; ++row) {
    head.program->set_row(scratch, *head.tables, head.b, head.h,
                          block.q_begin + row + params.position_offset);
    for (std::int64_t k = 0; k < block.num_keys; k += kLanes) {
      const std::int64_t count = std::min(kLanes, block.num_keys - k);
      float* score = block.scores + k * block.width + row;  // of the row's key k
      for (std::int64_t i = 0; i < count; ++i) held[i] = changed[i] = score[i * block.width];
      head.program->scores(scratch, changed, block.k_begin + k, count);
      for (std::int64_t i = 0; i < count; ++i)  // what a bias hides stays hidden
        score[i * block.width] = params.bias && held[i] == kHidden ? kHidden : changed[i];
    }
  }
}

}  // namespace stof::cpu
