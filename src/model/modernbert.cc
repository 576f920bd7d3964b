#include "model/modernbert.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/check.h"
#include "model/bert_graph.h"
#include "model/bert_loader.h"
#include "model/rope.h"

namespace stof::model {
namespace {

using graph::GraphBuilder;
using graph::ValueId;

// --- configuration --------------------------------------------------------------------------

/// The theta of one kind of layer: `own` of "rope_parameters" (transformers 5), or the field
/// `early` (before); both may be there if they agree.
double read_theta(const JsonFields& fields, const char* own, const char* early, double fallback) {
  Json merged = Json::object();
  if (const Json* theta = fields.find(early)) merged["rope_theta"] = *theta;
  const Json* kinds = fields.find("rope_parameters");
  const std::string where = fmt::format("{}: rope_parameters.{}", fields.where(), own);
  if (kinds != nullptr) {
    for (const auto& [name, value] : kinds->items())
      if (name != "full_attention" && name != "sliding_attention")
        fields.refuse("rope_parameters", "an object of full_attention and sliding_attention");
    const JsonFields parameters = fields.object("rope_parameters");
    if (const Json* mine = parameters.find(own)) {
      const bool states = JsonFields(*mine, where).has("rope_theta");
      merged["rope_parameters"] = *mine;
      if (!states && !merged.contains("rope_theta"))
        merged["rope_parameters"]["rope_theta"] = fallback;
    }
  }
  if (merged.empty()) merged["rope_theta"] = fallback;
  const RopeConfig rope = read_rope(JsonFields(merged, fmt::format("{} and {}", where, early)));
  if (rope.scaling != RopeConfig::Scaling::kNone)
    fields.refuse("rope_parameters", "rope_type \"default\" alone");
  return rope.theta;
}

/// Which layers are local. The list and the early field may both be there if they agree.
std::vector<bool> read_local_layers(const JsonFields& fields, std::int64_t num_layers) {
  const auto by_period = [&](std::int64_t period) {
    std::vector<bool> is_local;
    for (std::int64_t i = 0; i < num_layers; ++i) is_local.push_back(i % period != 0);
    return is_local;
  };
  constexpr const char* kPeriod = "global_attn_every_n_layers";
  const std::int64_t period = fields.integer(kPeriod, 1, kMaxBertSize, 3);
  if (!fields.has("layer_types")) return by_period(period);
  std::vector<bool> is_local;
  for (const Json& type : fields.array("layer_types")) {
    if (type != "full_attention" && type != "sliding_attention")
      fields.refuse("layer_types", "full_attention and sliding_attention alone");
    is_local.push_back(type == "sliding_attention");
  }
  if (static_cast<std::int64_t>(is_local.size()) != num_layers)
    fields.fail("layer_types", fmt::format("one for each of {} layers", num_layers));
  if (fields.has(kPeriod) && by_period(period) != is_local)
    fields.refuse(kPeriod, "what layer_types says");
  return is_local;
}

// --- graph ----------------------------------------------------------------------------------

class ModernBuilder {
 public:
  ModernBuilder(const BertConfig& config, std::int64_t rows, DType dtype)
      : config_(config), modern_(config.modern), rows_(rows), dtype_(dtype) {}

  graph::Graph build() {
    const ValueId ids = builder_.input("ids", DType::kInt32, {rows_});
    positions_ = builder_.input("positions", DType::kInt32, {rows_});
    const ValueId words =
        builder_.weight("word_embeddings", dtype_, {config_.vocab_size, config_.hidden_size});
    ValueId x = norm("embedding_norm", builder_.embedding("embeddings", ids, words));
    x = layer(x, x, "first.", modern_.is_local[0]);
    if (config_.num_layers > 1) {
      builder_.begin_layer(x);
      const std::string name = "layer.0.";
      builder_.end_layer(layer(x, norm(name + "attention_norm", x), name, false));
      x = builder_.stamp_layers(static_cast<int>(config_.num_layers) - 1,
                                {modern_.is_local.begin() + 1, modern_.is_local.end()});
    }
    builder_.mark_live_out(norm("final_norm", x));
    return builder_.build();
  }

 private:
  ValueId dense(const std::string& name, ValueId x, std::int64_t in, std::int64_t out,
                bool has_bias) {
    const ValueId product =
        builder_.matmul(name, x, builder_.weight(name + ".weight", dtype_, {out, in}));
    if (!has_bias) return product;
    return builder_.bias(name + ".add_bias", product,
                         builder_.weight(name + ".bias", dtype_, {out}));
  }

  ValueId norm(const std::string& name, ValueId x) {
    const ValueId gamma = builder_.weight(name + ".gamma", DType::kFloat32, {config_.hidden_size});
    const ValueId beta = builder_.weight(name + ".beta", DType::kFloat32, {config_.hidden_size});
    return builder_.layer_norm(name, x, gamma, beta, config_.layer_norm_eps);
  }

