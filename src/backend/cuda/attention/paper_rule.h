#pragma once
// The kernel selection rule of the STOF paper (arXiv 2506.06095, "Unified MHA"), by name: to
// compare with, never used.

#include <cstdint>

#include "stof/block_mask.h"

namespace stof::cuda {

/// Share of 16x16 tiles that hold a visible pair, minus 1.2 / log2(n)^2 with n = ceil(seq / 16).
/// Negative: the row-wise kernel; else the block-wise one.
struct PaperRule {
  double valid_ratio = 0;
  double threshold = 0;
  double score() const { return valid_ratio - threshold; }
  bool row_wise() const { return score() < 0; }
};

/// `seq`: the query length. With one tile the threshold is infinite (log2(1) = 0): row-wise.
PaperRule paper_rule(const mask::BlockMaskStats& stats, std::int64_t seq);

}  // namespace stof::cuda
