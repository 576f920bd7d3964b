#include "model/bert_graph.h"

#include <algorithm>
#include <string>

#include "core/check.h"
#include "model/modernbert.h"

namespace stof::model {
namespace {

using graph::GraphBuilder;
using graph::ValueId;

class Builder {
 public:
  Builder(const BertConfig& config, std::int64_t rows, DType dtype)
      : config_(config), rows_(rows), dtype_(dtype) {}

  graph::Graph build() {
    ValueId x = embeddings();
    builder_.begin_layer(x);
    builder_.end_layer(layer(x, "layer.0."));
    x = builder_.stamp_layers(static_cast<int>(config_.num_layers));
    builder_.mark_live_out(x);
    return builder_.build();
  }

 private:
  ValueId embeddings() {
    const std::int64_t hidden = config_.hidden_size;
    const ValueId ids = builder_.input("ids", DType::kInt32, {rows_});
    const ValueId positions = builder_.input("positions", DType::kInt32, {rows_});
    const ValueId words = builder_.weight("word_embeddings", dtype_, {config_.vocab_size, hidden});
    const ValueId places =
        builder_.weight("position_embeddings", dtype_, {config_.position_rows(), hidden});
    const ValueId segments =
        config_.num_segments > 0
            ? builder_.weight("segment_embeddings", dtype_, {config_.num_segments, hidden})
            : graph::kNoId;
    return norm("embedding_norm",
                builder_.embedding("embeddings", ids, words, positions, places, segments));
  }

  ValueId dense(const std::string& name, ValueId x, std::int64_t in, std::int64_t out) {
    const ValueId weight = builder_.weight(name + ".weight", dtype_, {out, in});
    const ValueId bias = builder_.weight(name + ".bias", dtype_, {out});
    return builder_.bias(name + ".add_bias", builder_.matmul(name, x, weight), bias);
  }

  ValueId norm(const std::string& name, ValueId x) {
    const ValueId gamma = builder_.weight(name + ".gamma", DType::kFloat32, {config_.hidden_size});
    const ValueId beta = builder_.weight(name + ".beta", DType::kFloat32, {config_.hidden_size});
    return builder_.layer_norm(name, x, gamma, beta, config_.layer_norm_eps);
  }

  ValueId layer(ValueId x, const std::string& name) {
    const std::int64_t hidden = config_.hidden_size, inner = config_.intermediate_size;
    const ValueId qkv = dense(name + "query_key_value", x, hidden, 3 * hidden);
    const ValueId query = builder_.columns(name + "query", qkv, 0, hidden);
    const ValueId key = builder_.columns(name + "key", qkv, hidden, hidden);
    const ValueId value = builder_.columns(name + "value", qkv, 2 * hidden, hidden);
    const ValueId context =
        builder_.attention(name + "attention", query, key, value, config_.num_heads,
                           config_.num_heads, config_.head_dim());
    const ValueId attended = dense(name + "attention_output", context, hidden, hidden);
    x = norm(name + "attention_norm", builder_.add(name + "attention_residual", attended, x));
    const ValueId activated =
        builder_.activation(name + "activation", dense(name + "intermediate", x, hidden, inner),
                            graph_activation(config_.activation));
    const ValueId output = dense(name + "output", activated, inner, hidden);
    return norm(name + "output_norm", builder_.add(name + "output_residual", output, x));
  }

  const BertConfig& config_;
  const std::int64_t rows_;
  const DType dtype_;
  GraphBuilder builder_;
};

}  // namespace

graph::Activation graph_activation(cpu::Activation activation) {
  switch (activation) {
    case cpu::Activation::kRelu:
      return graph::Activation::kRelu;
    case cpu::Activation::kGeluErf:
      return graph::Activation::kGeluErf;
    case cpu::Activation::kGeluTanh:
      return graph::Activation::kGeluTanh;
    case cpu::Activation::kNone:
      break;
  }
  throw_error(ErrorCode::kInvalidArgument,
              "BERT config: activation: expected relu, gelu_erf or gelu_tanh, got none");
}

graph::Graph build_bert_graph(const BertConfig& config, std::int64_t rows, DType dtype) {
  STOF_CHECK(rows >= 1, kInvalidArgument, "BERT graph: rows: expected at least 1, got {}", rows);
  STOF_CHECK(dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16,
             kInvalidArgument, "BERT graph: dtype: expected float32, float16 or bfloat16, got {}",
             to_string(dtype));
  if (config.family == BertFamily::kModernBert) return build_modernbert_graph(config, rows, dtype);
  return Builder(config, rows, dtype).build();
}

std::vector<mask::Mask> bert_masks(const BertConfig& config, const mask::Mask& mask) {
  const std::vector<bool>& is_local = config.modern.is_local;
  if (std::ranges::find(is_local, true) == is_local.end()) return {mask};
  return {mask, mask & mask::window(config.modern.local_radius, config.modern.local_radius)};
}

graph::Graph bert_session_graph(const BertConfig& config, std::int64_t rows, DType dtype) {
  return with_layer_masks(build_bert_graph(config, rows, dtype));
}

LayerMasks bert_layer_masks(const BertConfig& config, const mask::MaskSet& mask) {
  std::vector<int> kinds(static_cast<std::size_t>(config.num_layers));
  for (std::size_t i = 0; i < config.modern.is_local.size(); ++i)
    kinds[i] = config.modern.is_local[i] ? 1 : 0;
  return combine_masks(
      kinds, [&](const mask::Mask& also) { return bert_masks(config, also); }, mask,
      config.num_heads);
}

}  // namespace stof::model
