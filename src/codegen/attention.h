#pragma once
// A Hopper attention kernel's configuration and its source text.

#include <string>

#include "stof/dtype.h"

namespace stof::codegen {

/// One point of the kernel's design space; kernels/attention/sm90_blockwise/config.cuh derives the
/// rest. Every field is part of the compiled kernel.
struct AttentionConfig {
  DType element = DType::kBFloat16;
  int head_dim_qk = 128;  ///< 8..256, multiple of 8
  int head_dim_v = 128;   ///< 8..256, multiple of 8
  int warpgroups = 2;     ///< consumers of 64 rows each, 1..3
  int tile_kv = 128;      ///< multiple of 16
  int stages = 2;         ///< K and V ring depth
  int query_stages = 1;
  bool pack_heads = false;  ///< each warpgroup its own head of one group, sharing rows and mask
  bool ping_pong = false;   ///< warpgroups issue matrix instructions in turn
  bool softcap = false;
  bool merge = false;  ///< merges into the output and LSE of an earlier pass
  int blocks_per_sm = 1;
  int consumer_registers = 240;
  int producer_registers = 24;

  int threads() const { return 128 * (warpgroups + 1); }
  int query_rows() const { return pack_heads ? 64 : 64 * warpgroups; }
  int payload_bytes() const;
  int shared_bytes() const;
  /// "sm90_bf16_qk128_v128_w2_kv128_s2q1" and the flags.
  std::string name() const;
  /// Throws Internal naming the field that cannot work.
  void validate() const;
};

/// The translation unit: Config, wgmma wrappers and the entry `attention`.
std::string emit_attention(const AttentionConfig& config);

}  // namespace stof::codegen
