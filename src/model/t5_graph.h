#pragma once
// T5's encoder and decoder as graphs.

#include "model/seq2seq_model.h"
#include "model/t5_config.h"
#include "stof/checkpoint.h"

namespace stof::model {

/// float16 ends at 65504, and T5's residual stream does not (the feed-forward part of a few
/// features adds up to hundreds of thousands). RMSNorm does not care about the size of what it
/// reads, so graphs in float16 keep the stream at a 64th: what is added to it comes from matrices
/// that are scaled down when they are bound, the norms' epsilon likewise, and nothing else differs.
/// 64 leaves room for 4.2 million and takes no precision from what is above 1/256.
inline constexpr float kHalfStreamScale = 1.f / 64;
/// Inside the feed-forward part, where what is linear in the product (the gate's factor; of ReLU
/// the whole) is kept at a 16th and the matrix behind it takes the factor back.
inline constexpr float kHalfInnerScale = 1.f / 16;

/// Weights of both: "embeddings", [vocabulary, hidden]; "position_bias", float32 [buckets, heads],
/// that all layers share; for each layer "layer.3.attention_norm.gamma",
/// "layer.3.query_key_value.weight" ([3 heads head_dim, hidden]),
/// "layer.3.attention_output.weight", "layer.3.mlp_norm.gamma", "layer.3.up.weight",
/// "layer.3.gate.weight" where gated (with a joined gate "layer.3.gate_up.weight"),
/// "layer.3.down.weight"; "final_norm.gamma". Matrices and tables are of `dtype`, gammas float32.
///
/// The encoder's, with a cross cache, also "cross.3.key_value.weight", [2 heads head_dim, hidden],
/// for each layer of the decoder.
graph::Graph build_t5_encoder_graph(const T5Config& config, std::int64_t rows, DType dtype,
                                    const Seq2SeqGraphOptions& options = {});

/// For each layer also "layer.3.cross_norm.gamma", "layer.3.cross_query.weight" and
/// "layer.3.cross_output.weight"; "head.weight", but where `tied_head` the embeddings are it.
graph::Graph build_t5_decoder_graph(const T5Config& config, std::int64_t rows, DType dtype,
                                    bool tied_head, const Seq2SeqGraphOptions& options);

/// Reads tensors when weights are asked for. Throws Corrupt naming a tensor of a layer that the
/// configuration has no place for.
std::unique_ptr<const Seq2SeqModel> make_t5_model(Checkpoint checkpoint, const T5Config& config);

}  // namespace stof::model
