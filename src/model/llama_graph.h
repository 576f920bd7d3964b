#pragma once
// The LLaMA family's stack of layers as a graph.

#include <vector>

#include "model/decoder_model.h"
#include "model/llama_config.h"
#include "model/llama_weights.h"
#include "stof/mask.h"

namespace stof::model {

/// The graph of `rows` packed tokens, each of which attends to the rows of its own sequence.
/// Inputs: "ids" and "positions", int32 [rows], and with a cache "slots", int32 [rows]: each row's
/// place in every layer's cache, states "layer.3.cache", [cache_size, 2 kv_heads head_dim], keys
/// before values. Weights: "embeddings", "rope.frequencies" (float32 [head_dim / 2], radians a
/// position), then for each layer "layer.3.attention_norm.gamma", "layer.3.query_key_value.weight"
/// (one below the other, [(heads + 2 kv_heads) head_dim, hidden]),
/// "layer.3.attention_output.weight", "layer.3.mlp_norm.gamma", "layer.3.gate.weight",
/// "layer.3.up.weight", "layer.3.down.weight", with
/// ".bias" where the configuration has one; "final_norm.gamma" and, unless the head is tied to the
/// embeddings, "head.weight". Matrices, tables and biases are of `dtype`, gammas float32. The
/// result is the logits, [rows, vocabulary], or with head_rows those of the rows that the input
/// "head_rows", int32 [head_rows], names, in its order. Who runs it binds llama_masks().
///
/// A layer has 13 operators without biases: rms_norm, matmul, rope, attention, matmul, add,
/// rms_norm, matmul, activation, matmul, multiply, matmul, add; one less with a joined gate, and
/// cache_store behind rope with a cache. Throws InvalidArgument for no rows, a negative cache or
/// head, no cache that is to be read, or a dtype other than float32, float16 and bfloat16.
graph::Graph build_llama_graph(const LlamaConfig& config, std::int64_t rows, DType dtype,
                               const DecoderGraphOptions& options = {});

/// The masks that attention of the graph is under: causal, and & the window of its layers where
/// there is one, and & `also`. Different windows have a mask each, in the order of layers.
std::vector<mask::Mask> llama_masks(const LlamaConfig& config,
                                    const mask::Mask& also = mask::all());

/// For every weight of a graph that build_llama_graph() made of the same configuration. Throws what
/// reading them does.
GraphWeights bind_llama_weights(const graph::Graph& graph, const LlamaWeights& weights);

}  // namespace stof::model
