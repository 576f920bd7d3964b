#include "model/gpt2_model.h"

#include <utility>

#include "core/check.h"

namespace stof::model {
namespace {

using graph::GraphBuilder;
using graph::ValueId;

class Gpt2Builder {
 public:
  Gpt2Builder(const Gpt2Config& config, std::int64_t rows, DType dtype,
              const DecoderGraphOptions& options)
      : config_(config), rows_(rows), dtype_(dtype), options_(options) {}

  graph::Graph build() {
    const std::int64_t hidden = config_.hidden_size,
                       vocabulary = options_.vocabulary(config_.vocab_size);
    const ValueId ids = builder_.input("ids", DType::kInt32, {rows_});
    const ValueId positions = builder_.input("positions", DType::kInt32, {rows_});
    if (options_.cache_size > 0) slots_ = builder_.input("slots", DType::kInt32, {rows_});
    const ValueId words = builder_.weight("embeddings", dtype_, {vocabulary, hidden});
    const ValueId places =
        builder_.weight("positions.table", dtype_, {config_.max_positions, hidden});
    ValueId x = builder_.embedding("embedded", ids, words, positions, places);
    builder_.begin_layer(x);
    builder_.end_layer(layer(x));
    x = builder_.stamp_layers(static_cast<int>(config_.num_layers));
    if (options_.head_rows > 0)
      x = builder_.embedding("picked",
                             builder_.input("head_rows", DType::kInt32, {options_.head_rows}), x);
    x = norm("final_norm", x);
    builder_.mark_live_out(builder_.matmul(
        "head", x,
        config_.tied_head ? words : builder_.weight("head.weight", dtype_, {vocabulary, hidden})));
    return builder_.build();
  }

 private:
  ValueId dense(const std::string& name, ValueId x, std::int64_t in, std::int64_t out) {
    const ValueId weight = builder_.weight(name + ".weight", dtype_, {out, in});
    const ValueId product = builder_.matmul(name, x, weight);
    return builder_.bias(name + ".add_bias", product,
                         builder_.weight(name + ".bias", dtype_, {out}));
  }

  ValueId norm(const std::string& name, ValueId x) {
    const Dims width = {config_.hidden_size};
    const ValueId gamma = builder_.weight(name + ".gamma", DType::kFloat32, width);
    const ValueId beta = builder_.weight(name + ".beta", DType::kFloat32, width);
    return builder_.layer_norm(name, x, gamma, beta, config_.layer_norm_eps);
  }

  ValueId attention(ValueId x) {
    const std::int64_t hidden = config_.hidden_size, heads = config_.num_heads,
                       head_dim = hidden / heads;
    const ValueId projected = dense("layer.0.query_key_value", x, hidden, 3 * hidden);
    ValueId stored = graph::kNoId;
    if (options_.cache_size > 0)
      stored = builder_.cache_store(
          "layer.0.cache_store", projected, slots_,
          builder_.state("layer.0.cache", dtype_, {options_.cache_size, 2 * hidden}), heads, heads,
          head_dim);
    const ValueId base = options_.reads_cache ? stored : projected;
    const std::int64_t first = options_.reads_cache ? 0 : hidden;
    const ValueId query = builder_.columns("layer.0.query", projected, 0, hidden);
    const ValueId key = builder_.columns("layer.0.key", base, first, hidden);
    const ValueId value = builder_.columns("layer.0.value", base, first + hidden, hidden);
    const ValueId context = builder_.attention("layer.0.attention", query, key, value, heads, heads,
                                               head_dim, config_.scaled_attention ? 0 : 1);
    return dense("layer.0.attention_output", context, hidden, hidden);
  }

  ValueId layer(ValueId x) {
    const std::int64_t hidden = config_.hidden_size, inner = config_.intermediate_size;
    x = builder_.add("layer.0.attention_residual", attention(norm("layer.0.attention_norm", x)), x);
    const ValueId wide = dense("layer.0.intermediate", norm("layer.0.mlp_norm", x), hidden, inner);
    const ValueId active = builder_.activation("layer.0.activation", wide, config_.activation);
    return builder_.add("layer.0.mlp_residual", dense("layer.0.output", active, inner, hidden), x);
  }

