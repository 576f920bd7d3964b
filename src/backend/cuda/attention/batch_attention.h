#pragma once
// Attention over one batch of packed sequences, planned for just its lengths.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "stof/cuda_attention.h"

namespace stof::cuda {

/// For batches that come again: what costs more to plan than PackedAttention, and may run faster,
/// since long query tiles are split and sequences of one length may run by any kernel. Immutable;
/// run() as of AttentionPlan.
class BatchAttention {
 public:
  /// Sequence i owns rows offsets[i] .. offsets[i+1]; batch and lengths of the problem are not
  /// read. Throws what AttentionPlan::build() and VarlenPlan::build() throw.
  BatchAttention(const AttentionProblem& problem, const mask::Mask& mask,
                 const std::vector<std::int64_t>& offsets, int device);

  /// q, k, v, out of all rows, as run_varlen_attention() takes them. Asynchronous.
  void run(const AttentionTensors& tensors, void* stream) const;

  const PlanFacts& facts() const;

 private:
  static std::variant<AttentionPlan, VarlenPlan> build(const AttentionProblem& problem,
                                                       const mask::Mask& mask,
                                                       const std::vector<std::int64_t>& offsets,
                                                       int device);
  std::variant<AttentionPlan, VarlenPlan> plan_;  ///< the first: all of one length
};

}  // namespace stof::cuda
