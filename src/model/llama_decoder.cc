#include "model/llama_decoder.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "backend/cpu/ops/rms_norm.h"
#include "backend/cpu/ops/rope.h"
#include "core/check.h"

namespace stof::model {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

cpu::Linear linear(const LlamaWeights::Dense& dense, std::vector<cpu::PostOp> post_ops = {}) {
  return {dense.weight.view(), dense.bias.empty() ? TensorView() : dense.bias.view(),
          std::move(post_ops)};
}

}  // namespace

struct LlamaDecoder::Step {
  std::int64_t rows, total;  ///< tokens of this pass, and with those of the cache
  cpu::RopeAngles angles;
  std::map<std::int64_t, AttentionPlan> plans;  ///< by window
  KvCache& cache;
  DecoderTiming& timing;
  /// [rows, ...]: residual stream before and after attention, its normalised copy, projections,
  /// attention, gates, what is gated.
  Tensor states, attended, normed, projected, context, gates, inner;
};

LlamaDecoder::LlamaDecoder(Checkpoint checkpoint, LlamaConfig config) {
  const LlamaWeights weights(std::move(checkpoint), config);
  config_ = std::move(config);
  embeddings_ = weights.embeddings();
  final_norm_ = weights.final_norm();
  rope_frequencies_ = weights.rope_frequencies();
  for (std::int64_t i = 0; i < config_.num_layers; ++i) {
    LlamaWeights::Layer layer = weights.layer(i);
    layers_.push_back({std::move(layer.attention_norm), linear(layer.query_key_value),
                       linear(layer.attention_output, {cpu::PostOp::kAdd}),
                       std::move(layer.mlp_norm), linear(layer.gate, {cpu::PostOp::kSilu}),
                       linear(layer.up, {cpu::PostOp::kMultiply}),
                       linear(layer.down, {cpu::PostOp::kAdd})});
  }
  head_ = std::make_unique<cpu::Linear>(linear({weights.head(), {}}));
}

void LlamaDecoder::check_ids(std::span<const std::int32_t> ids, std::int64_t first_position) const {
  const auto rows = static_cast<std::int64_t>(ids.size());
  STOF_CHECK(rows >= 1, kInvalidArgument, "tokens: expected at least one, got none");
  STOF_CHECK(first_position + rows <= config_.max_positions, kInvalidArgument,
             "tokens: expected at most {} in all, the positions this model knows, got {}",
             config_.max_positions, first_position + rows);
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int32_t id = ids[static_cast<std::size_t>(i)];
    STOF_CHECK(id >= 0 && id < config_.vocab_size, kInvalidArgument,
               "token {}: expected an id below {}, got {}", first_position + i, config_.vocab_size,
               id);
  }
}

Tensor LlamaDecoder::forward(std::span<const std::int32_t> ids, KvCache& cache,
                             const mask::Mask& mask, Rows which, DecoderTiming& timing) const {
  check_ids(ids, cache.length());
  const auto rows = static_cast<std::int64_t>(ids.size());
  const std::int64_t hidden = config_.hidden_size,
                     heads_width = config_.num_heads * config_.head_dim;
  const auto buffer = [rows](std::int64_t width) { return Tensor(DType::kFloat32, {rows, width}); };
  Step step{rows,
            cache.length() + rows,
            cpu::RopeAngles(rope_frequencies_, cache.length(), rows),
            {},
            cache,
            timing,
            buffer(hidden),
            buffer(hidden),
            buffer(hidden),
            buffer(heads_width + 2 * cache.width()),
            buffer(heads_width),
            buffer(config_.intermediate_size),
            buffer(config_.intermediate_size)};

  const auto plan_start = Clock::now();
  AttentionProblem problem;
  problem.num_heads_q = config_.num_heads;
  problem.num_heads_kv = config_.num_kv_heads;
  problem.head_dim_qk = problem.head_dim_v = config_.head_dim;
  problem.seq_q = rows;
  problem.seq_kv = step.total;
  problem.alignment = mask::Alignment::kBottomRight;
  for (const std::int64_t window : config_.windows) {
    if (step.plans.contains(window)) continue;
    mask::Mask seen = mask::causal() & mask;
    if (window > 0) seen = seen & mask::window(window - 1, 0);
    step.plans.emplace(window, plan_attention(problem, seen));
  }
  timing.plan += seconds_since(plan_start);

  float* x = step.states.as<float>().data();
  for (std::int64_t r = 0; r < rows; ++r)
    std::copy_n(embeddings_.as<float>().data() + ids[static_cast<std::size_t>(r)] * hidden, hidden,
                x + r * hidden);
  cache.reserve(rows);
  for (std::size_t i = 0; i < layers_.size(); ++i) run_layer(i, step);
  cache.advance(rows);

  const std::int64_t first = which == Rows::kAll ? 0 : rows - 1;
  float* normed = step.normed.as<float>().data();
  cpu::rms_norm(x + first * hidden, rows - first, hidden, final_norm_.as<float>().data(),
                config_.rms_norm_eps, normed);
  Tensor logits(DType::kFloat32, {rows - first, config_.vocab_size});
  head_->run(normed, rows - first, logits.as<float>().data());
  return logits;
}

