#pragma once
// Masked attention: describe the problem, plan it once, run it many times.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stof/expression.h"
#include "stof/mask.h"
#include "stof/mask_plan.h"
#include "stof/tensor.h"

namespace stof {

/// A learned bias per head for buckets of distances (T5: Raffel et al. 2020, arXiv 1910.10683,
/// section 2.1): small distances have a bucket each, larger ones share buckets that grow with the
/// logarithm.
struct PositionBias {
  std::int64_t num_buckets = 0;     ///< 0: none; else at least 2 (bidirectional: 4, even)
  bool bidirectional = true;        ///< half of the buckets for keys after the query; otherwise
                                    ///< those share the bucket of distance 0
  std::int64_t max_distance = 128;  ///< from here on distances share the last bucket
};

/// Everything about a call except the tensors' addresses and strides. An option in the problem is
/// part of the plan: tensors that do not match it are refused in run_attention().
struct AttentionProblem {
  std::int64_t batch = 1;
  std::int64_t num_heads_q = 1;
  std::int64_t num_heads_kv = 1;  ///< divides num_heads_q (GQA; 1 = MQA)
  std::int64_t seq_q = 0;
  std::int64_t seq_kv = 0;
  std::int64_t head_dim_qk = 0;
  std::int64_t head_dim_v = 0;
  DType dtype = DType::kFloat32;  ///< of q, k, v, out: float32, float16 or bfloat16
  mask::Alignment alignment = mask::Alignment::kTopLeft;

  std::optional<float> scale;  ///< default 1/sqrt(head_dim_qk)
  float softcap = 0;           ///< > 0: logits = softcap * tanh(logits / softcap)
  bool alibi = false;          ///< adds slope[h] * (k - q position); see AttentionTensors
  bool bias = false;           ///< adds a bias tensor; -inf hides, a finite value never does
  PositionBias
      position_bias;  ///< adds table[bucket of the distance, h]; not with bias: add the two
  bool sink = false;  ///< a learned logit per head joins the softmax's denominator
  bool return_lse = false;

  /// The caller's own function of a score, an expression in score, b, h, q, k and the tables below
  /// (docs/masks.md has the language): "score + rel[q - k + 100]". Applied after everything above
  /// and before the mask, in float32; -inf hides the key, and a key that a bias hides stays hidden.
  /// q is the query's row plus the offset of bottom-right alignment, b of packed sequences the
  /// sequence. Empty: none.
  std::string score_mod = {};
  /// What score_mod may read, at most 16; the values come with the tensors, and may change between
  /// runs.
  std::vector<expr::TableDecl> score_tables = {};

  /// Throws InvalidArgument naming the field, the value expected and the one got.
  void validate() const;
  std::string describe() const;
};

/// The operands. q, k, v, out: any strides with unit last stride; k and v may have stride 0
/// (expanded) anywhere else. `out` must not overlap an input.
struct AttentionTensors {
  TensorView q;             ///< [batch, num_heads_q, seq_q, head_dim_qk]
  TensorView k;             ///< [batch, num_heads_kv, seq_kv, head_dim_qk]
  TensorView v;             ///< [batch, num_heads_kv, seq_kv, head_dim_v]
  MutableTensorView out;    ///< [batch, num_heads_q, seq_q, head_dim_v]; every element is written
  MutableTensorView lse;    ///< float32 [batch, num_heads_q, seq_q]; natural log; iff return_lse
  TensorView alibi_slopes;  ///< float32 [num_heads_q]; bias slope * (k - q - offset), where offset
                            ///< is seq_kv - seq_q for bottom-right alignment, else 0
  TensorView bias;          ///< float32, broadcastable to [batch, num_heads_q, seq_q, seq_kv]
  TensorView sink;          ///< float32 [num_heads_q]
  /// float32 [num_buckets, num_heads_q]; the distance is ALiBi's, k - q - offset
  TensorView position_bias;
  std::vector<TensorView>
      score_tables;  ///< one of each AttentionProblem::score_tables, any strides
};

/// A problem with its mask planned. Immutable, cheap to copy, safe from several threads.
class AttentionPlan {
 public:
  const AttentionProblem& problem() const;
  const mask::Mask& mask() const;  ///< bound
  const plan::MaskPlan& mask_plan() const;

