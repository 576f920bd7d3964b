#pragma once
// The LLaMA family's stack of layers as a graph.

#include "graph/graph.h"
#include "model/llama_config.h"

namespace stof::model {

/// The graph of `rows` packed tokens, without a cache. Inputs: "ids" and "positions", int32 [rows].
/// Weights: "embeddings", then for each layer "layer.3.attention_norm.gamma",
/// "layer.3.query_key_value.weight" (one below the other, [(heads + 2 kv_heads) head_dim, hidden]),
/// "layer.3.attention_output.weight", "layer.3.mlp_norm.gamma", "layer.3.gate.weight",
/// "layer.3.up.weight", "layer.3.down.weight", with ".bias" where the configuration has one;
/// "final_norm.gamma" and "head.weight". Matrices, tables and biases are of `dtype`, gammas
/// float32. The result is the logits, [rows, vocabulary]. Who runs it binds the mask: causal, and
/// the window where there is one.
///
/// A layer has 13 operators without biases: rms_norm, matmul, rope, attention, matmul, add,
/// rms_norm, matmul, activation, matmul, multiply, matmul, add. Throws InvalidArgument for no rows
/// or a dtype other than float32, float16 and bfloat16; Unsupported for scaled RoPE and for layers
/// with different windows, which a graph cannot say yet.
graph::Graph build_llama_graph(const LlamaConfig& config, std::int64_t rows, DType dtype);

}  // namespace stof::model
