#include "model/gemma_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/check.h"

namespace stof::model {
namespace {

using graph::GraphBuilder;
using graph::ValueId;

/// What embeddings are multiplied by, as a model of that type holds it.
float embedding_scale(std::int64_t hidden_size, DType dtype) {
  Tensor scale(DType::kFloat32, {1});
  scale.as<float>()[0] = static_cast<float>(std::sqrt(static_cast<double>(hidden_size)));
  const Tensor rounded = Tensor::converted(scale.view(), dtype);
  return Tensor::converted(rounded.view(), DType::kFloat32).as<float>()[0];
}

/// The windows of all layers, each once.
std::vector<std::int64_t> different_windows(const GemmaConfig& config) {
  std::vector<std::int64_t> windows;
  for (const std::int64_t window : config.windows)
    if (std::ranges::find(windows, window) == windows.end()) windows.push_back(window);
  return windows;
}

class GemmaBuilder {
 public:
  GemmaBuilder(const GemmaConfig& config, std::int64_t rows, DType dtype,
               const DecoderGraphOptions& options)
      : config_(config), rows_(rows), dtype_(dtype), options_(options) {}

  graph::Graph build() {
    const std::int64_t hidden = config_.hidden_size,
                       vocabulary = options_.vocabulary(config_.vocab_size);
    const ValueId ids = builder_.input("ids", DType::kInt32, {rows_});
    positions_ = builder_.input("positions", DType::kInt32, {rows_});
    if (options_.cache_size > 0) slots_ = builder_.input("slots", DType::kInt32, {rows_});
    const ValueId words = builder_.weight("embeddings", dtype_, {vocabulary, hidden});
    ValueId x = builder_.embedding("embedded", ids, words);
    builder_.begin_layer(x);
    builder_.end_layer(layer(x));
    const std::vector<std::int64_t> windows = different_windows(config_);
    std::vector<int> masks;
    for (const std::int64_t window : config_.windows)
      masks.push_back(static_cast<int>(std::ranges::find(windows, window) - windows.begin()));
    x = builder_.stamp_layers(static_cast<int>(config_.num_layers), masks);
    if (options_.head_rows > 0)
      x = builder_.embedding("picked",
                             builder_.input("head_rows", DType::kInt32, {options_.head_rows}), x);
    x = norm_of_stream("final_norm", x);
    builder_.mark_live_out(builder_.matmul(
        "head", x,
        config_.tied_head ? words : builder_.weight("head.weight", dtype_, {vocabulary, hidden})));
    return builder_.build();
  }

 private:
  ValueId dense(const std::string& name, ValueId x, std::int64_t in, std::int64_t out) {
    return builder_.matmul(name, x, builder_.weight(name + ".weight", dtype_, {out, in}));
  }

  ValueId gamma(const std::string& name, std::int64_t width) {
    return builder_.weight(name + ".gamma", DType::kFloat32, {width});
  }

  ValueId norm(const std::string& name, ValueId x) {
    return builder_.rms_norm(name, x, gamma(name, config_.hidden_size), config_.rms_norm_eps);
  }

  /// Of what runs between the layers, which is smaller than the original's by the scale.
  ValueId norm_of_stream(const std::string& name, ValueId x) {
    const double scale = embedding_scale(config_.hidden_size, dtype_);
    return builder_.rms_norm(name, x, gamma(name, config_.hidden_size),
                             config_.rms_norm_eps / (scale * scale));
  }

  ValueId attention(ValueId x) {
    const std::int64_t heads = config_.num_heads, kv_heads = config_.num_kv_heads;
    const std::int64_t dim = config_.head_dim, q_width = heads * dim, kv_width = kv_heads * dim;
    const std::string name = "layer.0.";
    const ValueId projected =
        dense(name + "query_key_value", x, config_.hidden_size, q_width + 2 * kv_width);
    const ValueId normed = builder_.head_norm(
        name + "head_norm", projected, gamma(name + "query_norm", dim),
        gamma(name + "key_norm", dim), heads, kv_heads, dim, config_.rms_norm_eps);
    const ValueId frequencies =
        builder_.weight(name + "rope.frequencies", DType::kFloat32, {dim / 2});
    const ValueId turned =
        builder_.rope(name + "rope", normed, positions_, frequencies, heads, kv_heads, dim);
    ValueId stored = graph::kNoId;
    if (options_.cache_size > 0)
      stored = builder_.cache_store(
          name + "cache_store", turned, slots_,
          builder_.state(name + "cache", dtype_, {options_.cache_size, 2 * kv_width}), heads,
          kv_heads, dim);
    const ValueId base = options_.reads_cache ? stored : turned;
    const std::int64_t first = options_.reads_cache ? 0 : q_width;
    const ValueId query = builder_.columns(name + "query", turned, 0, q_width);
    const ValueId key = builder_.columns(name + "key", base, first, kv_width);
    const ValueId value = builder_.columns(name + "value", base, first + kv_width, kv_width);
    const ValueId context = builder_.attention(name + "attention", query, key, value, heads,
                                               kv_heads, dim, 1 / std::sqrt(config_.query_scalar));
    return dense(name + "attention_output", context, q_width, config_.hidden_size);
  }