void LlamaDecoder::run_layer(std::size_t index, Step& step) const {
  const Layer& layer = layers_[index];
  const auto layer_idx = static_cast<std::int64_t>(index);
  const std::int64_t hidden = config_.hidden_size, head_dim = config_.head_dim;
  const std::int64_t heads = config_.num_heads, kv_heads = config_.num_kv_heads;
  const std::int64_t kv_width = step.cache.width(), stride = heads * head_dim + 2 * kv_width;
  float* x = step.states.as<float>().data();
  float* normed = step.normed.as<float>().data();
  float* q = step.projected.as<float>().data();
  float *k = q + heads * head_dim, *v = k + kv_width;

  cpu::rms_norm(x, step.rows, hidden, layer.attention_norm.as<float>().data(), config_.rms_norm_eps,
                normed);
  layer.query_key_value.run(normed, step.rows, q);
  cpu::rotate(step.angles, q, step.rows, stride, heads);
  cpu::rotate(step.angles, k, step.rows, stride, kv_heads);
  float *keys = step.cache.keys(layer_idx), *values = step.cache.values(layer_idx);
  for (std::int64_t r = 0; r < step.rows; ++r) {
    const std::int64_t at = (step.total - step.rows + r) * kv_width;
    std::copy_n(k + r * stride, kv_width, keys + at);
    std::copy_n(v + r * stride, kv_width, values + at);
  }

  const auto attention_start = Clock::now();
  AttentionTensors operands;
  const Dims cached = {1, kv_heads, step.total, head_dim};
  const Dims cached_strides = {step.total * kv_width, head_dim, kv_width, 1};
  operands.q = {q,
                DType::kFloat32,
                {1, heads, step.rows, head_dim},
                {step.rows * stride, head_dim, stride, 1}};
  operands.k = {keys, DType::kFloat32, cached, cached_strides};
  operands.v = {values, DType::kFloat32, cached, cached_strides};
  operands.out = {step.context.data(),
                  DType::kFloat32,
                  {1, heads, step.rows, head_dim},
                  {step.rows * heads * head_dim, head_dim, heads * head_dim, 1}};
  run_attention(step.plans.at(config_.windows[index]), operands);
  step.timing.attention += seconds_since(attention_start);

  float* y = step.attended.as<float>().data();
  layer.attention_output.run(step.context.as<float>().data(), step.rows, y, {{x}});
  cpu::rms_norm(y, step.rows, hidden, layer.mlp_norm.as<float>().data(), config_.rms_norm_eps,
                normed);
  float *gates = step.gates.as<float>().data(), *inner = step.inner.as<float>().data();
  layer.gate.run(normed, step.rows, gates);
  layer.up.run(normed, step.rows, inner, {{gates}});
  layer.down.run(inner, step.rows, x, {{y}});
}

}  // namespace stof::model
