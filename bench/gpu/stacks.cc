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
      // At (16,2048), 32768 rows of each part: products 13.0 TFLOP (198 million weights), attention
      // across 2.47 dense, to the own text 1.1 in visible tiles; norms and residuals 60 x 100 MB.
      // From GPT-2's measured rate of products (5.6 TFLOP and half of that attention in 9.7 ms)
      // and 450 TFLOP/s across: 22.6 + 5.5 + 1 = 29 ms predicted, 29.3 to 32.8 measured (at the
      // card's power limit); (8,512) 3.4 predicted, 3.72; (1,128) 230 launches of 3.2 us, 0.75
      // predicted, 0.78.
      {"t5-base", Design::kT5, 768, 3072, 12, 12, 64, 12, Activation::kRelu, 1e-6, "bigbird"},
  };
  return all;
}

/// T5's rule of position biases.
constexpr std::int64_t kBuckets = 32, kMaxDistance = 128;

class Builder {
 public:
  Builder(const StackModel& model, std::int64_t rows, int part, DType dtype)
      : model_(model), rows_(rows), decodes_(part == 1), dtype_(dtype) {}

  graph::Graph build() {
    const ValueId x = builder_.input("x", dtype_, {rows_, model_.hidden});
    if (model_.design == Design::kT5) return build_t5(x);
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
  /// RMSNorm, no biases.
  bool plain() const { return llama() || model_.design == Design::kT5; }

  graph::Graph build_t5(ValueId x) {
    table_ = builder_.weight("position_bias", DType::kFloat32, {kBuckets, model_.heads});
    const ValueId encoded =
        builder_.state("encoded." + std::to_string(rows_), dtype_, {rows_, model_.hidden});
    builder_.begin_layer(x);
    ValueId y =
        builder_.add("layer.0.attention_residual", attention(norm("layer.0.attention_norm", x)), x);
    if (decodes_)
      y = builder_.add("layer.0.cross_residual", cross(norm("layer.0.cross_norm", y), encoded), y);
    builder_.end_layer(
        builder_.add("layer.0.output_residual", inner(norm("layer.0.output_norm", y)), y));
    const ValueId last = norm("final_norm", builder_.stamp_layers(model_.layers));
    if (!decodes_) builder_.overwrite(last, encoded);
    builder_.mark_live_out(last);
    return builder_.build();
  }

  ValueId dense(const std::string& name, ValueId x, std::int64_t in, std::int64_t out) {
    const ValueId product =
        builder_.matmul(name, x, builder_.weight(name + ".weight", dtype_, {out, in}));
    if (plain()) return product;
    return builder_.bias(name + ".add_bias", product,
                         builder_.weight(name + ".bias", dtype_, {out}));
  }

  ValueId norm(const std::string& name, ValueId x) {
    const ValueId gamma = builder_.weight(name + ".gamma", DType::kFloat32, {model_.hidden});
    if (plain()) return builder_.rms_norm(name, x, gamma, model_.epsilon);
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
    graph::Attributes attributes = heads();
    if (table_ != graph::kNoId) {
      attributes.bidirectional = !decodes_;
      attributes.max_distance = kMaxDistance;
    }
    const ValueId context =
        builder_.attention(name + "attention", builder_.columns(name + "query", qkv, 0, q),
                           builder_.columns(name + "key", qkv, q, kv),
                           builder_.columns(name + "value", qkv, q + kv, kv), table_, attributes);
    return dense(name + "attention_output", context, q, model_.hidden);
  }

  /// Attention to the rows of the encoder, which has a text of the same length for each of ours.
  ValueId cross(ValueId x, ValueId encoded) {
    const std::string name = "layer.0.cross_";
    const std::int64_t width = model_.heads * model_.head_dim;
    const ValueId q = dense(name + "query", x, model_.hidden, width);
    const ValueId kv = dense(name + "key_value", encoded, model_.hidden, 2 * width);
    graph::Attributes attributes = heads();
    attributes.mask = 1;
    const ValueId context = builder_.attention(
        name + "attention", q, builder_.columns(name + "key", kv, 0, width),
        builder_.columns(name + "value", kv, width, width), graph::kNoId, attributes);
    return dense(name + "output", context, width, model_.hidden);
  }

  graph::Attributes heads() const {
    graph::Attributes attributes;
    attributes.heads = model_.heads;
    attributes.kv_heads = model_.kv_heads;
    attributes.head_dim = model_.head_dim;
    attributes.scale = model_.design == Design::kT5 ? 1 : 0;
    return attributes;
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
  const bool decodes_;  ///< T5's decoder
  const DType dtype_;
  graph::GraphBuilder builder_;
  ValueId positions_ = graph::kNoId, frequencies_ = graph::kNoId, table_ = graph::kNoId;
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

std::string StackModel::prefix(int part) const {
  if (num_parts() == 1) return "";
  return part == 0 ? "encoder." : "decoder.";
}

graph::Graph stack_graph(const StackModel& model, std::int64_t rows, int part, DType dtype) {
  return Builder(model, rows, part, dtype).build();
}

std::vector<mask::Mask> part_masks(const StackModel&, const mask::Mask& mask, int part) {
  if (part == 0) return {mask};
  return {mask & mask::causal(), mask::all()};
}

StackWeights::StackWeights(const graph::Graph& graph, int part) {
  constexpr float kDeviation = 0.02f;
  std::mt19937 random(static_cast<unsigned>(1 + part));
  std::normal_distribution<float> normal(0, kDeviation);
  for (const ValueId id : graph.of_kind(graph::ValueKind::kWeight)) {
    const graph::Value& value = graph.value(id);
    Tensor& tensor = tensors.emplace_back(value.dtype, value.shape);
    if (value.name == "rope.frequencies") {
      const auto frequencies = tensor.as<float>();
      for (std::size_t i = 0; i < frequencies.size(); ++i)
        frequencies[i] =
            std::pow(5e5f, -static_cast<float>(i) / static_cast<float>(frequencies.size()));
    } else if (value.dtype == DType::kFloat32) {
      const float factor = value.name == "position_bias" ? 1 / kDeviation : 1;
      const float middle = value.name.ends_with("gamma") ? 1 : 0;
      // As checkpoints in bfloat16 hold them, so that peers compute with the same numbers.
      for (float& x : tensor.as<float>())
        x = static_cast<float>(BFloat16(middle + factor * normal(random)));
    } else {
      for (BFloat16& x : tensor.as<BFloat16>()) x = BFloat16(normal(random));
    }
    views[id] = std::as_const(tensor).view();
  }
}

}  // namespace stof::bench
