#pragma once
// Runs graphs and fused segments plainly, in double: the oracle of every template, on any device.

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "fusion/segment.h"
#include "graph/cache_pages.h"
#include "graph/graph.h"
#include "stof/mask.h"
#include "stof/tensor.h"

namespace stof::cpu {

/// What a graph is run on. Views may have any strides; a value that is columns of another may be
/// bound itself or through that one.
struct GraphOperands {
  std::map<graph::ValueId, TensorView> values;
  mask::Mask mask;                     ///< of attention, within each sequence; default: all visible
  std::vector<mask::Mask> more_masks;  ///< of attention under mask 1, 2, ...
  /// Sequences own rows offsets[i] .. offsets[i + 1]; empty: one sequence of all rows.
  std::vector<std::int64_t> offsets;
  /// Of attention over a cache: the mask is then aligned to the last of a sequence's keys.
  graph::CachePages cache;
  graph::CachePages cross_cache;  ///< of cross-attention
};

/// One result for every value that is stored; views are not.
using GraphResults = std::map<graph::ValueId, Tensor>;

/// Operator by operator, each result rounded to its value's dtype. Returns what every operator
/// makes. Throws InvalidArgument naming the value that is not bound or does not fit, an id outside
/// of its table, or sequences that are not the graph's rows.
GraphResults interpret_graph(const graph::Graph& graph, const GraphOperands& operands);

/// The same cut into segments: inside of one nothing is rounded, but for what a second product
/// reads, since tensor cores take 16-bit operands. Returns what the segments write.
GraphResults interpret_segments(const graph::Graph& graph,
                                std::span<const fusion::Segment> segments,
                                const GraphOperands& operands);

/// One segment by its list of steps, as a kernel would run it; `operands` binds segment.inputs.
/// Returns segment.outputs in order.
std::vector<Tensor> interpret_segment(const graph::Graph& graph, const fusion::Segment& segment,
                                      const GraphOperands& operands);

}  // namespace stof::cpu
