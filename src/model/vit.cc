#include "model/vit.h"

#include <fmt/core.h>

#include <array>
#include <utility>

#include "core/check.h"
#include "core/file.h"
#include "model/bert_graph.h"
#include "model/bert_loader.h"

namespace stof::model {
namespace {

using graph::GraphBuilder;
using graph::ValueId;

constexpr std::uint64_t kMaxVitConfigBytes = 16 << 20;
constexpr std::int64_t kMaxImageSide = 1 << 14;
constexpr std::int64_t kMaxLabels = 1 << 20;

/// One number for both sides, or [height, width].
std::pair<std::int64_t, std::int64_t> read_sides(const JsonFields& fields, const char* name,
                                                 std::int64_t fallback) {
  const Json* value = fields.find(name);
  if (value == nullptr || !value->is_array()) {
    const std::int64_t side = fields.integer(name, 1, kMaxImageSide, fallback);
    return {side, side};
  }
  const auto is_side = [](const Json& side) {
    return side.is_number_unsigned() && side >= 1 && side <= kMaxImageSide;
  };
  if (value->size() != 2 || !is_side((*value)[0]) || !is_side((*value)[1]))
    fields.fail(name, "a side's pixels, or height and width");
  return {(*value)[0].get<std::int64_t>(), (*value)[1].get<std::int64_t>()};
}

/// {"0": "cat", "1": "dog"}: as many as there are, from 0 on.
std::vector<std::string> read_labels(const JsonFields& fields) {
  const JsonFields names = fields.object("id2label");
  const auto count = static_cast<std::int64_t>(fields.find("id2label")->size());
  if (count < 2 || count > kMaxLabels)
    fields.refuse("id2label", "two labels or more, of which an image has one");
  std::vector<std::string> labels;
  for (std::int64_t i = 0; i < count; ++i)
    labels.push_back(names.string(std::to_string(i).c_str()));
  return labels;
}

class VitBuilder {
 public:
  VitBuilder(const VitConfig& config, std::int64_t rows) : config_(config), rows_(rows) {}

  graph::Graph build() {
    const std::int64_t hidden = config_.hidden_size;
    const ValueId places = builder_.input("places", DType::kInt32, {rows_});
    const ValueId patches =
        builder_.input("patches", DType::kFloat32, {rows_, config_.patch_values()});
    const ValueId bases =
        builder_.embedding("bases", places, weight("places.table", {config_.num_tokens(), hidden}));
    const ValueId projected = builder_.matmul(
        "projection", patches, weight("projection.weight", {hidden, config_.patch_values()}));
    ValueId x = builder_.add("embedded", projected, bases);
    builder_.begin_layer(x);
    builder_.end_layer(layer(x, "layer.0."));
    x = builder_.stamp_layers(static_cast<int>(config_.num_layers));
    builder_.mark_live_out(norm("final_norm", x));
    return builder_.build();
  }

 private:
  ValueId weight(const std::string& name, const Dims& shape) {
    return builder_.weight(name, DType::kFloat32, shape);
  }
  ValueId dense(const std::string& name, ValueId x, std::int64_t in, std::int64_t out,
                bool has_bias = true) {
    const ValueId product = builder_.matmul(name, x, weight(name + ".weight", {out, in}));
    if (!has_bias) return product;
    return builder_.bias(name + ".add_bias", product, weight(name + ".bias", {out}));
  }
  ValueId norm(const std::string& name, ValueId x) {
    return builder_.layer_norm(name, x, weight(name + ".gamma", {config_.hidden_size}),
                               weight(name + ".beta", {config_.hidden_size}),
                               config_.layer_norm_eps);
  }

