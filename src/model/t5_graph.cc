#include "model/t5_graph.h"

#include <string>

#include "core/check.h"

namespace stof::model {
namespace {

using graph::GraphBuilder;
using graph::kNoId;
using graph::ValueId;

/// What encoder and decoder share.
class Stack {
 public:
  Stack(const T5Config& config, std::int64_t rows, DType dtype, const Seq2SeqGraphOptions& options)
      : config_(config), rows_(rows), dtype_(dtype), options_(options) {
    STOF_CHECK(rows >= 1, kInvalidArgument, "T5 graph: rows: expected at least 1, got {}", rows);
    STOF_CHECK(dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16,
               kInvalidArgument, "T5 graph: dtype: expected float32, float16 or bfloat16, got {}",
               to_string(dtype));
  }

 protected:
  ValueId rows_of(const char* name, std::int64_t count) {
    return builder_.input(name, DType::kInt32, {count});
  }

  ValueId weight(const std::string& name, std::int64_t out, std::int64_t in) {
    return builder_.weight(name + ".weight", dtype_, {out, in});
  }

  ValueId dense(const std::string& name, ValueId x, std::int64_t in, std::int64_t out) {
    return builder_.matmul(name, x, weight(name, out, in));
  }

  ValueId norm(const std::string& name, ValueId x) {
    const ValueId gamma = builder_.weight(name + ".gamma", DType::kFloat32, {config_.hidden_size});
    const double scale = dtype_ == DType::kFloat16 ? kHalfStreamScale : 1;
    return builder_.rms_norm(name, x, gamma, double{config_.layer_norm_eps} * scale * scale);
  }

  void table() {
    table_ =
        builder_.weight("position_bias", DType::kFloat32, {config_.num_buckets, config_.num_heads});
  }

  graph::Attributes attributes() const {
    graph::Attributes attributes;
    attributes.heads = attributes.kv_heads = config_.num_heads;
    attributes.head_dim = config_.head_dim;
    attributes.scale = 1;
    return attributes;
  }

  ValueId self_attention(ValueId q, ValueId keys, std::int64_t first_key, bool bidirectional) {
    const std::int64_t width = config_.inner_heads();
    graph::Attributes biased = attributes();
    biased.bidirectional = bidirectional;
    biased.max_distance = config_.max_distance;
    return builder_.attention("layer.0.attention", builder_.columns("layer.0.query", q, 0, width),
                              builder_.columns("layer.0.key", keys, first_key, width),
                              builder_.columns("layer.0.value", keys, first_key + width, width),
                              table_, biased);
  }

  ValueId add_product(const char* what, ValueId product_of, ValueId x) {
    const std::string name = std::string("layer.0.") + what;
    return builder_.add(
        name + "_residual",
        dense(name + "_output", product_of, config_.inner_heads(), config_.hidden_size), x);
  }

  ValueId feed_forward(ValueId x) {
    const std::int64_t hidden = config_.hidden_size, inner = config_.inner_size;
    const ValueId normed = norm("layer.0.mlp_norm", x);
    ValueId wide = kNoId;
    if (!config_.gated) {
      wide = builder_.activation("layer.0.activation", dense("layer.0.up", normed, hidden, inner),
                                 config_.activation);
    } else if (options_.joined_gate) {
      const ValueId both = dense("layer.0.gate_up", normed, hidden, 2 * inner);
      const ValueId up = builder_.columns("layer.0.up", both, inner, inner);
      const ValueId gate =
          builder_.activation("layer.0.activation",
                              builder_.columns("layer.0.gate", both, 0, inner), config_.activation);
      wide = builder_.multiply("layer.0.gated", up, gate);
    } else {
      const ValueId gate = builder_.activation(
          "layer.0.activation", dense("layer.0.gate", normed, hidden, inner), config_.activation);
      wide = builder_.multiply("layer.0.gated", dense("layer.0.up", normed, hidden, inner), gate);
    }
    return builder_.add("layer.0.mlp_residual", dense("layer.0.down", wide, inner, hidden), x);
  }

  const T5Config& config_;
  const std::int64_t rows_;
  const DType dtype_;
  const Seq2SeqGraphOptions& options_;
  GraphBuilder builder_;
  ValueId table_ = kNoId;
};

class EncoderStack final : Stack {
 public:
  using Stack::Stack;

