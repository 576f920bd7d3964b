#pragma once
// The decode kernel's configuration and its source text.

#include <string>

#include "stof/dtype.h"

namespace stof::codegen {

/// One point of the design space; kernels/attention/decode/config.cuh derives the rest. Every field
/// is part of the compiled kernel.
struct DecodeConfig {
  DType element = DType::kBFloat16;
  int head_dim_qk = 128;  ///< 8..256, multiple of 8
  int head_dim_v = 128;   ///< 8..256, multiple of 8
  int row_warps = 1;      ///< warps that share keys, each with its own rows
  int row_tiles = 1;      ///< tiles of 16 rows a warp holds
  int key_warps = 4;      ///< teams of row_warps warps, each with its own keys of a tile
  int tile_keys = 64;     ///< keys of a ring stage, at most 64; a multiple of 16 * key_warps
  int stages = 3;         ///< ring depth, at least 2
  int blocks_per_sm = 2;
  int page_size = 0;   ///< rows of a cache page, a multiple of 16; 0: contiguous
  bool lists = false;  ///< a static mask's tile lists instead of window arithmetic
  bool softcap = false;
  bool alibi = false;
  bool position_bias = false;
  bool early_start = true;  ///< programmatic dependent launch, sm_90 on
  bool early_keys = false;  ///< DecodeProblem::early_keys; with early_start, without lists
  bool merges = false;      ///< the last block of a sequence merges its parts: no combine follows

  int threads() const { return 32 * row_warps * key_warps; }
  int rows() const { return 16 * row_warps * row_tiles; }
  int stage_bytes() const;
  int query_bytes() const;
  int merge_bytes() const;  ///< what the end of a sequence needs of the ring
  int shared_bytes() const;
  int combine_shared_bytes() const;
  /// "decode_bf16_qk128_v128_r1x1_k4x64_s3_b2" and the variants.
  std::string name() const;
  /// Throws Internal naming the field that cannot work.
  void validate() const;
};

/// The translation unit with the entry `decode`.
std::string emit_decode(const DecodeConfig& config);

/// The translation unit with the entry `combine`, which merges what several blocks of emit_decode()
/// left of a sequence.
std::string emit_decode_combine(const DecodeConfig& config);
inline constexpr int kDecodeCombineThreads = 128;
/// Largest grid of the decode kernel that the combine takes.
inline constexpr int kDecodeMaxBlocks = 4096;

}  // namespace stof::codegen