  ValueId mlp(ValueId x) {
    const std::int64_t hidden = config_.hidden_size, inner = config_.intermediate_size;
    const std::string name = "layer.0.";
    constexpr auto kGelu = graph::Activation::kGeluTanh;
    ValueId gate = graph::kNoId, up = graph::kNoId;
    if (options_.joined_gate) {
      const ValueId both = dense(name + "gate_up", x, hidden, 2 * inner);
      up = builder_.columns(name + "up", both, inner, inner);
      gate = builder_.activation(name + "gelu", builder_.columns(name + "gate", both, 0, inner),
                                 kGelu);
    } else {
      gate = builder_.activation(name + "gelu", dense(name + "gate", x, hidden, inner), kGelu);
      up = dense(name + "up", x, hidden, inner);
    }
    return dense(name + "down", builder_.multiply(name + "gated", up, gate), inner, hidden);
  }

  ValueId layer(ValueId x) {
    const std::string name = "layer.0.";
    x = builder_.add(
        name + "attention_residual",
        norm(name + "post_attention_norm", attention(norm_of_stream(name + "attention_norm", x))),
        x);
    return builder_.add(name + "mlp_residual",
                        norm(name + "post_mlp_norm", mlp(norm_of_stream(name + "mlp_norm", x))), x);
  }

  const GemmaConfig& config_;
  const std::int64_t rows_;
  const DType dtype_;
  const DecoderGraphOptions& options_;
  GraphBuilder builder_;
  ValueId positions_ = graph::kNoId, slots_ = graph::kNoId;
};

/// What a layer's tensor is called in Hugging Face's files and in GGUF.
struct TensorName {
  const char *hf, *gguf;
};

class GemmaModel final : public DecoderModel {
 public:
  GemmaModel(Checkpoint checkpoint, GemmaConfig config, DecoderFacts facts)
      : DecoderModel(std::move(facts)),
        checkpoint_(std::move(checkpoint)),
        config_(std::move(config)),
        gguf_(checkpoint_.gguf() != nullptr) {
    static constexpr std::array<const char*, 4> kPrefixes = {"model.", "language_model.model.",
                                                             "model.language_model.", ""};
    const auto found = std::ranges::find_if(kPrefixes, [this](const char* prefix) {
      return checkpoint_.contains(std::string(prefix) + "embed_tokens.weight");
    });
    prefix_ = found == kPrefixes.end() ? kPrefixes[0] : *found;
    const std::string more = layer_name(config_.num_layers, kAttentionNorm);
    STOF_CHECK(!checkpoint_.contains(more), kCorrupt,
               "{}: tensor \"{}\": expected none of that name, by the number of layers; the file "
               "does not belong to this configuration",
               checkpoint_.path(), more);
  }

  graph::Graph graph(std::int64_t rows, DType dtype,
                     const DecoderGraphOptions& options) const override {
    return build_gemma_graph(config_, rows, dtype, options);
  }

  GraphWeights weights(const graph::Graph& graph) const override {
    const std::int64_t hidden = config_.hidden_size, inner = config_.intermediate_size;
    const std::int64_t q_width = config_.num_heads * config_.head_dim;
    const std::int64_t kv_width = config_.num_kv_heads * config_.head_dim;
    GraphWeightBinder binder(graph, "Gemma graph");
    const DType dtype = graph.value(graph.find("embeddings")).dtype;
    const float scale = 1 / embedding_scale(hidden, dtype);
    binder.bind_filled_up("embeddings", read({"embed_tokens.weight", "token_embd.weight"},
                                             {config_.vocab_size, hidden}));
    const bool joined = binder.has("layer.0.gate_up.weight");
    for (std::int64_t i = 0; i < config_.num_layers; ++i) {
      const std::string name = fmt::format("layer.{}.", i);
      const auto matrix = [&](const TensorName& stored, std::int64_t out, std::int64_t in) {
        return checkpoint_.float32(layer_name(i, stored), {out, in});
      };
      const auto bind_norm = [&](const char* to, const TensorName& stored, std::int64_t width,
                                 float factor) {
        binder.bind(name + to + ".gamma", gamma(layer_name(i, stored), width, factor));
      };
      bind_norm("attention_norm", kAttentionNorm, hidden, 1);
      bind_norm("post_attention_norm", kPostAttentionNorm, hidden, scale);
      bind_norm("mlp_norm", kMlpNorm, hidden, 1);
      bind_norm("post_mlp_norm", kPostMlpNorm, hidden, scale);
      bind_norm("query_norm", kQueryNorm, config_.head_dim, 1);
      bind_norm("key_norm", kKeyNorm, config_.head_dim, 1);
      bind_frequencies(
          binder, name + "rope.frequencies",
          config_.windows[static_cast<std::size_t>(i)] > 0 ? config_.local : config_.global);
      const Tensor q = matrix(kQuery, q_width, hidden), k = matrix(kKey, kv_width, hidden),
                   v = matrix(kValue, kv_width, hidden);
      binder.bind_stacked(name + "query_key_value.weight",
                          std::array{q.view(), k.view(), v.view()});
      binder.bind(name + "attention_output.weight", matrix(kOutput, hidden, q_width));
      Tensor gate = matrix(kGate, inner, hidden), up = matrix(kUp, inner, hidden);
      if (joined) {
        binder.bind_stacked(name + "gate_up.weight",
                            std::array{std::as_const(gate).view(), std::as_const(up).view()});
      } else {
        binder.bind(name + "gate.weight", std::move(gate));
        binder.bind(name + "up.weight", std::move(up));
      }
      binder.bind(name + "down.weight", matrix(kDown, hidden, inner));
    }
    binder.bind("final_norm.gamma",
                gamma(gguf_ ? "output_norm.weight" : prefix_ + "norm.weight", hidden, 1));
    if (!config_.tied_head)
      binder.bind_filled_up("head.weight",
                            checkpoint_.float32(gguf_ ? "output.weight" : "lm_head.weight",
                                                {config_.vocab_size, hidden}));
    return binder.take();
  }

