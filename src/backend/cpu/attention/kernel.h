#pragma once
// The boundary between the attention driver and its kernels, which are compiled once per vector
// level. Plain data only: what a kernel file pulls in must not emit shared inline functions.

#include <cstdint>

#include "backend/cpu/cpu_features.h"
#include "stof/mask_plan.h"

namespace stof::cpu {

/// Element type of q, k, v and out as the kernels see it.
enum class Element : std::uint8_t { kFloat32, kFloat16, kBFloat16 };

struct KernelParams;
struct ScoreHead;  // score_mod.h

/// Scores of query rows q_begin .. against keys k_begin .., as [num_keys][width].
struct ScoreBlock {
  float* scores = nullptr;
  std::int64_t width = 0;  ///< from key to key; rows past num_rows mean nothing
  std::int64_t q_begin = 0, num_rows = 0, k_begin = 0, num_keys = 0;
};

/// What every item of a run shares.
struct KernelParams {
  Element element = Element::kFloat32;
  std::int64_t seq_q = 0, seq_kv = 0, head_dim_qk = 0, head_dim_v = 0;
  float scale = 1;
  float softcap = 0;   ///< 0 = none
  bool alibi = false;  ///< slope * (key - query - position_offset) is added
  bool bias = false;   ///< KernelHead::bias is added
  /// The caller's function of the scores, last of all; or null.
  void (*change_scores)(const KernelParams& params, const ScoreHead& head,
                        const ScoreBlock& block) = nullptr;
  std::int64_t position_offset = 0;
  std::int64_t tile_q = 0, tile_kv = 0;
  std::int64_t words_per_row = 0;           ///< 64-bit words of a payload row
  const std::uint64_t* payloads = nullptr;  ///< tile_q * words_per_row words each, row-major
};

/// One (batch, query head). Strides are in elements, from row to row.
struct KernelHead {
  const void* q = nullptr;  ///< [seq_q, head_dim_qk]
  const void* k = nullptr;  ///< [seq_kv, head_dim_qk]
  const void* v = nullptr;  ///< [seq_kv, head_dim_v]
  std::int64_t q_stride = 0, k_stride = 0, v_stride = 0;
  const float* bias = nullptr;  ///< [seq_q, seq_kv], or null
  std::int64_t bias_q_stride = 0, bias_k_stride = 0;
  const float* sink = nullptr;            ///< one logit, or null
  float slope = 0;                        ///< of ALiBi
  const ScoreHead* score_head = nullptr;  ///< with KernelParams::change_scores
};

/// The tiles of one query tile (or of one split of it).
struct KernelItem {
  std::int64_t q_begin = 0;
  const plan::PartialTile* partial = nullptr;
  std::int64_t num_partial = 0;
  const plan::TileRun* runs = nullptr;
  std::int64_t num_runs = 0;
};

/// Where an item's rows go; all float32, rows inside the sequence only.
struct KernelResult {
  float* out = nullptr;  ///< [tile_q, head_dim_v], contiguous, normalised
  float* lse = nullptr;  ///< [tile_q], natural log
};

/// One vector level's kernels.
struct AttentionKernels {
  /// Floats of scratch one thread needs; 64-byte alignment is assumed.
  std::int64_t (*scratch_floats)(const KernelParams& params);
  void (*run_item)(const KernelParams& params, const KernelHead& head, const KernelItem& item,
                   const KernelResult& result, float* scratch);
  /// y[i] = exp(x[i]) as the softmax computes it, for x <= 0; results below 2^-126 are 0.
  void (*exp_array)(const float* x, float* y, std::int64_t count);
};

const AttentionKernels& attention_kernels_scalar();
const AttentionKernels& attention_kernels_avx2();
const AttentionKernels& attention_kernels_avx512();

/// The kernels of a level this machine supports.
const AttentionKernels& attention_kernels(CpuIsa isa);

}  // namespace stof::cpu
