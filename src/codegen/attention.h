#pragma once
// A block-wise attention kernel's configuration and its source text.

#include <memory>
#include <string>

#include "codegen/score_mod.h"
#include "stof/dtype.h"

namespace stof::codegen {

/// The instructions a kernel is built from.
enum class KernelFamily {
  kSm90,  ///< warpgroup instructions and the copy engine: kernels/attention/sm90_blockwise
  kSm80,  ///< warp instructions and per-thread copies: kernels/attention/sm80_blockwise
};

/// One point of a kernel's design space; config.cuh in the family's folder derives the rest. Every
/// field is part of the compiled kernel.
struct AttentionConfig {
  KernelFamily family = KernelFamily::kSm90;
  DType element = DType::kBFloat16;
  int head_dim_qk = 128;  ///< 8..256 (sm80: 8..512), multiple of 8
  int head_dim_v = 128;   ///< likewise
  int warpgroups = 2;     ///< sm90: consumers of 64 rows each, 1..3; sm80: all warps, 1..2
  int tile_kv = 128;      ///< multiple of 16
  int stages = 2;         ///< K and V ring depth; sm80: 1..3, 1 = K and V by turns
  int query_stages = 1;   ///< sm90 only, as are the register counts and ping_pong
  bool query_in_registers = false;  ///< pays for narrow key tiles
  bool pack_heads = false;  ///< each warpgroup its own head of one group, sharing rows and mask
  bool ping_pong = false;   ///< warpgroups issue matrix instructions in turn
  bool softcap = false;
  bool alibi = false;
  bool bias = false;
  bool position_bias = false;                     ///< instead of a bias
  std::shared_ptr<const ScoreModCode> score_mod;  ///< null: none
  bool sink = false;
  bool varlen = false;      ///< sequences packed along the rows
  bool grid_order = false;  ///< sm90 only: tiles are boxes of a token grid (plan/grid_order.h)
  bool merge = false;       ///< merges into the output and LSE of an earlier pass
  int blocks_per_sm = 1;
  int consumer_registers = 240;
  int producer_registers = 24;
  // sm80 only:
  int warp_slabs = 1;          ///< 64-row slabs of a warpgroup, 1..2: K and V are read once for all
  bool split_columns = false;  ///< the two warpgroups share rows and halve the output's columns
  bool two_of_four = false;  ///< of four neighbouring keys the two of the largest scores are kept,
                             ///< by 2:4 sparse products: kernels/attention/sm80_sparse
  int load_bytes = 16;       ///< 16, 4 or 2: divides addresses and strides of q, k, v and out

  /// 64-row slabs of a block.
  int slabs() const;
  /// Query heads of a work record.
  int heads_per_record() const { return pack_heads ? slabs() : 1; }
  int threads() const;
  int query_rows() const { return pack_heads ? 64 : 64 * slabs(); }
  /// ALiBi, biases and score modifications, which need to know the keys of a tile.
  bool needs_keys() const { return alibi || bias || position_bias || score_mod; }
  int payload_bytes() const;
  int shared_bytes() const;
  /// "sm90_bf16_qk128_v128_w2_kv128_s2q1", "sm80_bf16_qk128_v128_w1x2_kv64_s2" and the flags; a
  /// score modification adds "_mod" and its tag.
  std::string name() const;
  /// Throws Internal naming the field that cannot work.
  void validate() const;
};

/// The translation unit: Config, wgmma wrappers and the entry `attention`.
std::string emit_attention(const AttentionConfig& config);

}  // namespace stof::codegen