  std::vector<mask::Mask> masks(const mask::Mask& also) const override {
    std::vector<mask::Mask> masks;
    for (const std::int64_t window : different_windows(config_)) {
      mask::Mask seen = mask::causal() & also;
      if (window > 0) seen = seen & mask::window(window - 1, 0);
      masks.push_back(std::move(seen));
    }
    return masks;
  }

 private:
  static constexpr TensorName kAttentionNorm = {"input_layernorm", "attn_norm"},
                              kPostAttentionNorm = {"post_attention_layernorm",
                                                    "post_attention_norm"},
                              kMlpNorm = {"pre_feedforward_layernorm", "ffn_norm"},
                              kPostMlpNorm = {"post_feedforward_layernorm", "post_ffw_norm"},
                              kQueryNorm = {"self_attn.q_norm", "attn_q_norm"},
                              kKeyNorm = {"self_attn.k_norm", "attn_k_norm"},
                              kQuery = {"self_attn.q_proj", "attn_q"},
                              kKey = {"self_attn.k_proj", "attn_k"},
                              kValue = {"self_attn.v_proj", "attn_v"},
                              kOutput = {"self_attn.o_proj", "attn_output"},
                              kGate = {"mlp.gate_proj", "ffn_gate"},
                              kUp = {"mlp.up_proj", "ffn_up"},
                              kDown = {"mlp.down_proj", "ffn_down"};

  std::string layer_name(std::int64_t index, const TensorName& name) const {
    return gguf_ ? fmt::format("blk.{}.{}.weight", index, name.gguf)
                 : fmt::format("{}layers.{}.{}.weight", prefix_, index, name.hf);
  }
  Tensor read(const TensorName& name, const Dims& shape) const {
    return checkpoint_.float32(gguf_ ? name.gguf : prefix_ + name.hf, shape);
  }
  /// Files of Hugging Face hold what is added to 1, GGUF files the sum.
  Tensor gamma(const std::string& name, std::int64_t width, float factor) const {
    Tensor tensor = checkpoint_.float32(name, {width});
    for (float& value : tensor.as<float>()) value = (gguf_ ? value : 1 + value) * factor;
    return tensor;
  }
  void bind_frequencies(GraphWeightBinder& binder, const std::string& name,
                        const RopeConfig& rope) const {
    const std::vector<float> values = rope.frequencies(config_.head_dim);
    binder.bind(name, Tensor::copy_of({values.data(), DType::kFloat32, {config_.head_dim / 2}}));
  }

  Checkpoint checkpoint_;
  GemmaConfig config_;
  bool gguf_;
  std::string prefix_;
};

}  // namespace

graph::Graph build_gemma_graph(const GemmaConfig& config, std::int64_t rows, DType dtype,
                               const DecoderGraphOptions& options) {
  options.validate("Gemma graph", rows, dtype);
  return GemmaBuilder(config, rows, dtype, options).build();
}

std::unique_ptr<const DecoderModel> make_gemma_model(Checkpoint checkpoint, GemmaConfig config) {
  if (checkpoint.gguf() != nullptr) config.tied_head = !checkpoint.contains("output.weight");
  DecoderFacts facts;
  facts.num_layers = config.num_layers;
  facts.num_heads = config.num_heads;
  facts.vocab_size = config.vocab_size;
  facts.max_positions = config.max_positions;
  facts.position_table = config.global.bounded || config.local.bounded;
  facts.end_tokens = config.end_tokens;
  const auto local = std::ranges::count_if(config.windows, [](std::int64_t w) { return w > 0; });
  facts.description = fmt::format(
      "gemma3: {} layers, {} of them local, hidden {}, {} heads of {} ({} of keys and values), "
      "inner {} with gelu_tanh gates, vocabulary {}{}, {} positions, window {}",
      config.num_layers, local, config.hidden_size, config.num_heads, config.head_dim,
      config.num_kv_heads, config.intermediate_size, config.vocab_size,
      config.tied_head ? " (tied)" : "", config.max_positions,
      *std::ranges::max_element(config.windows));
  return std::make_unique<GemmaModel>(std::move(checkpoint), std::move(config), std::move(facts));
}

}  // namespace stof::model
