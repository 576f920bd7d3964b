#pragma once
// Tensors against the problem they were planned for.

#include "stof/attention.h"

namespace stof::cpu {

/// Extents a run expects; varlen packs batch and rows into one dimension.
struct ExpectedShapes {
  Dims q, k, v, out, lse;
};
ExpectedShapes dense_shapes(const AttentionProblem& problem);

/// Throws InvalidArgument naming the tensor, what was expected and what was got: missing or
/// unexpected operands, dtype, rank, extents, a last stride other than 1, an output that overlaps
/// itself, the other output or an input. Overlap is judged by address ranges.
void check_tensors(const AttentionProblem& problem, const ExpectedShapes& shapes,
                   const AttentionTensors& tensors);

/// The bias with broadcast dimensions expanded (stride 0) to [batch, heads, seq_q, seq_kv].
TensorView expand_bias(const AttentionProblem& problem, const TensorView& bias);

}  // namespace stof::cpu