  ValueId attention(ValueId x, const std::string& name, int mask) {
    const std::int64_t hidden = config_.hidden_size, heads = config_.num_heads;
    const std::int64_t head_dim = config_.head_dim();
    const ValueId frequencies =
        builder_.weight(name + "frequencies", DType::kFloat32, {head_dim / 2});
    const ValueId qkv = builder_.rope(
        name + "rope",
        dense(name + "query_key_value", x, hidden, 3 * hidden, modern_.attention_bias), positions_,
        frequencies, heads, heads, head_dim);
    const ValueId query = builder_.columns(name + "query", qkv, 0, hidden);
    const ValueId key = builder_.columns(name + "key", qkv, hidden, hidden);
    const ValueId value = builder_.columns(name + "value", qkv, 2 * hidden, hidden);
    const ValueId context = builder_.attention(name + "attention", query, key, value, heads, heads,
                                               head_dim, /*scale=*/0, mask);
    return dense(name + "attention_output", context, hidden, hidden, modern_.attention_bias);
  }

  ValueId mlp(ValueId x, const std::string& name) {
    const std::int64_t hidden = config_.hidden_size, inner = config_.intermediate_size;
    const graph::Activation activation = graph_activation(config_.activation);
    const std::string act = name + "activation";
    ValueId gate = graph::kNoId, up = graph::kNoId;
    // A GPU's products multiply halves of their own; those of oneDNN read the other factor.
    if (dtype_ != DType::kFloat32) {
      const ValueId both = dense(name + "gate_up", x, hidden, 2 * inner, modern_.mlp_bias);
      up = builder_.columns(name + "up", both, inner, inner);
      gate = builder_.activation(act, builder_.columns(name + "gate", both, 0, inner), activation);
    } else {
      gate = builder_.activation(act, dense(name + "gate", x, hidden, inner, modern_.mlp_bias),
                                 activation);
      up = dense(name + "up", x, hidden, inner, modern_.mlp_bias);
    }
    return dense(name + "output", builder_.multiply(name + "gated", up, gate), inner, hidden,
                 modern_.mlp_bias);
  }

  /// `normed` is what attention reads of x.
  ValueId layer(ValueId x, ValueId normed, const std::string& name, bool is_local) {
    x = builder_.add(name + "attention_residual", attention(normed, name, is_local ? 1 : 0), x);
    return builder_.add(name + "mlp_residual", mlp(norm(name + "mlp_norm", x), name), x);
  }

  const BertConfig& config_;
  const ModernBertFields& modern_;
  const std::int64_t rows_;
  const DType dtype_;
  GraphBuilder builder_;
  ValueId positions_ = graph::kNoId;
};

// --- weights --------------------------------------------------------------------------------

/// Rows of a matrix or elements of a vector, without a copy.
TensorView rows_of(TensorView view, std::int64_t first, std::int64_t count) {
  if (view.data == nullptr) return view;
  view.data = static_cast<const float*>(view.data) + first * view.strides[0];
  view.shape[0] = count;
  return view;
}

/// Collects tensors under the names of the graph.
class Namer {
 public:
  explicit Namer(std::map<std::string, TensorView>& named) : named_(named) {}
  void add_dense(const std::string& name, const BertWeights::Dense& dense) {
    named_[name + ".weight"] = dense.weight;
    if (dense.bias.data != nullptr) named_[name + ".bias"] = dense.bias;
  }
  void add_norm(const std::string& name, const BertWeights::Norm& norm) {
    named_[name + ".gamma"] = norm.gamma;
    named_[name + ".beta"] = norm.beta;
  }

