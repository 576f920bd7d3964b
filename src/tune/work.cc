#include "tune/work.h"

#include <algorithm>
#include <map>

#include "stof/block_mask.h"

namespace stof::tune {
namespace {

/// Pairs of a query and a key that attention computes, of all that the rows have.
double visible_share(const BatchShape& batch) {
  std::map<std::int64_t, double> by_length;
  double pairs = 0;
  for (std::size_t i = 0; i + 1 < batch.offsets.size(); ++i) {
    const std::int64_t length = batch.offsets[i + 1] - batch.offsets[i];
    if (length == 0) continue;
    const auto [found, is_new] = by_length.try_emplace(length, 0);
    if (is_new)
      found->second = static_cast<double>(
          compute_stats(build_block_mask(batch.mask, {1, 1, length, length})).visible_pairs);
    pairs += found->second;
  }
  const auto rows = static_cast<double>(batch.rows());
  return pairs / (rows * rows);
}

/// The tile that the choice names, if it names one.
fusion::ProductTile tile_of(const fusion::Choice& choice) {
  fusion::ProductTile tile;
  for (const auto& [name, field] :
       {std::pair("tile_m", &fusion::ProductTile::m), std::pair("tile_n", &fusion::ProductTile::n),
        std::pair("tile_k", &fusion::ProductTile::k),
        std::pair("splits", &fusion::ProductTile::splits)}) {
    const auto found = choice.parameters.find(name);
    if (found != choice.parameters.end() && found->second > 0) tile.*field = found->second;
  }
  return tile;
}

}  // namespace

SegmentEstimate estimate(const graph::Graph& graph, const fusion::Segment& segment,
                         const fusion::Choice& choice, const fusion::MachineFacts& facts,
                         const BatchShape& batch) {
  const bool tiled = choice.parameters.contains("tile_m");
  const fusion::SegmentCost cost =
      tiled ? predict(graph, segment, facts, tile_of(choice)) : predict(graph, segment, facts);
  const double share = segment.family == fusion::Family::kAttention ? visible_share(batch) : 1;
  SegmentEstimate estimate;
  // Of attention everything but the launch follows the pairs.
  estimate.predicted_us =
      facts.launch_us + std::max(0.0, cost.microseconds - facts.launch_us) * share;
  estimate.bound_us = std::max({cost.flops * share / (facts.tflops * 1e6),
                                cost.vector_flops * share / (facts.vector_tflops * 1e6),
                                cost.bytes / (facts.memory_gb_s * 1e3)});
  return estimate;
}

}  // namespace stof::tune
