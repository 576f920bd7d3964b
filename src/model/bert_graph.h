#pragma once
// BERT's stack of layers as a graph.

#include <vector>

#include "graph/graph.h"
#include "model/bert_weights.h"
#include "model/graph_weights.h"
#include "model/layer_masks.h"
#include "stof/mask.h"

namespace stof::model {

/// The graph of `rows` packed tokens. Inputs: "ids" and "positions", int32 [rows]. Weights are
/// named by their role in BertWeights: "word_embeddings", "position_embeddings",
/// "segment_embeddings" (where the model has any), "embedding_norm.gamma",
/// "layer.3.query_key_value.weight" (query, key and value one below the other, [3 hidden, hidden]),
/// "layer.3.query_key_value.bias", "layer.3.attention_output.weight",
/// "layer.3.attention_norm.beta", "layer.3.intermediate.weight", "layer.3.output.weight",
/// "layer.3.output_norm.gamma". Matrices, tables and biases are of `dtype`, gamma and beta float32.
/// The result is the last layer's output, [rows, hidden].
///
/// A layer has 14 operators: matmul, bias (query, key, value), attention, matmul, bias, add,
/// layer_norm, matmul, bias, activation, matmul, bias, add, layer_norm. Throws InvalidArgument for
/// no rows, or a dtype other than float32, float16 and bfloat16.
///
/// ModernBERT's is another (model/modernbert.h).
graph::Graph build_bert_graph(const BertConfig& config, std::int64_t rows, DType dtype);

/// The masks that attention of the graph is under: `mask`, and where the model has local layers
/// that & their window.
std::vector<mask::Mask> bert_masks(const BertConfig& config, const mask::Mask& mask);

/// The same graph for sessions: attention of each layer is under a mask of its own number.
graph::Graph bert_session_graph(const BertConfig& config, std::int64_t rows, DType dtype);

/// Its masks. The set has passed check().
LayerMasks bert_layer_masks(const BertConfig& config, const mask::MaskSet& mask);

/// The graph's name of an activation. Throws InvalidArgument for none.
graph::Activation graph_activation(cpu::Activation activation);

/// For every weight of a graph that build_bert_graph() made of the same configuration; `weights`
/// must outlive the result.
GraphWeights bind_bert_weights(const graph::Graph& graph, const BertWeights& weights);

}  // namespace stof::model
