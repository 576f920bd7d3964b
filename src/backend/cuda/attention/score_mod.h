#pragma once
// A problem's score modification for the block-wise kernels.

#include <cstdint>
#include <memory>
#include <vector>

#include "codegen/score_mod.h"
#include "stof/attention.h"

namespace stof::cuda {

/// Null without one. Problems whose lengths are alike share the code.
std::shared_ptr<const codegen::ScoreModCode> score_mod_code(const AttentionProblem& problem);

/// The words behind AttentionParams: of each table its address and strides.
void set_table_words(const std::vector<TensorView>& tables, std::uint64_t* words);

/// Most words there are: kMaxScoreTables of the largest rank.
inline constexpr std::size_t kMaxTableWords = 16 * (1 + Dims::kMaxRank);

}  // namespace stof::cuda
