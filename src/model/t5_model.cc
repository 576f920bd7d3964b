// A T5 checkpoint's tensors under the names of its graphs.

#include <array>
#include <cmath>
#include <utility>

#include "core/check.h"
#include "model/t5_graph.h"

namespace stof::model {
namespace {

class T5Model final : public Seq2SeqModel {
 public:
  T5Model(Checkpoint checkpoint, const T5Config& config, Seq2SeqFacts facts)
      : Seq2SeqModel(std::move(facts)), checkpoint_(std::move(checkpoint)), config_(config) {
    refuse_layer("encoder", config.encoder_layers, "num_layers");
    refuse_layer("decoder", config.decoder_layers, "num_decoder_layers");
  }

  graph::Graph encoder_graph(std::int64_t rows, DType dtype,
                             const Seq2SeqGraphOptions& options) const override {
    return build_t5_encoder_graph(config_, rows, dtype, options);
  }
  graph::Graph decoder_graph(std::int64_t rows, DType dtype,
                             const Seq2SeqGraphOptions& options) const override {
    return build_t5_decoder_graph(config_, rows, dtype, tied_head(), options);
  }

  GraphWeights encoder_weights(const graph::Graph& graph) const override {
    Binder binder(graph);
    bind_stack(binder, "encoder", config_.encoder_layers, /*head_scale=*/1);
    for (std::int64_t i = 0; i < config_.decoder_layers; ++i) {
      const std::string name = fmt::format("cross.{}.key_value", i);
      if (binder.has(name + ".weight"))
        bind_stacked(binder, name, block("decoder", i) + "layer.1.EncDecAttention.", {"k", "v"});
    }
    return binder.take();
  }

  GraphWeights decoder_weights(const graph::Graph& graph) const override {
    Binder binder(graph);
    const double scale =
        config_.scaled_head ? 1 / std::sqrt(static_cast<double>(config_.hidden_size)) : 1;
    // A tied head is a table that is scaled as the stream is.
    bind_stack(binder, "decoder", config_.decoder_layers,
               static_cast<float>(scale / (tied_head() ? binder.stream : 1)));
    for (std::int64_t i = 0; i < config_.decoder_layers; ++i) {
      const std::string to = fmt::format("layer.{}.cross_", i);
      const std::string from = block("decoder", i) + "layer.1.";
      binder.bind(to + "norm.gamma", gamma(from + "layer_norm"));
      const std::string attention = from + "EncDecAttention.";
      const std::int64_t width = config_.inner_heads(), hidden = config_.hidden_size;
      binder.bind(to + "query.weight", read(attention + "q", width, hidden));
      binder.bind(to + "output.weight",
                  scaled(read(attention + "o", hidden, width), binder.stream));
    }
    if (!tied_head())
      binder.bind_filled_up("head.weight", checkpoint_.float32(head_table(), table_shape()));
    return binder.take();
  }

 private:
  static constexpr const char *kHead = "lm_head.weight", *kShared = "shared.weight",
                              *kEncoderTable = "encoder.embed_tokens.weight",
                              *kDecoderTable = "decoder.embed_tokens.weight";

  struct Binder : GraphWeightBinder {
    explicit Binder(const graph::Graph& graph) : GraphWeightBinder(graph, "T5 graph") {
      const bool half = graph.value(graph.find("embeddings")).dtype == DType::kFloat16;
      stream = half ? kHalfStreamScale : 1;
      inner = half ? kHalfInnerScale : 1;
    }
    float stream, inner;
  };

  /// A table of embeddings: the stack's own where the file has one, else the one that all share;
  /// any, where a file holds just that.
  const char* table_of(const char* own) const {
    for (const char* name : {own, kShared, kEncoderTable, kDecoderTable})
      if (checkpoint_.contains(name)) return name;
    return kShared;  // which is said to be missing
  }
  /// What files hold counts, whatever tie_word_embeddings says.
  const char* head_table() const { return checkpoint_.contains(kHead) ? kHead : table_of(kShared); }
  bool tied_head() const { return std::string_view(head_table()) == table_of(kDecoderTable); }

  Dims table_shape() const { return {config_.vocab_size, config_.hidden_size}; }

  void refuse_layer(const char* stack, std::int64_t layers, const char* field) const {
    const std::string more = block(stack, layers) + "layer.0.layer_norm.weight";
    STOF_CHECK(!checkpoint_.contains(more), kCorrupt,
               "{}: tensor \"{}\": expected none of that name, by {}; the file does not belong to "
               "this configuration",
               checkpoint_.path(), more, field);
  }

  static std::string block(const char* stack, std::int64_t index) {
    return fmt::format("{}.block.{}.", stack, index);
  }

