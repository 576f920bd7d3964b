#include "backend/cuda/attention/paper_rule.h"

#include <cmath>

#include "core/bits.h"
#include "core/check.h"

namespace stof::cuda {

PaperRule paper_rule(const mask::BlockMaskStats& stats, std::int64_t seq) {
  constexpr std::int64_t kTile = 16;
  constexpr double kFactor = 1.2;
  const double logarithm = std::log2(static_cast<double>(ceil_div(seq, kTile)));
  PaperRule rule;
  rule.threshold = kFactor / (logarithm * logarithm);
  for (const mask::TileCensus& census : stats.tiles)
    if (census.tile == kTile) {
      rule.valid_ratio = census.density();
      return rule;
    }
  throw_error(ErrorCode::kInternal, "mask statistics without {}x{} tiles", kTile, kTile);
}

}  // namespace stof::cuda
