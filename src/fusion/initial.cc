#include "fusion/initial.h"

#include <algorithm>
#include <map>
#include <string>

#include "core/check.h"

namespace stof::fusion {
namespace {

using graph::Op;
using graph::Value;

int count_ops(const Graph& graph, const FrequentSegment& segment, auto matches) {
  int count = 0;
  for (OperatorId i = segment.first; i <= segment.last; ++i) count += matches(graph.op(i).op);
  return count;
}

int count_products(const Graph& graph, const FrequentSegment& segment) {
  return count_ops(graph, segment, [](Op op) { return op == Op::kMatmul; });
}

std::int64_t saved_bytes(const Graph& graph, const Segment& segment) {
  std::int64_t bytes = 0;
  for (OperatorId i = segment.first; i < segment.last; ++i) {
    const Value& value = graph.value(graph.op(i).outputs[0]);
    const std::int64_t size =
        num_elements(value.shape) * static_cast<std::int64_t>(dtype_bytes(value.dtype));
    const bool stored = std::find(segment.outputs.begin(), segment.outputs.end(),
                                  graph.op(i).outputs[0]) != segment.outputs.end();
    bytes += stored ? size : 2 * size;
  }
  return bytes;
}

bool allowed(const Graph& graph, const FrequentSegment& segment, const InitialRules& rules) {
  const int products = count_products(graph, segment);
  const int norms =
      count_ops(graph, segment, [](Op op) { return op == Op::kLayerNorm || op == Op::kRmsNorm; });
  const std::int64_t rows = graph.value(graph.op(segment.first).inputs[0]).shape[0];
  const Op first = graph.op(segment.first).op, last = graph.op(segment.last).op;
  const bool norm_or_store = first != Op::kMatmul || last == Op::kCacheStore;  // around a product
  if (products > 0 && norm_or_store && rows > rules.streamed_rows) return false;
  if (products > 0 && norms > (first == Op::kMatmul ? 0 : 1)) return false;
  return products < 2 || rows <= rules.chain_rows;
}

}  // namespace

std::vector<FrequentSegment> frequent_segments(const Graph& graph, const Limits& limits) {
  std::map<std::string, FrequentSegment> found;  // by the hash in hexadecimal
  for (int layer = 0; layer < graph.num_layers(); ++layer) {
    const auto [begin, end] = graph.layer_range(layer);
    for (OperatorId first = begin; first <= end; ++first)
      for (OperatorId last = first + 1; last <= end; ++last) {
        if (!legality(graph, first, last, limits).empty()) continue;
        const Segment segment = make_segment(graph, first, last, limits);
        const Fingerprint hash = segment_hash(graph, segment);
        FrequentSegment& entry = found[hash.hex()];
        if (entry.count++ == 0) entry = {hash, first, last, 1, saved_bytes(graph, segment)};
      }
  }
  std::vector<FrequentSegment> segments;
  segments.reserve(found.size());
  for (const auto& [hash, segment] : found) segments.push_back(segment);
  std::sort(segments.begin(), segments.end(),
            [&](const FrequentSegment& a, const FrequentSegment& b) {
              const std::int64_t saved_a = a.count * a.saved_bytes;
              const std::int64_t saved_b = b.count * b.saved_bytes;
              if (saved_a != saved_b) return saved_a > saved_b;
              const int products_a = count_products(graph, a);
              const int products_b = count_products(graph, b);
              if (products_a != products_b) return products_a < products_b;
              return std::pair(a.first, a.last) < std::pair(b.first, b.last);
            });
  return segments;
}

Scheme initial_scheme(const Graph& graph, const Limits& limits, const InitialRules& rules) {
  const auto [begin, end] = graph.layer_range(0);
  const int size = end - begin + 1;
  for (int layer = 1; layer < graph.num_layers(); ++layer) {
    const auto [first, last] = graph.layer_range(layer);
    STOF_CHECK(last - first + 1 == size, kInvalidArgument,
               "scheme: expected layers of {} operators each, got {} in layer {}", size,
               last - first + 1, layer);
  }
  // length[i]: operators of the segment that starts at i; 0: inside of another.
  std::vector<int> length(static_cast<std::size_t>(size), 1);
  std::vector<bool> taken(static_cast<std::size_t>(size), false);
  for (const FrequentSegment& segment : frequent_segments(graph, limits)) {
    if (!allowed(graph, segment, rules)) continue;
    const OperatorId span = segment.last - segment.first;
    for (OperatorId first = begin; first + span <= end; ++first) {
      const auto from = taken.begin() + (first - begin);
      if (std::find(from, from + span + 1, true) != from + span + 1) continue;
      if (!legality(graph, first, first + span, limits).empty()) continue;
      const Segment here = make_segment(graph, first, first + span, limits);
      if (segment_hash(graph, here) != segment.hash) continue;
      std::fill(from, from + span + 1, true);
      const auto start = length.begin() + (first - begin);
      std::fill(start, start + span + 1, 0);
      *start = span + 1;
    }
  }
  std::erase(length, 0);
  return Scheme::from_sizes(length);
}

}  // namespace stof::fusion
