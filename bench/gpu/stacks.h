#pragma once
// Stacks of layers in the sizes of known models, with random weights: what whole passes are timed
// on.

#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "exec/batch.h"
#include "graph/graph.h"
#include "stof/mask.h"

namespace stof::bench {

enum class Design {
  kPostNorm,  ///< BERT: erf GELU, LayerNorm behind each residual
  kPreNorm,   ///< GPT-2, ViT: LayerNorm in front of attention and inner layer
  kLlama,     ///< RMSNorm, RoPE, grouped queries, SwiGLU, no biases
};

struct StackModel {
  std::string name;
  Design design;
  std::int64_t hidden, inner, heads, kv_heads, head_dim;
  int layers;
  graph::Activation activation;
  double epsilon;
  std::string mask;  ///< of stacks_mask()
};

/// Throws std::runtime_error naming all models for one that is none of them.
StackModel stack_model(const std::string& name);

/// "bigbird", "causal_bigbird", "longformer" (256 on each side, 64 global) or "dense".
mask::Mask stacks_mask(const std::string& name);

/// From the first layer's input "x", bfloat16 [rows, hidden], to the last hidden states; LLaMA's
/// also reads "positions", int32 [rows]. Matrices and biases are bfloat16, norms' vectors and
/// "rope.frequencies" float32.
graph::Graph stack_graph(const StackModel& model, std::int64_t rows);

/// Normal, with deviation 0.02 as models are initialised; norms near one.
struct StackWeights {
  std::list<Tensor> tensors;
  exec::WeightViews views;

  explicit StackWeights(const graph::Graph& graph);
};

}  // namespace stof::bench
