#pragma once
// What a segment should take, from what it must move and multiply: orders schemes and candidates
// before anything is measured.

#include <cstdint>
#include <span>
#include <string>

#include "fusion/segment.h"

namespace stof::fusion {

/// A machine as far as the model knows it.
struct MachineFacts {
  int num_sms = 1;               ///< multiprocessors, or cores
  double tflops = 0;             ///< matrix products in the graph's dtype, all multiprocessors
  double vector_tflops = 0;      ///< everything else, float32
  double memory_gb_s = 0;        ///< from memory
  double cache_gb_s = 0;         ///< from the last cache
  std::int64_t cache_bytes = 0;  ///< of it
  double launch_us = 0;          ///< a kernel without work, inside a captured graph
  double fill_us = 0;   ///< of a product besides: the first operands' way in, the last tile's out
  double depth_us = 0;  ///< least time of one step of a product's depth: latency, not work
};

/// An H200 in float16 or bfloat16, by what library kernels reach there (docs/gpu.md).
MachineFacts h200_facts();

/// How a product is cut: a block makes m x n elements, k columns of the operands a step.
struct ProductTile {
  std::int64_t m = 128, n = 128, k = 64;
  std::int64_t splits = 1;  ///< blocks that share one tile's depth
};

struct SegmentCost {
  double flops = 0;         ///< of products and attention
  double vector_flops = 0;  ///< of the steps
  double bytes = 0;         ///< read and written once each
  std::int64_t tiles = 0;   ///< 0: no product
  std::int64_t waves = 0;   ///< rounds of one block a multiprocessor
  int launches = 1;
  double microseconds = 0;

  /// "21.4 us: 384 tiles in 3 waves, 14.5 GFLOP, 28.7 MB"
  std::string text() const;
};

/// With that tile. Attention is taken to see every key of all rows: a mask's share is the attention
/// plan's to tell.
SegmentCost predict(const Graph& graph, const Segment& segment, const MachineFacts& facts,
                    const ProductTile& tile);
/// With the best of a few usual tiles.
SegmentCost predict(const Graph& graph, const Segment& segment, const MachineFacts& facts);
/// The sum over segments.
SegmentCost predict(const Graph& graph, std::span<const Segment> segments,
                    const MachineFacts& facts);

}  // namespace stof::fusion
