#include "bench/gpu/stacks.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <stdexcept>

namespace stof::bench {
namespace {

using graph::Activation;
using graph::ValueId;

const std::vector<StackModel>& models() {
  static const std::vector<StackModel> all = {
      {"bert-base", Design::kPostNorm, 768, 3072, 12, 12, 64, 12, Activation::kGeluErf, 1e-12,
       "bigbird"},
      {"bert-large", Design::kPostNorm, 1024, 4096, 16, 16, 64, 24, Activation::kGeluErf, 1e-12,
       "bigbird"},
      {"gpt2", Design::kPreNorm, 768, 3072, 12, 12, 64, 12, Activation::kGeluTanh, 1e-5,
       "causal_bigbird"},
      {"llama-1b", Design::kLlama, 2048, 8192, 32, 8, 64, 16, Activation::kSilu, 1e-5,
       "causal_bigbird"},
      {"vit-base", Design::kPreNorm, 768, 3072, 12, 12, 64, 12, Activation::kGeluErf, 1e-12,
       "dense"},
  };
  return all;
}

class Builder {
 public:
  Builder(const StackModel& model, std::int64_t rows) : model_(model), rows_(rows) {}

  graph::Graph build() {
    const ValueId x = builder_.input("x", DType::kBFloat16, {rows_, model_.hidden});
    if (model_.design == Design::kLlama) {
      positions_ = builder_.input("positions", DType::kInt32, {rows_});
      frequencies_ = builder_.weight("rope.frequencies", DType::kFloat32, {model_.head_dim / 2});
    }
    builder_.begin_layer(x);
    builder_.end_layer(model_.design == Design::kPostNorm ? post_norm_layer(x) : pre_norm_layer(x));
    builder_.mark_live_out(builder_.stamp_layers(model_.layers));
    return builder_.build();
  }

 private:
  bool llama() const { return model_.design == Design::kLlama; }

  ValueId dense(const std::string& name, ValueId x, std::int64_t in, std::int64_t out) {
    const ValueId product =
        builder_.matmul(name, x, builder_.weight(name + ".weight", DType::kBFloat16, {out, in}));
    if (llama()) return product;
    return builder_.bias(name + ".add_bias", product,
                         builder_.weight(name + ".bias", DType::kBFloat16, {out}));
  }

  ValueId norm(const std::string& name, ValueId x) {
    const ValueId gamma = builder_.weight(name + ".gamma", DType::kFloat32, {model_.hidden});
    if (llama()) return builder_.rms_norm(name, x, gamma, model_.epsilon);
    const ValueId beta = builder_.weight(name + ".beta", DType::kFloat32, {model_.hidden});
    return builder_.layer_norm(name, x, gamma, beta, model_.epsilon);
  }

  ValueId attention(ValueId x) {
    const std::string name = "layer.0.";
    const std::int64_t q = model_.heads * model_.head_dim, kv = model_.kv_heads * model_.head_dim;
    ValueId qkv = dense(name + "query_key_value", x, model_.hidden, q + 2 * kv);
    if (llama())
      qkv = builder_.rope(name + "rope", qkv, positions_, frequencies_, model_.heads,
                          model_.kv_heads, model_.head_dim);
    const ValueId context =
        builder_.attention(name + "attention", builder_.columns(name + "query", qkv, 0, q),
                           builder_.columns(name + "key", qkv, q, kv),
                           builder_.columns(name + "value", qkv, q + kv, kv), model_.heads,
                           model_.kv_heads, model_.head_dim);
    return dense(name + "attention_output", context, q, model_.hidden);
  }

  ValueId inner(ValueId x) {
    const std::int64_t hidden = model_.hidden, inner = model_.inner;
    if (!llama()) {
      const ValueId active = builder_.activation(
          "layer.0.activation", dense("layer.0.intermediate", x, hidden, inner), model_.activation);
      return dense("layer.0.output", active, inner, hidden);
    }
    const ValueId both = dense("layer.0.gate_up", x, hidden, 2 * inner);
    const ValueId gate = builder_.activation(
        "layer.0.silu", builder_.columns("layer.0.gate", both, 0, inner), model_.activation);
    const ValueId gated = builder_.multiply(
        "layer.0.gated", builder_.columns("layer.0.up", both, inner, inner), gate);
    return dense("layer.0.output", gated, inner, hidden);
  }

  ValueId post_norm_layer(ValueId x) {
    x = norm("layer.0.attention_norm", builder_.add("layer.0.attention_residual", attention(x), x));
    return norm("layer.0.output_norm", builder_.add("layer.0.output_residual", inner(x), x));
  }

  ValueId pre_norm_layer(ValueId x) {
    x = builder_.add("layer.0.attention_residual", attention(norm("layer.0.attention_norm", x)), x);
    return builder_.add("layer.0.output_residual", inner(norm("layer.0.output_norm", x)), x);
  }

  const StackModel& model_;
  const std::int64_t rows_;
  graph::GraphBuilder builder_;
  ValueId positions_ = graph::kNoId, frequencies_ = graph::kNoId;
};

}  // namespace

StackModel stack_model(const std::string& name) {
  std::string names;
  for (const StackModel& model : models()) {
    if (model.name == name) return model;
    names += " " + model.name;
  }
  throw std::runtime_error("model " + name + ": expected one of" + names);
}

mask::Mask stacks_mask(const std::string& name) {
  const mask::Mask bigbird = mask::bigbird(64, 1, 2, 3, 1234);
  if (name == "bigbird") return bigbird;
  if (name == "causal_bigbird") return bigbird & mask::causal();
  if (name == "longformer") return mask::longformer(256, 64);
  if (name == "dense") return mask::all();
  throw std::runtime_error("mask " + name +
                           ": expected bigbird, causal_bigbird, longformer or dense");
}

graph::Graph stack_graph(const StackModel& model, std::int64_t rows) {
  return Builder(model, rows).build();
}

StackWeights::StackWeights(const graph::Graph& graph) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 0.02f);
  for (const ValueId id : graph.of_kind(graph::ValueKind::kWeight)) {
    const graph::Value& value = graph.value(id);
    Tensor& tensor = tensors.emplace_back(value.dtype, value.shape);
    if (value.name == "rope.frequencies") {
      const auto frequencies = tensor.as<float>();
      for (std::size_t i = 0; i < frequencies.size(); ++i)
        frequencies[i] =
            std::pow(5e5f, -static_cast<float>(i) / static_cast<float>(frequencies.size()));
    } else if (value.dtype == DType::kFloat32) {
      const float middle = value.name.ends_with("gamma") ? 1 : 0;
      // As checkpoints in bfloat16 hold them, so that peers compute with the same numbers.
      for (float& x : tensor.as<float>()) x = static_cast<float>(BFloat16(middle + normal(random)));
    } else {
      for (BFloat16& x : tensor.as<BFloat16>()) x = BFloat16(normal(random));
    }
    views[id] = std::as_const(tensor).view();
  }
}

}  // namespace stof::bench
