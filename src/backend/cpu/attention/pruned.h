#pragma once
// Attention under masks that a pruner makes of each call's own queries and keys.

#include "stof/attention.h"
#include "stof/prune.h"

namespace stof::cpu {

/// Prunes what attention segments run on the calling thread, for a scope; null: not.
class PruneScope {
 public:
  explicit PruneScope(const mask::PruneOptions* options);
  ~PruneScope();
  PruneScope(const PruneScope&) = delete;
  PruneScope& operator=(const PruneScope&) = delete;

  static const mask::PruneOptions* current();

 private:
  const mask::PruneOptions* before_;
};

/// As run_varlen_attention(), each sequence under what the pruner leaves of its mask. Scores are
/// chosen by scale * q.k alone: what the problem adds to them comes after. Throws Unsupported for
/// operands other than float32.
void run_pruned_attention(const VarlenPlan& plan, const AttentionTensors& tensors,
                          const mask::PruneOptions& options, const RunOptions& run);

}  // namespace stof::cpu