  /// What problem().validate() and mask_plan().validate() throw.
  void validate() const;
  std::string describe() const;
  std::string to_json() const;
  Fingerprint fingerprint() const;

  struct Impl;
  explicit AttentionPlan(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  const Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<const Impl> impl_;
};

/// Plans for the CPU kernels of this machine.
AttentionPlan plan_attention(const AttentionProblem& problem, const mask::Mask& mask);

struct RunOptions {
  int num_threads = 0;  ///< 0 = all cores OpenMP gives
};

/// out = softmax(scale * q k^T (+ softcap, ALiBi, bias, position bias, score_mod), visible keys
/// only) v, flash-style.
/// A row that sees nothing gives out 0 and LSE -inf, with a sink too; otherwise the LSE includes
/// the sink. What keys and values hold where nothing sees them is never felt, NaN included.
/// Accumulates in float32; the same bits for every number of threads.
void run_attention(const AttentionPlan& plan, const AttentionTensors& tensors,
                   const RunOptions& options = {});

/// The oracle: asks the mask for every pair, accumulates in double, no tiles.
void attention_reference(const AttentionProblem& problem, const mask::Mask& mask,
                         const AttentionTensors& tensors);

/// Executes the plan as a GPU kernel would read it (same lists, payload bits, queue, splits), in
/// double. Proves plans; slow.
void attention_interpret(const AttentionPlan& plan, const AttentionTensors& tensors);

/// Packed sequences of unequal length ("varlen"): sequence i owns rows cu_seqlens_q[i] ..
/// cu_seqlens_q[i+1] of q and out, likewise for k and v. The mask is applied to each sequence with
/// its own lengths (batch index i).
class VarlenPlan {
 public:
  /// As given, with batch = sequences, seq_q and seq_kv = the longest.
  const AttentionProblem& problem() const;
  std::int64_t num_sequences() const;
  /// Plan of sequence i; equal lengths share one where the mask allows it. Throws InvalidArgument
  /// naming the sequences there are.
  const AttentionPlan& sequence(std::int64_t i) const;

  /// What the plans of the sequences throw.
  void validate() const;
  /// One line: the problem, sequences, rows in all and distinct plans.
  std::string describe() const;
  /// The cumulative lengths, the distinct plans and which of them each sequence has.
  std::string to_json() const;
  Fingerprint fingerprint() const;

  struct Impl;
  explicit VarlenPlan(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  const Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<const Impl> impl_;
};

/// problem.batch, seq_q and seq_kv are taken from the cumulative lengths (first 0, ascending). A
/// mask that differs between batch entries gives entry i to sequence i, its arrays cut to that
/// sequence's lengths. Unsupported with problem.bias.
VarlenPlan plan_varlen_attention(const AttentionProblem& problem, const mask::Mask& mask,
                                 const std::vector<std::int64_t>& cu_seqlens_q,
                                 const std::vector<std::int64_t>& cu_seqlens_kv);

/// q: [total_q, num_heads_q, head_dim_qk]; k, v: [total_kv, num_heads_kv, ...];
/// out: [total_q, num_heads_q, head_dim_v]; lse: float32 [num_heads_q, total_q].
void run_varlen_attention(const VarlenPlan& plan, const AttentionTensors& tensors,
                          const RunOptions& options = {});

/// Merges two attention states over disjoint key sets in place into (out_a, lse_a), row by row:
/// out [rows, head_dim] and lse [rows], float32. (0, -inf) is the neutral element.
void merge_attention_states(MutableTensorView out_a, MutableTensorView lse_a,
                            const TensorView& out_b, const TensorView& lse_b);

}  // namespace stof
