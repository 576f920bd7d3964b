#pragma once
// Gemma 3's text models as decoders that generate text.

#include <memory>

#include "model/decoder_model.h"
#include "model/gemma_config.h"
#include "stof/checkpoint.h"

namespace stof::model {

/// One pass over `rows` packed tokens. The graph has LLaMA's inputs, weights and results
/// (llama_graph.h) and, in every layer, of its own "rope.frequencies", "query_norm.gamma" and
/// "key_norm.gamma" ([head_dim]), "post_attention_norm.gamma" and "post_mlp_norm.gamma" ([hidden]).
/// Embeddings are not multiplied by the root of the hidden size: all that runs between the layers
/// is smaller by that factor, which the norms' epsilon and the gammas of what is added to it make
/// up for.
graph::Graph build_gemma_graph(const GemmaConfig& config, std::int64_t rows, DType dtype,
                               const DecoderGraphOptions& options);

/// Of build_gemma_graph(). Throws Corrupt for tensors that `config` has no place for.
std::unique_ptr<const DecoderModel> make_gemma_model(Checkpoint checkpoint, GemmaConfig config);

}  // namespace stof::model
