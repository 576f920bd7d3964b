#pragma once
// The row-wise kernel's configuration and its source text.

#include <string>

#include "stof/dtype.h"

namespace stof::codegen {

/// One point of the design space; kernels/attention/rowwise/config.cuh derives the rest. Every
/// field is part of the compiled kernel.
struct RowwiseConfig {
  DType element = DType::kBFloat16;
  int head_dim_qk = 64;  ///< 8..256, multiple of 8
  int head_dim_v = 64;   ///< 8..256, multiple of 8
  int warps = 4;         ///< that share 16 rows, each with its own keys
  int stages = 3;        ///< chunks of 16 keys in a warp's ring, 2..32
  int blocks_per_sm = 3;
  bool softcap = false;
  bool early_start = true;  ///< programmatic dependent launch, sm_90 on

  static constexpr int kRows = 16;
  static constexpr int kChunkKeys = 16;
  int threads() const { return 32 * warps; }
  int shared_bytes() const;
  /// "rowwise_bf16_qk64_v64_w4_s3_b3" and the variants.
  std::string name() const;
  /// Throws Internal naming the field that cannot work.
  void validate() const;
};

/// The translation unit with the entry `rowwise`.
std::string emit_rowwise(const RowwiseConfig& config);

}  // namespace stof::codegen
