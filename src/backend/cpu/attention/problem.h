#pragma once
// What reference, interpreter and kernels all derive from an AttentionProblem.

#include <cmath>

#include "stof/attention.h"

namespace stof::cpu {

/// The factor of q k^T.
inline float scale_of(const AttentionProblem& problem) {
  return problem.scale ? *problem.scale : 1 / std::sqrt(static_cast<float>(problem.head_dim_qk));
}

/// ALiBi's distance is key - query - offset.
inline std::int64_t position_offset(const AttentionProblem& problem) {
  return problem.alignment == mask::Alignment::kBottomRight ? problem.seq_kv - problem.seq_q : 0;
}

inline mask::ScoreShape score_shape(const AttentionProblem& problem) {
  return {problem.batch, problem.num_heads_q, problem.seq_q, problem.seq_kv};
}

/// The key/value head that a query head reads.
inline std::int64_t kv_head(const AttentionProblem& problem, std::int64_t h) {
  return h / (problem.num_heads_q / problem.num_heads_kv);
}

}  // namespace stof::cpu
