#include "fusion/cost.h"

#include <algorithm>
#include <array>

#include "core/bits.h"
#include "core/check.h"
#include "core/text.h"

namespace stof::fusion {
namespace {

using graph::Op;
using graph::Operator;
using graph::Value;

double elements(const Value& value) { return static_cast<double>(num_elements(value.shape)); }

double bytes_of(const Value& value) {
  return elements(value) * static_cast<double>(dtype_bytes(value.dtype));
}

double elements_a_row(const Value& matrix) { return static_cast<double>(matrix.shape[1]); }

/// Instructions an element, in float32; those of erf, tanh and exp by their usual polynomials.
double vector_operations(Step step) {
  switch (step) {
    case Step::kGeluErf:
      return 20;
    case Step::kGeluTanh:
    case Step::kRope:
      return 12;
    case Step::kSilu:
      return 10;
    case Step::kLayerNorm:
      return 8;
    case Step::kRmsNorm:
    case Step::kHeadNorm:
      return 5;
    case Step::kHeadStore:
    case Step::kCacheStore:
    case Step::kMatmul:
      return 0;
    default:
      return 1;
  }
}

/// Values that are read and written, each once; of an embedding's tables only the rows taken.
struct Traffic {
  double memory_us = 0;
  double bytes = 0;
};

Traffic traffic_of(const Graph& graph, const Segment& segment, const MachineFacts& facts) {
  Traffic traffic;
  const auto add = [&](ValueId id) {
    const Value& value = graph.value(id);
    const Operator& last = graph.op(segment.last);
    const bool stores = last.op == Op::kCacheStore;
    if (stores && id == last.inputs[2]) return;  // nothing of it is read
    const bool table = segment.family == Family::kEmbedding && value.shape.rank() == 2;
    const double bytes = table ? bytes_of(graph.value(graph.op(segment.first).outputs[0]))
                         : stores && id == last.outputs[0]
                             ? bytes_of(graph.value(last.inputs[0])) * elements_a_row(value) /
                                   elements_a_row(graph.value(last.inputs[0]))
                             : bytes_of(value);
    // What the kernel before wrote is still in the cache where it fits beside as much again.
    const bool cached = value.kind != graph::ValueKind::kWeight &&
                        bytes <= static_cast<double>(facts.cache_bytes) / 2;
    traffic.bytes += bytes;
    traffic.memory_us += bytes * 1e-3 / (cached ? facts.cache_gb_s : facts.memory_gb_s);
  };
  for (const ValueId id : segment.inputs) add(id);
  for (const ValueId id : segment.outputs) add(id);
  return traffic;
}

/// Adds one product of a [rows, in] by a [out, in] matrix; returns its microseconds.
double product_us(std::int64_t rows, std::int64_t in, std::int64_t out, const ProductTile& tile,
                  const MachineFacts& facts, SegmentCost* cost) {
  const std::int64_t tiles = ceil_div(rows, tile.m) * ceil_div(out, tile.n) * tile.splits;
  const std::int64_t waves = ceil_div(tiles, std::int64_t{facts.num_sms});
  const std::int64_t depth = ceil_div(ceil_div(in, tile.k), tile.splits);
  const double step_flops = 2.0 * static_cast<double>(tile.m * tile.n * tile.k);
  const double step_us = step_flops * 1e-6 / (facts.tflops / facts.num_sms);
  cost->flops +=
      2.0 * static_cast<double>(rows) * static_cast<double>(in) * static_cast<double>(out);
  cost->tiles += tiles;
  cost->waves += waves;
  // Splits add their sums up at the end.
  const double fill_us = facts.fill_us * (tile.splits > 1 ? 2 : 1);
  return fill_us + static_cast<double>(waves * depth) * std::max(step_us, facts.depth_us);
}

double products_us(const Graph& graph, const Segment& segment, const ProductTile& tile,
                   const MachineFacts& facts, SegmentCost* cost) {
  double total = 0;
  for (OperatorId i = segment.first; i <= segment.last; ++i) {
    const Operator& op = graph.op(i);
    if (op.op != Op::kMatmul) continue;
    const Dims &x = graph.value(op.inputs[0]).shape, &weight = graph.value(op.inputs[1]).shape;
    ProductTile own = tile;
    // A block of a chain has whole rows of both products.
    if (segment.family == Family::kGemmChain) {
      own.n = weight[0];
      own.splits = 1;
    }
    total += product_us(x[0], x[1], weight[0], own, facts, cost);
  }
  return total;
}

double attention_us(const Graph& graph, const Segment& segment, const MachineFacts& facts,
                    SegmentCost* cost) {
  const Operator& op = graph.op(segment.first);
  const double rows = static_cast<double>(graph.value(op.outputs[0]).shape[0]);
  const double width = static_cast<double>(op.attributes.heads * op.attributes.head_dim);
  // Of a cache all rows, since who runs the graph knows which are read.
  const double keys = static_cast<double>(graph.value(op.inputs[1]).shape[0]);
  cost->flops += 4 * rows * keys * width;
  return cost->flops * 1e-6 / facts.tflops;
}

}  // namespace

MachineFacts h200_facts() {
  MachineFacts facts;
  facts.num_sms = 132;
  facts.tflops = 750;
  facts.vector_tflops = 50;
  facts.memory_gb_s = 4000;
  facts.cache_gb_s = 4600;
  facts.cache_bytes = 50 << 20;
  facts.launch_us = 1.5;
  facts.fill_us = 1.0;
  facts.depth_us = 0.13;
  return facts;
}

std::string SegmentCost::text() const {
  std::string text = fmt::format("{:.1f} us:", microseconds);
  if (tiles > 0)
    text += fmt::format(" {} tiles in {} wave{},", tiles, waves, waves == 1 ? "" : "s");
  if (flops > 0) text += fmt::format(" {:.3g} GFLOP,", flops * 1e-9);
  return text + " " + human_bytes(static_cast<std::uint64_t>(bytes));
}

SegmentCost predict(const Graph& graph, const Segment& segment, const MachineFacts& facts,
                    const ProductTile& tile) {
  STOF_CHECK(facts.num_sms >= 1 && facts.tflops > 0 && facts.vector_tflops > 0 &&
                 facts.memory_gb_s > 0 && facts.cache_gb_s > 0,
             kInvalidArgument, "machine facts: expected rates above 0");
  STOF_CHECK(tile.m >= 1 && tile.n >= 1 && tile.k >= 1 && tile.splits >= 1, kInvalidArgument,
             "product tile: expected at least 1 each, got {} x {} x {} in {} splits", tile.m,
             tile.n, tile.k, tile.splits);
  SegmentCost cost;
  const Traffic traffic = traffic_of(graph, segment, facts);
  cost.bytes = traffic.bytes;
  for (const EpilogueStep& step : segment.steps)
    cost.vector_flops +=
        vector_operations(step.step) * elements(graph.value(graph.op(step.op).outputs[0]));
  double compute_us = products_us(graph, segment, tile, facts, &cost);
  if (segment.family == Family::kAttention)
    compute_us += attention_us(graph, segment, facts, &cost);
  const double vector_us = cost.vector_flops * 1e-6 / facts.vector_tflops;
  // Steps of the last wave's tiles hide behind nothing; those of others behind its products.
  if (cost.waves > 0)
    compute_us += vector_us / static_cast<double>(cost.waves);
  else
    compute_us += vector_us;
  cost.microseconds = facts.launch_us + std::max(compute_us, traffic.memory_us);
  return cost;
}

SegmentCost predict(const Graph& graph, const Segment& segment, const MachineFacts& facts) {
  constexpr std::array kTiles = {ProductTile{128, 192, 64, 1}, ProductTile{128, 256, 64, 1},
                                 ProductTile{128, 128, 64, 1}, ProductTile{128, 96, 64, 1},
                                 ProductTile{64, 64, 64, 1},   ProductTile{64, 48, 64, 1},
                                 ProductTile{64, 64, 64, 4},   ProductTile{64, 32, 64, 2}};
  SegmentCost best = predict(graph, segment, facts, kTiles[0]);
  if (best.tiles == 0) return best;
  for (const ProductTile& tile : kTiles) {
    const SegmentCost cost = predict(graph, segment, facts, tile);
    if (cost.microseconds < best.microseconds) best = cost;
  }
  return best;
}

SegmentCost predict(const Graph& graph, std::span<const Segment> segments,
                    const MachineFacts& facts) {
  SegmentCost total;
  total.launches = 0;
  for (const Segment& segment : segments) {
    const SegmentCost cost = predict(graph, segment, facts);
    total.flops += cost.flops;
    total.vector_flops += cost.vector_flops;
    total.bytes += cost.bytes;
    total.tiles += cost.tiles;
    total.waves += cost.waves;
    total.launches += cost.launches;
    total.microseconds += cost.microseconds;
  }
  return total;
}

}  // namespace stof::fusion
