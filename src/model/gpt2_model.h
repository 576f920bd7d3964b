#pragma once
// GPT-2's stack of layers as a graph, and its weights.

#include <memory>

#include "model/decoder_model.h"
#include "model/gpt2_config.h"
#include "stof/checkpoint.h"

namespace stof::model {

/// A layer has 15 operators: layer_norm, matmul, bias, cache_store, attention, matmul, bias, add,
/// layer_norm, matmul, bias, activation, matmul, bias, add; one less without a cache. Weights:
/// "embeddings", "positions.table", then for each layer "layer.3.attention_norm.gamma" and ".beta",
/// "layer.3.query_key_value", "layer.3.attention_output", "layer.3.mlp_norm",
/// "layer.3.intermediate", "layer.3.output", the products with ".weight", [out, in], and ".bias";
/// "final_norm" and, unless the head is tied to the embeddings, "head.weight". Matrices, tables and
/// biases are of the graph's dtype, gammas and betas float32.
///
/// Tensors are named as in GPT2LMHeadModel, or without "transformer."; products, stored [in, out]
/// there, are transposed. Throws Corrupt for more layers than the configuration has; reading
/// weights throws NotFound or Corrupt naming file, tensor, expected and found shape.
std::unique_ptr<const DecoderModel> make_gpt2_model(Checkpoint checkpoint,
                                                    const Gpt2Config& config);

}  // namespace stof::model
