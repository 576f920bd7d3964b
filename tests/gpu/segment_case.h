#pragma once
// Operands of small BERT and LLaMA graphs, and how far results may be from the interpreter's.

#include <algorithm>
#include <cmath>
#include <list>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "exec/batch.h"
#include "model/bert_graph.h"
#include "model/llama_graph.h"

namespace stof::check {

using graph::Graph;
using graph::ValueId;

struct Tally {
  int passed = 0, failed = 0;
  void count(bool good) { (good ? passed : failed)++; }
};

/// Random tensors for weights and inputs; ids and positions count up.
struct Operands {
  std::list<Tensor> tensors;
  exec::WeightViews views;

  explicit Operands(const Graph& graph) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0, 1);
    for (std::size_t i = 0; i < graph.values().size(); ++i) {
      const graph::Value& value = graph.values()[i];
      if (value.kind == graph::ValueKind::kActivation) continue;
      Tensor wide(DType::kFloat32, value.shape);
      // Products keep the size of what they read.
      const float size = value.kind == graph::ValueKind::kWeight && value.shape.rank() == 2
                             ? 1 / std::sqrt(static_cast<float>(value.shape[1]))
                             : 0.5f;
      for (float& x : wide.as<float>()) x = size * normal(random);
      if (value.name == "slots") {  // each its own, and none for some
        Tensor& slots = tensors.emplace_back(value.dtype, value.shape);
        std::int32_t next = 0;
        for (std::int32_t& slot : slots.as<std::int32_t>()) {
          slot = next % 4 == 3 ? -1 : static_cast<std::int32_t>(value.shape[0]) - next;
          ++next;
        }
      } else if (value.dtype == DType::kInt32) {
        Tensor& ids = tensors.emplace_back(value.dtype, value.shape);
        std::int32_t next = 0;
        for (std::int32_t& id : ids.as<std::int32_t>()) id = next++ % 50;
      } else {
        tensors.push_back(Tensor::converted(std::as_const(wide).view(), value.dtype));
      }
      views[static_cast<ValueId>(i)] = std::as_const(tensors.back()).view();
    }
  }
};

inline Graph bert(std::int64_t rows, std::int64_t hidden, std::int64_t heads, std::int64_t inner,
                  std::int64_t layers, cpu::Activation activation, DType dtype) {
  model::BertConfig config;
  config.hidden_size = hidden;
  config.num_layers = layers;
  config.num_heads = heads;
  config.intermediate_size = inner;
  config.activation = activation;
  config.vocab_size = 50;
  config.max_positions = 50;
  config.num_segments = 2;
  config.layer_norm_eps = 1e-3f;
  return model::build_bert_graph(config, rows, dtype);
}

/// With a cache of 300 rows; heads share keys in pairs.
inline Graph llama(std::int64_t rows, std::int64_t head_dim, std::int64_t layers, bool bias,
                   DType dtype, bool reads_cache = false) {
  model::LlamaConfig config;
  config.hidden_size = 256;
  config.num_layers = layers;
  config.num_heads = 256 / head_dim;
  config.num_kv_heads = config.num_heads / 2;
  config.head_dim = head_dim;
  config.intermediate_size = 512;
  config.vocab_size = 56;
  config.max_positions = 50;
  config.rms_norm_eps = 1e-3f;
  config.qkv_bias = bias;
  config.windows.assign(static_cast<std::size_t>(layers), 0);
  return model::build_llama_graph(
      config, rows, dtype, {.cache_size = 300, .reads_cache = reads_cache, .joined_gate = true});
}

inline exec::Batch batch_of(const Graph& graph, const exec::WeightViews& views,
                            std::vector<std::int64_t> offsets, const mask::Mask& mask) {
  exec::Batch batch;
  for (const ValueId id : graph.of_kind(graph::ValueKind::kInput)) {
    TensorView view = views.at(id);
    view.shape[0] = offsets.back();
    batch.inputs.emplace_back(graph.value(id).name, view);
  }
  batch.offsets = std::move(offsets);
  batch.mask = mask;
  return batch;
}

inline std::vector<double> doubles(const Tensor& tensor) {
  const Tensor wide = Tensor::converted(tensor.view(), DType::kFloat64);
  return {wide.as<double>().begin(), wide.as<double>().end()};
}

/// Error of the whole over the norm of the reference, and of the worst element over the larger of
/// itself and the root mean square; infinite where something is no number.
struct Error2 {
  double whole = 0, element = 0;
};
inline Error2 error_of(const Tensor& found, const Tensor& expected) {
  const std::vector<double> a = doubles(found), b = doubles(expected);
  double difference = 0, norm = 0, worst = 0;
  for (const double x : b) norm += x * x;
  const double rms = std::sqrt(norm / static_cast<double>(b.size()));
  for (std::size_t i = 0; i < b.size(); ++i) {
    if (!std::isfinite(a[i])) return {INFINITY, INFINITY};
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    worst = std::max(worst, std::abs(a[i] - b[i]) / std::max(rms, std::abs(b[i])));
  }
  return {std::sqrt(difference / norm), worst};
}

/// One rounding, 2^-9 (bfloat16) or 2^-12 (float16) of an element at most twice, since the
/// reference rounds as well, and attention rounds its weights.
inline Error2 bounds_of(DType dtype) {
  return dtype == DType::kBFloat16 ? Error2{5e-3, 3e-2} : Error2{8e-4, 5e-3};
}

}  // namespace stof::check