  const Gpt2Config& config_;
  const std::int64_t rows_;
  const DType dtype_;
  const DecoderGraphOptions& options_;
  GraphBuilder builder_;
  ValueId slots_ = graph::kNoId;
};

Tensor transposed(const Tensor& matrix) {
  const std::int64_t rows = matrix.shape()[0], columns = matrix.shape()[1];
  TensorView view = matrix.view();
  view.shape = {columns, rows};
  view.strides = {1, columns};
  return Tensor::copy_of(view);
}

class Gpt2Model final : public DecoderModel {
 public:
  Gpt2Model(Checkpoint checkpoint, const Gpt2Config& config, DecoderFacts facts)
      : DecoderModel(std::move(facts)),
        checkpoint_(std::move(checkpoint)),
        config_(config),
        prefix_(checkpoint_.contains("wte.weight") ? "" : "transformer.") {
    const std::string more = layer_name(config.num_layers, "ln_1.weight");
    STOF_CHECK(
        !checkpoint_.contains(more), kCorrupt,
        "{}: tensor \"{}\": expected none of that name, by n_layer; the file does not belong "
        "to this configuration",
        checkpoint_.path(), more);
  }

  graph::Graph graph(std::int64_t rows, DType dtype,
                     const DecoderGraphOptions& options) const override {
    options.validate("GPT-2 graph", rows, dtype);
    return Gpt2Builder(config_, rows, dtype, options).build();
  }

  GraphWeights weights(const graph::Graph& graph) const override {
    const std::int64_t hidden = config_.hidden_size, inner = config_.intermediate_size;
    GraphWeightBinder binder(graph, "GPT-2 graph");
    binder.bind_filled_up("embeddings", read("wte.weight", {config_.vocab_size, hidden}));
    binder.bind("positions.table", read("wpe.weight", {config_.max_positions, hidden}));
    for (std::int64_t i = 0; i < config_.num_layers; ++i) {
      const auto dense = [&](const char* name, const char* stored, std::int64_t in,
                             std::int64_t out) {
        const std::string to = fmt::format("layer.{}.{}", i, name), from = layer_name(i, stored);
        binder.bind(to + ".weight", transposed(checkpoint_.float32(from + ".weight", {in, out})));
        binder.bind(to + ".bias", checkpoint_.float32(from + ".bias", {out}));
      };
      const auto norm = [&](const char* name, const char* stored) {
        bind_norm(binder, fmt::format("layer.{}.{}", i, name), layer_name(i, stored));
      };
      norm("attention_norm", "ln_1");
      dense("query_key_value", "attn.c_attn", hidden, 3 * hidden);
      dense("attention_output", "attn.c_proj", hidden, hidden);
      norm("mlp_norm", "ln_2");
      dense("intermediate", "mlp.c_fc", hidden, inner);
      dense("output", "mlp.c_proj", inner, hidden);
    }
    bind_norm(binder, "final_norm", prefix_ + "ln_f");
    if (!config_.tied_head)
      binder.bind_filled_up("head.weight",
                            checkpoint_.float32("lm_head.weight", {config_.vocab_size, hidden}));
    return binder.take();
  }

  std::vector<mask::Mask> masks(const mask::Mask& also) const override {
    return {mask::causal() & also};
  }

 private:
  std::string layer_name(std::int64_t index, const std::string& name) const {
    return fmt::format("{}h.{}.{}", prefix_, index, name);
  }
  Tensor read(const std::string& name, const Dims& shape) const {
    return checkpoint_.float32(prefix_ + name, shape);
  }
  void bind_norm(GraphWeightBinder& binder, const std::string& name,
                 const std::string& stored) const {
    binder.bind(name + ".gamma", checkpoint_.float32(stored + ".weight", {config_.hidden_size}));
    binder.bind(name + ".beta", checkpoint_.float32(stored + ".bias", {config_.hidden_size}));
  }

  Checkpoint checkpoint_;
  Gpt2Config config_;
  std::string prefix_;
};

}  // namespace

std::unique_ptr<const DecoderModel> make_gpt2_model(Checkpoint checkpoint,
                                                    const Gpt2Config& config) {
  DecoderFacts facts;
  facts.num_layers = config.num_layers;
  facts.num_heads = config.num_heads;
  facts.vocab_size = config.vocab_size;
  facts.max_positions = config.max_positions;
  facts.position_table = true;
  facts.end_tokens = config.end_tokens;
  facts.description = fmt::format(
      "gpt2: {} layers, hidden {}, {} heads of {}, inner {} with {}, vocabulary {}{}, {} positions",
      config.num_layers, config.hidden_size, config.num_heads,
      config.hidden_size / config.num_heads, config.intermediate_size, to_string(config.activation),
      config.vocab_size, config.tied_head ? " (tied)" : "", config.max_positions);
  return std::make_unique<Gpt2Model>(std::move(checkpoint), config, std::move(facts));
}

}  // namespace stof::model