  ValueId layer(ValueId x, const std::string& name) {
    const std::int64_t hidden = config_.hidden_size, inner = config_.intermediate_size;
    const ValueId qkv = dense(name + "query_key_value", norm(name + "attention_norm", x), hidden,
                              3 * hidden, config_.qkv_bias);
    const ValueId query = builder_.columns(name + "query", qkv, 0, hidden);
    const ValueId key = builder_.columns(name + "key", qkv, hidden, hidden);
    const ValueId value = builder_.columns(name + "value", qkv, 2 * hidden, hidden);
    const ValueId context =
        builder_.attention(name + "attention", query, key, value, config_.num_heads,
                           config_.num_heads, config_.head_dim());
    x = builder_.add(name + "attention_residual",
                     dense(name + "attention_output", context, hidden, hidden), x);
    const ValueId activated =
        builder_.activation(name + "activation",
                            dense(name + "intermediate", norm(name + "mlp_norm", x), hidden, inner),
                            graph_activation(config_.activation));
    return builder_.add(name + "mlp_residual", dense(name + "output", activated, inner, hidden), x);
  }

  const VitConfig& config_;
  const std::int64_t rows_;
  GraphBuilder builder_;
};

/// The class token and the projection's bias, each with its position: [tokens, hidden].
Tensor table_of_places(const TensorView& class_token, const TensorView& bias,
                       const TensorView& positions) {
  const std::int64_t tokens = positions.shape[1], hidden = positions.shape[2];
  Tensor table(DType::kFloat32, {tokens, hidden});
  const auto* first = static_cast<const float*>(class_token.data);
  const auto* others = static_cast<const float*>(bias.data);
  const auto* position = static_cast<const float*>(positions.data);
  float* out = table.as<float>().data();
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t i = 0; i < hidden; ++i)
      *out++ = (t == 0 ? first : others)[i] + position[t * hidden + i];
  return table;
}

}  // namespace

VitConfig parse_vit_config(std::string_view text, const std::string& file) {
  const Json json = parse_json(text, file);
  const JsonFields fields(json, file);
  if (fields.string("model_type") != "vit") fields.refuse("model_type", "\"vit\"");
  for (const char* name : {"is_decoder", "is_encoder_decoder", "add_cross_attention"})
    if (fields.boolean(name, false)) fields.refuse(name, "false");
  if (fields.has("quantization_config"))
    fields.refuse("quantization_config", "none: weights stored as float32, float16 or bfloat16");
  if (fields.string("problem_type", "single_label_classification") != "single_label_classification")
    fields.refuse("problem_type", "\"single_label_classification\"");
  VitConfig config;
  config.hidden_size = fields.integer("hidden_size", 1, kMaxBertSize);
  config.num_layers = fields.integer("num_hidden_layers", 1, kMaxBertLayers);
  config.num_heads = read_bert_heads(fields, "num_attention_heads", "hidden_size");
  if (fields.integer("head_dim", 1, kMaxBertSize, config.head_dim()) != config.head_dim())
    fields.refuse("head_dim",
                  fmt::format("hidden_size / num_attention_heads, {}", config.head_dim()));
  config.intermediate_size = fields.integer("intermediate_size", 1, kMaxBertSize);
  if (fields.integer("num_channels", 1, 64, 3) != 3) fields.refuse("num_channels", "3");
  std::tie(config.image_height, config.image_width) = read_sides(fields, "image_size", 224);
  std::tie(config.patch_height, config.patch_width) = read_sides(fields, "patch_size", 16);
  if (config.image_height % config.patch_height != 0 ||
      config.image_width % config.patch_width != 0)
    fields.refuse("patch_size", "a divisor of image_size");
  config.activation = read_bert_activation(fields, "hidden_act");
  config.layer_norm_eps = static_cast<float>(fields.number("layer_norm_eps", 0, 1, 1e-12));
  config.qkv_bias = fields.boolean("qkv_bias", true);
  config.labels = read_labels(fields);
  return config;
}

