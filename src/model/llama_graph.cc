#include "model/llama_graph.h"

#include <algorithm>
#include <string>

namespace stof::model {
namespace {

using graph::GraphBuilder;
using graph::ValueId;

/// The windows of all layers, each once.
std::vector<std::int64_t> distinct_windows(const LlamaConfig& config) {
  std::vector<std::int64_t> windows;
  for (const std::int64_t window : config.windows)
    if (std::ranges::find(windows, window) == windows.end()) windows.push_back(window);
  return windows;
}

/// Of each layer, its window's place among them.
std::vector<int> masks_of_layers(const LlamaConfig& config) {
  const std::vector<std::int64_t> windows = distinct_windows(config);
  std::vector<int> masks;
  for (const std::int64_t window : config.windows)
    masks.push_back(static_cast<int>(std::ranges::find(windows, window) - windows.begin()));
  return masks;
}

class LlamaBuilder {
 public:
  LlamaBuilder(const LlamaConfig& config, std::int64_t rows, DType dtype,
               const DecoderGraphOptions& options)
      : config_(config), rows_(rows), dtype_(dtype), options_(options) {}

  graph::Graph build() {
    const std::int64_t hidden = config_.hidden_size;
    const ValueId ids = builder_.input("ids", DType::kInt32, {rows_});
    positions_ = builder_.input("positions", DType::kInt32, {rows_});
    if (options_.cache_size > 0) slots_ = builder_.input("slots", DType::kInt32, {rows_});
    frequencies_ = builder_.weight("rope.frequencies", DType::kFloat32, {config_.head_dim / 2});
    const std::int64_t vocabulary = options_.vocabulary(config_.vocab_size);
    const ValueId words = builder_.weight("embeddings", dtype_, {vocabulary, hidden});
    ValueId x = builder_.embedding("embedded", ids, words);
    builder_.begin_layer(x);
    builder_.end_layer(layer(x, "layer.0."));
    x = builder_.stamp_layers(static_cast<int>(config_.num_layers), masks_of_layers(config_));
    if (options_.head_rows > 0)
      x = builder_.embedding("picked",
                             builder_.input("head_rows", DType::kInt32, {options_.head_rows}), x);
    x = norm("final_norm", x);
    builder_.mark_live_out(config_.tied_head ? builder_.matmul("head", x, words)
                                             : dense("head", x, hidden, vocabulary, false));
    return builder_.build();
  }

 private:
  ValueId dense(const std::string& name, ValueId x, std::int64_t in, std::int64_t out,
                bool has_bias) {
    const ValueId weight = builder_.weight(name + ".weight", dtype_, {out, in});
    const ValueId product = builder_.matmul(name, x, weight);
    if (!has_bias) return product;
    return builder_.bias(name + ".add_bias", product,
                         builder_.weight(name + ".bias", dtype_, {out}));
  }

  ValueId norm(const std::string& name, ValueId x) {
    const ValueId gamma = builder_.weight(name + ".gamma", DType::kFloat32, {config_.hidden_size});
    return builder_.rms_norm(name, x, gamma, config_.rms_norm_eps);
  }

  ValueId attention(ValueId x, const std::string& name) {
    const std::int64_t heads = config_.num_heads, kv_heads = config_.num_kv_heads;
    const std::int64_t head_dim = config_.head_dim;
    const std::int64_t q_width = heads * head_dim, kv_width = kv_heads * head_dim;
    const ValueId projected = dense(name + "query_key_value", x, config_.hidden_size,
                                    q_width + 2 * kv_width, config_.qkv_bias);
    const ValueId turned = builder_.rope(name + "rope", projected, positions_, frequencies_, heads,
                                         kv_heads, head_dim);
    ValueId stored = graph::kNoId;
    if (options_.cache_size > 0) {
      const ValueId cache =
          builder_.state(name + "cache", dtype_, {options_.cache_size, 2 * kv_width});
      stored = builder_.cache_store(name + "cache_store", turned, slots_, cache, heads, kv_heads,
                                    head_dim);
    }
    const ValueId base = options_.reads_cache ? stored : turned;
    const std::int64_t first = options_.reads_cache ? 0 : q_width;
    const ValueId query = builder_.columns(name + "query", turned, 0, q_width);
    const ValueId key = builder_.columns(name + "key", base, first, kv_width);
    const ValueId value = builder_.columns(name + "value", base, first + kv_width, kv_width);
    const ValueId context =
        builder_.attention(name + "attention", query, key, value, heads, kv_heads, head_dim,
                           config_.rope.attention_scale(head_dim));
    return dense(name + "attention_output", context, q_width, config_.hidden_size,
                 config_.output_bias);
  }

  ValueId mlp(ValueId x, const std::string& name) {
    const std::int64_t hidden = config_.hidden_size, inner = config_.intermediate_size;
    constexpr auto kSilu = graph::Activation::kSilu;
    ValueId gate = graph::kNoId, up = graph::kNoId;
    if (options_.joined_gate) {
      const ValueId both = dense(name + "gate_up", x, hidden, 2 * inner, config_.mlp_bias);
      up = builder_.columns(name + "up", both, inner, inner);
      gate = builder_.activation(name + "silu", builder_.columns(name + "gate", both, 0, inner),
                                 kSilu);
    } else {
      gate = builder_.activation(name + "silu",
                                 dense(name + "gate", x, hidden, inner, config_.mlp_bias), kSilu);
      up = dense(name + "up", x, hidden, inner, config_.mlp_bias);
    }
    return dense(name + "down", builder_.multiply(name + "gated", up, gate), inner, hidden,
                 config_.mlp_bias);
  }

  ValueId layer(ValueId x, const std::string& name) {
    x = builder_.add(name + "attention_residual", attention(norm(name + "attention_norm", x), name),
                     x);
    return builder_.add(name + "mlp_residual", mlp(norm(name + "mlp_norm", x), name), x);
  }

  const LlamaConfig& config_;
  const std::int64_t rows_;
  const DType dtype_;
  const DecoderGraphOptions& options_;
  GraphBuilder builder_;
  ValueId positions_ = graph::kNoId, slots_ = graph::kNoId, frequencies_ = graph::kNoId;
};

}  // namespace

graph::Graph build_llama_graph(const LlamaConfig& config, std::int64_t rows, DType dtype,
                               const DecoderGraphOptions& options) {
  options.validate("LLaMA graph", rows, dtype);
  return LlamaBuilder(config, rows, dtype, options).build();
}

std::vector<mask::Mask> llama_masks(const LlamaConfig& config, const mask::Mask& also) {
  std::vector<mask::Mask> masks;
  for (const std::int64_t window : distinct_windows(config)) {
    mask::Mask seen = mask::causal() & also;
    if (window > 0) seen = seen & mask::window(window - 1, 0);
    masks.push_back(std::move(seen));
  }
  return masks;
}

}  // namespace stof::model
