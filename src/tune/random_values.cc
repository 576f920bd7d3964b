#include "tune/random_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#include "core/check.h"

namespace stof::tune {
namespace {

using graph::Graph;
using graph::Op;
using graph::Operator;
using graph::Value;
using graph::ValueId;

/// SplitMix64 (Steele et al. 2014).
std::uint64_t next_random(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/// Drawn once: tensors of hundreds of megabytes repeat it, each from another place on.
const std::vector<float>& normal_pool() {
  static const std::vector<float> pool = [] {
    std::vector<float> values(1u << 18);
    std::uint64_t state = 1;
    const auto uniform = [&] {
      return (static_cast<double>(next_random(state) >> 11) + 0.5) * 0x1p-53;
    };
    for (std::size_t i = 0; i < values.size(); i += 2) {  // Box and Muller
      const double radius = std::sqrt(-2 * std::log(uniform()));
      const double angle = 2 * std::numbers::pi * uniform();
      values[i] = static_cast<float>(radius * std::cos(angle));
      values[i + 1] = static_cast<float>(radius * std::sin(angle));
    }
    return values;
  }();
  return pool;
}

/// The pool of that mean and deviation, over and over from a place that the seed tells.
Tensor normal(const Value& value, double mean, double deviation, std::uint64_t seed) {
  const std::vector<float>& pool = normal_pool();
  // An odd length of the cycle, so that rows do not repeat.
  const auto cycle = static_cast<std::int64_t>(pool.size() - 1);
  Tensor scaled(DType::kFloat32, {std::min(cycle, num_elements(value.shape))});
  std::uint64_t state = seed;
  const std::size_t start = next_random(state) % static_cast<std::size_t>(cycle);
  const auto elements = scaled.as<float>();
  for (std::size_t i = 0; i < elements.size(); ++i)
    elements[i] =
        static_cast<float>(mean + deviation * pool[(start + i) % static_cast<std::size_t>(cycle)]);
  if (value.dtype != DType::kFloat32) scaled = Tensor::converted(scaled.view(), value.dtype);
  Tensor tensor(value.dtype, value.shape);
  auto* const to = static_cast<std::byte*>(tensor.data());
  for (std::size_t done = 0; done < tensor.bytes(); done += scaled.bytes())
    std::memcpy(to + done, scaled.data(), std::min(scaled.bytes(), tensor.bytes() - done));
  return tensor;
}

/// The first operator that reads the value, and as which of its inputs.
struct Use {
  const Operator* op = nullptr;
  std::size_t input = 0;
};

Use first_use(const Graph& graph, ValueId id) {
  for (const graph::OperatorId consumer : graph.value(id).consumers) {
    const Operator& op = graph.op(consumer);
    for (std::size_t i = 0; i < op.inputs.size(); ++i)
      if (op.inputs[i] == id) return {&op, i};
  }
  return {};
}

/// Token ids, positions or offsets.
Tensor integers(const Graph& graph, ValueId id, const BatchShape& batch, std::uint64_t seed) {
  const Value& value = graph.value(id);
  STOF_CHECK(value.dtype == DType::kInt32, kUnsupported,
             "value \"{}\": nothing is known to measure it with: {}", value.name,
             to_string(value.dtype));
  const Use use = first_use(graph, id);
  Tensor tensor(DType::kInt32, value.shape);
  const auto elements = tensor.as<std::int32_t>();
  if (use.op != nullptr && use.op->op == Op::kPool) {
    for (std::size_t i = 0; i < elements.size(); ++i)
      elements[i] = static_cast<std::int32_t>(batch.offsets.at(i));
    return tensor;
  }
  if (use.op != nullptr && use.op->op == Op::kCacheStore) {
    // A slot for each row, as long as there are any.
    const std::int64_t size = graph.value(use.op->outputs[0]).shape[0];
    for (std::size_t i = 0; i < elements.size(); ++i)
      elements[i] = static_cast<std::int64_t>(i) < size ? static_cast<std::int32_t>(i) : -1;
    return tensor;
  }
  // How many rows the table has that the value picks from; of positions, the table may be short.
  std::int64_t limit = batch.rows();
  const bool is_ids = use.op != nullptr && use.op->op == Op::kEmbedding && use.input == 0;
  if (use.op != nullptr && use.op->op == Op::kEmbedding)
    limit = graph.value(use.op->inputs.at(use.input + 1)).shape[0];
  std::uint64_t state = seed;
  std::size_t sequence = 0;
  for (std::size_t row = 0; row < elements.size(); ++row) {
    while (sequence + 1 < batch.offsets.size() &&
           static_cast<std::int64_t>(row) >= batch.offsets[sequence + 1])
      ++sequence;
    const auto position = static_cast<std::int64_t>(row) - batch.offsets[sequence];
    elements[row] = static_cast<std::int32_t>(
        is_ids ? static_cast<std::int64_t>(next_random(state) % static_cast<std::uint64_t>(limit))
               : position % limit);
  }
  return tensor;
}

}  // namespace

Tensor random_value(const Graph& graph, ValueId id, const BatchShape& batch, std::uint64_t seed) {
  const Value& value = graph.value(id);
  const bool real = value.dtype == DType::kFloat32 || value.dtype == DType::kFloat16 ||
                    value.dtype == DType::kBFloat16;
  if (!real) return integers(graph, id, batch, seed);
  const std::uint64_t stream = seed * 1000003u + static_cast<std::uint64_t>(id);
  if (value.producer != graph::kNoId && graph.op(value.producer).op == Op::kRowSquares)
    return normal(value, 32, 4, stream);  // sums of squares of numbers about 1
  if (value.kind != graph::ValueKind::kWeight) return normal(value, 0, 1, stream);
  const Use use = first_use(graph, id);
  const bool norm =
      use.op != nullptr &&
      ((use.input == 1 && (use.op->op == Op::kLayerNorm || use.op->op == Op::kRmsNorm)) ||
       (use.input > 0 && use.op->op == Op::kHeadNorm));
  if (norm) return normal(value, 1, 0.1, stream);
  const bool matrix = use.op != nullptr && use.op->op == Op::kMatmul;
  const double deviation = matrix ? 1 / std::sqrt(static_cast<double>(value.shape[1]))
                           : value.shape.rank() == 1 ? 0.1
                                                     : 1;
  return normal(value, 0, deviation, stream);
}

}  // namespace stof::tune