  graph::Graph build() {
    const ValueId ids = rows_of("ids", rows_);
    const bool stores = options_.cross_cache_size > 0;
    const ValueId slots = stores ? rows_of("slots", rows_) : kNoId;
    const ValueId words = builder_.weight(
        "embeddings", dtype_, {options_.vocabulary(config_.vocab_size), config_.hidden_size});
    table();
    ValueId x = builder_.embedding("embedded", ids, words);
    builder_.begin_layer(x);
    const std::int64_t width = config_.inner_heads();
    const ValueId qkv = dense("layer.0.query_key_value", norm("layer.0.attention_norm", x),
                              config_.hidden_size, 3 * width);
    const ValueId attended = self_attention(qkv, qkv, width, /*bidirectional=*/true);
    builder_.end_layer(feed_forward(add_product("attention", attended, x)));
    x = builder_.stamp_layers(static_cast<int>(config_.encoder_layers));
    x = norm("final_norm", x);
    builder_.mark_live_out(x);
    for (std::int64_t i = 0; stores && i < config_.decoder_layers; ++i) {
      const ValueId key_value =
          dense(fmt::format("cross.{}.key_value", i), x, config_.hidden_size, 2 * width);
      const std::string name = fmt::format("layer.{}.cross_cache", i);
      const ValueId cache = builder_.state(name, dtype_, {options_.cross_cache_size, 2 * width});
      builder_.cache_store(name + "_store", key_value, slots, cache, 0, config_.num_heads,
                           config_.head_dim);
    }
    return builder_.build();
  }
};

class DecoderStack final : Stack {
 public:
  DecoderStack(const T5Config& config, std::int64_t rows, DType dtype, bool tied_head,
               const Seq2SeqGraphOptions& options)
      : Stack(config, rows, dtype, options), tied_head_(tied_head) {
    for (const auto& [name, size] : {std::pair{"cache_size", options.cache_size},
                                     {"cross_cache_size", options.cross_cache_size}})
      STOF_CHECK(size >= 1, kInvalidArgument, "T5 decoder graph: {}: expected at least 1, got {}",
                 name, size);
  }

  graph::Graph build() {
    const ValueId ids = rows_of("ids", rows_);
    slots_ = rows_of("slots", rows_);
    const std::int64_t vocabulary = options_.vocabulary(config_.vocab_size);
    const std::int64_t hidden = config_.hidden_size;
    const ValueId words = builder_.weight("embeddings", dtype_, {vocabulary, hidden});
    table();
    ValueId x = builder_.embedding("embedded", ids, words);
    builder_.begin_layer(x);
    builder_.end_layer(layer(x));
    x = builder_.stamp_layers(static_cast<int>(config_.decoder_layers));
    if (options_.head_rows > 0)
      x = builder_.embedding("picked", rows_of("head_rows", options_.head_rows), x);
    x = norm("final_norm", x);
    builder_.mark_live_out(builder_.matmul(
        "head", x,
        tied_head_ ? words : builder_.weight("head.weight", dtype_, {vocabulary, hidden})));
    return builder_.build();
  }

 private:
  ValueId layer(ValueId x) {
    const std::int64_t width = config_.inner_heads(), hidden = config_.hidden_size;
    const ValueId qkv =
        dense("layer.0.query_key_value", norm("layer.0.attention_norm", x), hidden, 3 * width);
    const ValueId cache = builder_.state("layer.0.cache", dtype_, {options_.cache_size, 2 * width});
    const ValueId stored =
        builder_.cache_store("layer.0.cache_store", qkv, slots_, cache, config_.num_heads,
                             config_.num_heads, config_.head_dim);
    x = add_product("attention", self_attention(qkv, stored, 0, /*bidirectional=*/false), x);

    const ValueId query =
        dense("layer.0.cross_query", norm("layer.0.cross_norm", x), hidden, width);
    const ValueId encoded =
        builder_.state("layer.0.cross_cache", dtype_, {options_.cross_cache_size, 2 * width});
    graph::Attributes cross = attributes();
    cross.mask = 1;
    cross.cross = true;
    const ValueId read = builder_.attention(
        "layer.0.cross", query, builder_.columns("layer.0.cross_key", encoded, 0, width),
        builder_.columns("layer.0.cross_value", encoded, width, width), kNoId, cross);
    return feed_forward(add_product("cross", read, x));
  }

  bool tied_head_;
  ValueId slots_ = kNoId;
};

}  // namespace

graph::Graph build_t5_encoder_graph(const T5Config& config, std::int64_t rows, DType dtype,
                                    const Seq2SeqGraphOptions& options) {
  return EncoderStack(config, rows, dtype, options).build();
}

graph::Graph build_t5_decoder_graph(const T5Config& config, std::int64_t rows, DType dtype,
                                    bool tied_head, const Seq2SeqGraphOptions& options) {
  return DecoderStack(config, rows, dtype, tied_head, options).build();
}

}  // namespace stof::model
