#pragma once
// ModernBERT (Warner et al. 2024, arXiv 2412.13663): pre-norm layers that look at all tokens or at
// near ones, with rotary positions of their own theta each, and gated inner layers.

#include "graph/graph.h"
#include "model/bert_weights.h"
#include "model/graph_weights.h"

namespace stof::model {

/// As build_bert_graph(), which calls this. Attention over all tokens is under mask 0, local
/// attention under mask 1. Weights are named "word_embeddings", "embedding_norm.gamma", and of the
/// first layer, which has no norm before its attention, "first.query_key_value.weight",
/// "first.frequencies", "first.attention_output.weight", "first.mlp_norm.gamma",
/// "first.gate.weight" (what the activation is applied to) and "first.up.weight", or one below the
/// other "first.gate_up.weight" in 16 bits, "first.output.weight"; of the layer behind it
/// "layer.0.attention_norm.gamma" and so on; "final_norm.gamma". Biases and betas are there where
/// the configuration has them; betas without are zeros.
graph::Graph build_modernbert_graph(const BertConfig& config, std::int64_t rows, DType dtype);

/// What load_bert_weights() does for this family.
void load_modernbert_weights(const BertConfig& config, BertWeights& weights);

/// What bind_bert_weights() does for this family.
GraphWeights bind_modernbert_weights(const graph::Graph& graph, const BertWeights& weights);

}  // namespace stof::model