VitConfig load_vit_config(const std::string& folder) {
  STOF_CHECK(is_folder(folder), kNotFound,
             "{}: expected the folder of a ViT checkpoint, got no folder; check the path", folder);
  const std::string path = folder + "/config.json";
  return parse_vit_config(read_text_file(path, kMaxVitConfigBytes), path);
}

graph::Graph build_vit_graph(const VitConfig& config, std::int64_t rows) {
  STOF_CHECK(rows >= 1, kInvalidArgument, "ViT graph: rows: expected at least 1, got {}", rows);
  return VitBuilder(config, rows).build();
}

VitWeights load_vit_weights(Checkpoint checkpoint, const VitConfig& config) {
  const std::int64_t hidden = config.hidden_size, inner = config.intermediate_size;
  VitWeights weights;
  weights.checkpoint = std::move(checkpoint);
  BertLoader head(weights.checkpoint, weights.converted, "");
  BertLoader load(weights.checkpoint, weights.converted, "vit.");
  const auto add = [&](const std::string& name, const BertWeights::Dense& dense) {
    weights.named[name + ".weight"] = dense.weight;
    if (dense.bias.data != nullptr) weights.named[name + ".bias"] = dense.bias;
  };
  const auto add_norm = [&](const std::string& name, const std::string& theirs) {
    const BertWeights::Norm norm = load.norm(theirs, hidden);
    weights.named[name + ".gamma"] = norm.gamma;
    weights.named[name + ".beta"] = norm.beta;
  };
  // One product over the values of a patch in the order of the convolution's weights.
  TensorView projection = load.tensor("embeddings.patch_embeddings.projection.weight",
                                      {hidden, 3, config.patch_height, config.patch_width});
  weights.named["projection.weight"] =
      TensorView(projection.data, DType::kFloat32, {hidden, config.patch_values()});
  weights.converted.push_back(table_of_places(
      load.tensor("embeddings.cls_token", {1, 1, hidden}),
      load.tensor("embeddings.patch_embeddings.projection.bias", {hidden}),
      load.tensor("embeddings.position_embeddings", {1, config.num_tokens(), hidden})));
  weights.named["places.table"] = std::as_const(weights.converted.back()).view();
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    const std::string ours = fmt::format("layer.{}.", i);
    const std::string theirs = fmt::format("encoder.layer.{}.", i);
    add_norm(ours + "attention_norm", theirs + "layernorm_before");
    for (const char* part : {"query", "key", "value"})
      add(ours + part,
          load.dense(theirs + "attention.attention." + part, hidden, hidden, config.qkv_bias));
    add(ours + "attention_output", load.dense(theirs + "attention.output.dense", hidden, hidden));
    add_norm(ours + "mlp_norm", theirs + "layernorm_after");
    add(ours + "intermediate", load.dense(theirs + "intermediate.dense", hidden, inner));
    add(ours + "output", load.dense(theirs + "output.dense", inner, hidden));
  }
  add_norm("final_norm", "layernorm");
  const BertWeights::Dense classifier =
      head.dense("classifier", hidden, static_cast<std::int64_t>(config.labels.size()));
  weights.classifier = classifier.weight;
  weights.classifier_bias = classifier.bias;
  return weights;
}

GraphWeights bind_vit_weights(const graph::Graph& graph, const VitWeights& weights) {
  GraphWeightBinder binder(graph, "ViT graph");
  for (const auto& [name, tensor] : weights.named)
    if (binder.has(name)) binder.bind(name, tensor);
  for (int i = 0; i < graph.num_layers(); ++i)
    for (const char* kind : {".weight", ".bias"}) {
      const std::string name = fmt::format("layer.{}.", i);
      if (!binder.has(name + "query_key_value" + kind)) continue;
      binder.bind_stacked(
          name + "query_key_value" + kind,
          std::array{weights.named.at(name + "query" + kind), weights.named.at(name + "key" + kind),
                     weights.named.at(name + "value" + kind)});
    }
  return binder.take();
}

}  // namespace stof::model