 private:
  std::map<std::string, TensorView>& named_;
};

}  // namespace

const BertNames& modernbert_names() {
  static const BertNames kNames = [] {
    BertNames names;
    names.family = "ModernBERT";
    names.prefixes = {"model.", "0.auto_model."};
    names.word_embeddings = "embeddings.tok_embeddings.weight";
    names.head = {"head.dense", "head.norm", "decoder", "decoder.bias"};
    return names;
  }();
  return kNames;
}

BertConfig read_modernbert_config(const JsonFields& fields) {
  for (const char* name :
       {"is_decoder", "add_cross_attention", "is_encoder_decoder", "causal_mask"})
    if (fields.boolean(name, false)) fields.refuse(name, "false");
  for (const char* name : {"quantization_config", "rope_scaling"})
    if (fields.has(name)) fields.refuse(name, "no such field");
  BertConfig config;
  config.family = BertFamily::kModernBert;
  config.hidden_size = fields.integer("hidden_size", 1, kMaxBertSize);
  config.num_layers = fields.integer("num_hidden_layers", 1, kMaxBertLayers);
  config.num_heads = read_bert_heads(fields, "num_attention_heads", "hidden_size");
  if (config.head_dim() % 2 != 0)
    fields.refuse("num_attention_heads", "heads of an even size, for rotary positions");
  if (fields.integer("head_dim", 1, kMaxBertSize, config.head_dim()) != config.head_dim())
    fields.refuse("head_dim",
                  fmt::format("hidden_size / num_attention_heads, {}", config.head_dim()));
  config.intermediate_size = fields.integer("intermediate_size", 1, kMaxBertSize);
  config.vocab_size = fields.integer("vocab_size", 1, kMaxBertSize);
  config.max_positions = fields.integer("max_position_embeddings", 1, kMaxBertSize);
  config.activation = read_bert_activation(fields, "hidden_activation");
  config.layer_norm_eps = static_cast<float>(fields.number("norm_eps", 0, 1, 1e-5));
  config.tied_head = fields.boolean("tie_word_embeddings", true);
  config.head_activation = read_bert_activation(fields, "classifier_activation");
  ModernBertFields& modern = config.modern;
  modern.is_local = read_local_layers(fields, config.num_layers);
  const std::int64_t width = fields.integer("local_attention", 0, kMaxBertSize, 128);
  modern.local_radius = width / 2;  // of 128: 64 tokens on each side, and the token itself
  if (fields.integer("sliding_window", 0, kMaxBertSize, width / 2) != width / 2)
    fields.refuse("sliding_window", "half of local_attention");
  modern.global_theta = read_theta(fields, "full_attention", "global_rope_theta", 160'000);
  modern.local_theta = read_theta(fields, "sliding_attention", "local_rope_theta", 10'000);
  modern.norm_bias = fields.boolean("norm_bias", false);
  modern.attention_bias = fields.boolean("attention_bias", false);
  modern.mlp_bias = fields.boolean("mlp_bias", false);
  modern.head_bias = fields.boolean("classifier_bias", false);
  modern.decoder_bias = fields.boolean("decoder_bias", true);
  return config;
}

graph::Graph build_modernbert_graph(const BertConfig& config, std::int64_t rows, DType dtype) {
  return ModernBuilder(config, rows, dtype).build();
}

void load_modernbert_weights(const BertConfig& config, BertWeights& weights) {
  const std::int64_t hidden = config.hidden_size, inner = config.intermediate_size;
  const ModernBertFields& modern = config.modern;
  BertLoader load(weights.checkpoint, weights.converted,
                  BertLoader::find_prefix(weights.checkpoint, modernbert_names()));
  Namer names(weights.named);
  weights.word_embeddings =
      load.tensor(std::string(modernbert_names().word_embeddings), {config.vocab_size, hidden});
  weights.named["word_embeddings"] = weights.word_embeddings;
  names.add_norm("embedding_norm", load.norm("embeddings.norm", hidden, modern.norm_bias));
  std::array<TensorView, 2> frequencies;  // of global and of local layers
  for (const bool local : {false, true}) {
    RopeConfig rope;
    rope.theta = local ? modern.local_theta : modern.global_theta;
    const std::vector<float> values = rope.frequencies(config.head_dim());
    weights.converted.push_back(Tensor::copy_of(
        {values.data(), DType::kFloat32, {static_cast<std::int64_t>(values.size())}}));
    frequencies[local ? 1 : 0] = std::as_const(weights.converted.back()).view();
  }
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    const std::string theirs = fmt::format("layers.{}.", i);
    const std::string ours = i == 0 ? "first." : fmt::format("layer.{}.", i - 1);
    if (i > 0)
      names.add_norm(ours + "attention_norm",
                     load.norm(theirs + "attn_norm", hidden, modern.norm_bias));
    names.add_dense(ours + "query_key_value",
                    load.dense(theirs + "attn.Wqkv", hidden, 3 * hidden, modern.attention_bias));
    weights.named[ours + "frequencies"] =
        frequencies[modern.is_local[static_cast<std::size_t>(i)] ? 1 : 0];
    names.add_dense(ours + "attention_output",
                    load.dense(theirs + "attn.Wo", hidden, hidden, modern.attention_bias));
    names.add_norm(ours + "mlp_norm", load.norm(theirs + "mlp_norm", hidden, modern.norm_bias));
    const BertWeights::Dense both =
        load.dense(theirs + "mlp.Wi", hidden, 2 * inner, modern.mlp_bias);
    names.add_dense(ours + "gate_up", both);
    names.add_dense(ours + "gate", {rows_of(both.weight, 0, inner), rows_of(both.bias, 0, inner)});
    names.add_dense(ours + "up",
                    {rows_of(both.weight, inner, inner), rows_of(both.bias, inner, inner)});
    names.add_dense(ours + "output", load.dense(theirs + "mlp.Wo", inner, hidden, modern.mlp_bias));
  }
  names.add_norm("final_norm", load.norm("final_norm", hidden, modern.norm_bias));
}

GraphWeights bind_modernbert_weights(const graph::Graph& graph, const BertWeights& weights) {
  GraphWeightBinder binder(graph, "ModernBERT graph");
  for (const auto& [name, tensor] : weights.named)
    if (binder.has(name)) binder.bind(name, tensor);
  return binder.take();
}

}  // namespace stof::model
