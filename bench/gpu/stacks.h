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
  kT5,        ///< encoder and decoder: RMSNorm, position bias, attention of scale 1, no biases
};

struct StackModel {
  std::string name;
  Design design;
  std::int64_t hidden, inner, heads, kv_heads, head_dim;
  int layers;  ///< of each part
  graph::Activation activation;
  double epsilon;
  std::string mask;  ///< of stacks_mask(); a decoder behind an encoder sees no later keys of it

  /// Stacks that one pass runs in turn: 2 of an encoder with a decoder, else 1.
  int num_parts() const { return design == Design::kT5 ? 2 : 1; }
  /// Of a part's weights in one file with the other's: "encoder.", "decoder.", else nothing.
  std::string prefix(int part) const;
};

/// Throws std::runtime_error naming all models for one that is none of them.
StackModel stack_model(const std::string& name);

/// "bigbird", "causal_bigbird", "longformer" (256 on each side, 64 global) or "dense".
mask::Mask stacks_mask(const std::string& name);

/// From the first layer's input "x", `dtype` [rows, hidden], to the last hidden states; LLaMA's
/// also reads "positions", int32 [rows]. Matrices and biases are of `dtype`, norms' vectors,
/// "rope.frequencies" and T5's "position_bias" float32. T5's encoder leaves what it made in state
/// "encoded.ROWS", which its decoder reads: sessions of both share their states. The decoder's
/// cross-attention is under mask 1, and both parts end with their norm.
graph::Graph stack_graph(const StackModel& model, std::int64_t rows, int part = 0,
                         DType dtype = DType::kBFloat16);

/// The masks that a part's graph is under.
std::vector<mask::Mask> part_masks(const StackModel& model, const mask::Mask& mask, int part);

/// Normal, with deviation 0.02 as models are initialised; norms near one, position biases of
/// deviation 1. As bfloat16 holds them in either dtype.
struct StackWeights {
  std::list<Tensor> tensors;
  exec::WeightViews views;

  explicit StackWeights(const graph::Graph& graph, int part = 0);
};

}  // namespace stof::bench