  Tensor read(const std::string& name, std::int64_t out, std::int64_t in) const {
    return checkpoint_.float32(name + ".weight", {out, in});
  }

  Tensor gamma(const std::string& name) const {
    return checkpoint_.float32(name + ".weight", {config_.hidden_size});
  }

  static Tensor scaled(Tensor tensor, float factor) {
    if (factor != 1)
      for (float& x : tensor.as<float>()) x *= factor;
    return tensor;
  }

  void bind_stacked(Binder& binder, const std::string& to, const std::string& from,
                    std::initializer_list<const char*> parts) const {
    std::vector<Tensor> tensors;
    std::vector<TensorView> views;
    for (const char* part : parts)
      tensors.push_back(read(from + part, config_.inner_heads(), config_.hidden_size));
    views.reserve(tensors.size());
    for (const Tensor& tensor : tensors) views.push_back(tensor.view());
    static_cast<GraphWeightBinder&>(binder).bind_stacked(to + ".weight", views);
  }

  void bind_stack(Binder& binder, const char* stack, std::int64_t layers, float head_scale) const {
    const std::int64_t hidden = config_.hidden_size, width = config_.inner_heads();
    const bool decodes = std::string_view(stack) == "decoder";
    const char* const table = table_of(decodes ? kDecoderTable : kEncoderTable);
    binder.bind_filled_up("embeddings",
                          scaled(checkpoint_.float32(table, table_shape()), binder.stream));
    binder.bind("position_bias",
                checkpoint_.float32(
                    block(stack, 0) + "layer.0.SelfAttention.relative_attention_bias.weight",
                    {config_.num_buckets, config_.num_heads}));
    for (std::int64_t i = 0; i < layers; ++i) {
      const std::string to = fmt::format("layer.{}.", i), from = block(stack, i);
      binder.bind(to + "attention_norm.gamma", gamma(from + "layer.0.layer_norm"));
      const std::string attention = from + "layer.0.SelfAttention.";
      bind_stacked(binder, to + "query_key_value", attention, {"q", "k", "v"});
      binder.bind(to + "attention_output.weight",
                  scaled(read(attention + "o", hidden, width), binder.stream));
      bind_feed_forward(binder, to, from + (decodes ? "layer.2." : "layer.1."));
    }
    binder.bind("final_norm.gamma",
                scaled(gamma(std::string(stack) + ".final_layer_norm"), head_scale));
  }

  void bind_feed_forward(Binder& binder, const std::string& to, const std::string& from) const {
    const std::int64_t hidden = config_.hidden_size, inner = config_.inner_size;
    binder.bind(to + "mlp_norm.gamma", gamma(from + "layer_norm"));
    const std::string dense = from + "DenseReluDense.";
    // What the activation does not bend may be kept small.
    const bool linear = config_.gated || config_.activation == graph::Activation::kRelu;
    const float scale = linear ? binder.inner : 1;
    if (!config_.gated) {
      binder.bind(to + "up.weight", scaled(read(dense + "wi", inner, hidden), scale));
    } else {
      Tensor gate = read(dense + "wi_0", inner, hidden);
      Tensor up = scaled(read(dense + "wi_1", inner, hidden), scale);
      if (binder.has(to + "gate_up.weight")) {
        static_cast<GraphWeightBinder&>(binder).bind_stacked(
            to + "gate_up.weight",
            std::array{std::as_const(gate).view(), std::as_const(up).view()});
      } else {
        binder.bind(to + "gate.weight", std::move(gate));
        binder.bind(to + "up.weight", std::move(up));
      }
    }
    binder.bind(to + "down.weight",
                scaled(read(dense + "wo", hidden, inner), binder.stream / scale));
  }

  Checkpoint checkpoint_;
  T5Config config_;
};

}  // namespace

std::unique_ptr<const Seq2SeqModel> make_t5_model(Checkpoint checkpoint, const T5Config& config) {
  Seq2SeqFacts facts;
  facts.encoder_layers = config.encoder_layers;
  facts.decoder_layers = config.decoder_layers;
  facts.num_heads = config.num_heads;
  facts.hidden_size = config.hidden_size;
  facts.vocab_size = config.vocab_size;
  facts.start_token = config.start_token;
  facts.end_tokens = config.end_tokens;
  facts.description = fmt::format(
      "{}: encoder of {} layers, decoder of {}, hidden {}, {} heads of {}, inner {} with {}{}, "
      "vocabulary {}",
      config.family, config.encoder_layers, config.decoder_layers, config.hidden_size,
      config.num_heads, config.head_dim, config.inner_size, to_string(config.activation),
      config.gated ? " gates" : "", config.vocab_size);
  return std::make_unique<T5Model>(std::move(checkpoint), config, std::move(facts));
}

}  // namespace stof::model
