#pragma once
// Attention of the newest tokens against a key/value cache on an NVIDIA GPU: plan once, run while
// the cache grows.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "stof/attention.h"
#include "stof/mask.h"
#include "stof/tensor.h"

namespace stof::cuda {

/// Everything about a decoding step except addresses, strides and the sequences' lengths. The
/// seq_q queries of a sequence are its last tokens: query i stands at key length - seq_q + i.
struct DecodeProblem {
  std::int64_t batch = 1;
  std::int64_t num_heads_q = 1;
  std::int64_t num_heads_kv = 1;   ///< divides num_heads_q (GQA; 1 = MQA)
  std::int64_t seq_q = 1;          ///< new tokens of each sequence, 1..16
  std::int64_t max_seq_kv = 0;     ///< most keys of a sequence, the new tokens' included
  std::int64_t head_dim_qk = 0;    ///< 8..256, a multiple of 8
  std::int64_t head_dim_v = 0;     ///< likewise
  DType dtype = DType::kBFloat16;  ///< of q, k, v, out: float16 or bfloat16

  bool lengths = false;  ///< DecodeTensors::lengths gives each sequence's keys; else max_seq_kv
  std::int64_t page_size = 0;  ///< rows of a cache page, a multiple of 16 up to 256; 0: contiguous

  /// Keys a query sees around its own position, inclusive; unset: all on that side. Keys outside
  /// are not read.
  std::optional<std::int64_t> window_left;
  std::optional<std::int64_t> window_right = 0;  ///< 0: causal
  /// The first keys of a sequence stay visible whatever window_left says (attention sinks).
  std::int64_t sink_tokens = 0;

  std::optional<float> scale;  ///< default 1/sqrt(head_dim_qk)
  float softcap = 0;           ///< > 0: logits = softcap * tanh(logits / softcap)
  bool alibi = false;          ///< adds slope[h] * (k - q position)
  PositionBias position_bias;  ///< adds table[bucket of k - q position, h]
  bool sink = false;           ///< a learned logit per head joins the softmax's denominator
  bool return_lse = false;
  /// All keys and values but those of a sequence's last seq_q, lengths and page_table were written
  /// by work that had completed before the kernel right before in the stream could start: a copy, a
  /// kernel of others, or stof's three launches before it or earlier, but not its last two, which
  /// may start while others still run. They may then be read while that kernel runs (compute
  /// capability 9.0 on, without a mask), and decoding is some microseconds a token faster.
  bool early_keys = false;

  /// Throws InvalidArgument (Unsupported where only the GPU kernel is limited) naming the field,
  /// the value expected and the one got.
  void validate() const;
  std::string describe() const;
};

/// Operands in device memory. q, k, v, out: unit last stride, addresses and all other strides in
/// multiples of 16 bytes; `out` must not overlap an input.
struct DecodeTensors {
  TensorView q;  ///< [batch, num_heads_q, seq_q, head_dim_qk]
  /// [batch, num_heads_kv, max_seq_kv, head_dim_qk], or with pages
  /// [num_pages, num_heads_kv, page_size, head_dim_qk]. Rows past a sequence's length are not read.
  TensorView k;
  TensorView v;              ///< likewise with head_dim_v
  MutableTensorView out;     ///< [batch, num_heads_q, seq_q, head_dim_v]; every element is written
  MutableTensorView lse;     ///< float32 [batch, num_heads_q, seq_q], contiguous; iff return_lse
  TensorView lengths;        ///< int32 [batch], read when the kernel runs; iff lengths. Values are
                             ///< taken as if cut to 0..max_seq_kv
  TensorView page_table;     ///< int32 [batch, pages]: page of keys i*page_size and on; iff paged.
                             ///< Entries past a sequence's length are not read
  TensorView alibi_slopes;   ///< float32 [num_heads_q]; iff alibi
  TensorView sink;           ///< float32 [num_heads_q]; iff sink
  TensorView position_bias;  ///< float32 [num_buckets, num_heads_q], contiguous; iff it has buckets
};

/// What a decode plan's kernel is and holds.
struct DecodeFacts {
  std::string kernel;               ///< name with all parameters
  std::int64_t blocks = 0;          ///< most blocks of a launch
  std::size_t workspace_bytes = 0;  ///< partial results of sequences that several blocks walk
  std::size_t device_bytes = 0;     ///< workspace and, with a mask, its lists
  double build_ms = 0;              ///< host time, compilation included
};

/// A decoding step planned for one GPU. Immutable; run() may be called from several threads as long
/// as they use different plans or the same stream (a plan has one workspace).
class DecodePlan {
 public:
  /// Causal, or with the problem's window. Throws NotFound without a GPU.
  static DecodePlan build(const DecodeProblem& problem, int device = 0);

  /// With a mask of the [seq_q, max_seq_kv] scores (bottom-right alignment) in place of the window
  /// fields. It is static: with lengths, what lies past a sequence's length is hidden as well. Key
  /// tiles that no query of a group sees are not read.
  static DecodePlan build(const DecodeProblem& problem, const mask::Mask& mask, int device = 0);

  /// Asynchronous on `stream` (a CUstream; null = default stream). Neither allocates, compiles nor
  /// synchronises: a captured call serves lengths, pages and caches changed in place. The same
  /// lengths give the same bits. A query that sees nothing gives 0 and LSE -inf.
  void run(const DecodeTensors& tensors, void* stream) const;

  const DecodeProblem& problem() const;
  const DecodeFacts& facts() const;

  struct Impl;
  explicit DecodePlan(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<const Impl> impl_;
};

}  // namespace stof::cuda
