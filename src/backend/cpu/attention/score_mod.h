#pragma once
// A problem's score modification: its expression, and its place in the fast kernels.

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/cpu/attention/kernel.h"
#include "expr/program.h"
#include "stof/attention.h"

namespace stof::cpu {

/// Most tables a score modification may declare: their addresses and strides are kernel arguments.
inline constexpr std::size_t kMaxScoreTables = 16;

/// Of problem.score_mod, which is not empty. Throws InvalidArgument with the text and a caret.
expr::Expression score_expression(const AttentionProblem& problem);

/// The same ready to be evaluated; null without one.
std::shared_ptr<const expr::Program> score_program(const AttentionProblem& problem);

/// One query head of a launch whose scores are changed.
struct ScoreHead {
  const expr::Program* program = nullptr;
  const std::vector<TensorView>* tables = nullptr;
  std::int64_t b = 0, h = 0;
};

/// KernelParams::change_scores: the expression's value of every score of `rows` rows, lane by lane.
void change_scores(const KernelParams& params, const ScoreHead& head, const ScoreBlock& block);

}  // namespace stof::cpu
