#pragma once
// Matrix products of few rows with what follows them and, where asked for, a norm of the rows in
// front: configuration and source text. The kernel is in kernels/gemm/skinny.

#include <string>
#include <vector>

#include "codegen/gemm.h"

namespace stof::codegen {

/// What is done to x before it is multiplied, as elements again.
enum class RowPrologue : std::uint8_t { kNone, kLayerNorm, kRmsNorm };

struct SkinnyGemmConfig {
  DType element = DType::kBFloat16;  ///< of x, W, y and residual; or float16
  DType bias = DType::kFloat32;      ///< or the element type
  DType gamma = DType::kFloat32;     ///< of gamma and beta of the norm; or the element type
  RowPrologue prologue = RowPrologue::kNone;
  int tile_m = 16;   ///< rows of x that there is room for: 8, 16, 32 or 64
  int warps_n = 1;   ///< of 16 rows of W each
  int warps_k = 16;  ///< that share a tile's chunks of K
  int unroll = 4;    ///< of 32 columns: a chunk of K
  int splits = 1;    ///< blocks that share a tile's sum: 1, 2, 4 or 8
  int blocks_per_sm = 1;
  int in = 0;                   ///< K; a multiple of 8
  int rope_dim = 0;             ///< columns of a head that is rotated; 0 without
  std::vector<GemmStep> steps;  ///< no norm, nothing of rows' sums or scales, no store by heads

  bool has(GemmStep step) const;
  int threads() const { return 32 * warps_n * warps_k; }
  int tile_n() const { return 16 * warps_n; }
  int shared_bytes() const;
  /// Of a tile's parts, where several blocks share its sum.
  std::int64_t partial_bytes() const {
    return splits > 1 ? std::int64_t{4} * splits * tile_m * tile_n() : 0;
  }

  /// "8w1x16u4": rows, warps, unrolling, then what is special.
  std::string shape() const;
  /// With K, element types, norm and steps: names all that the text depends on.
  std::string name() const;
  /// Throws Internal naming what is out of range.
  void validate() const;
  /// What validate() would say; empty where it throws nothing. Whether the GPU has as much shared
  /// memory plays no part.
  std::string problem() const;
};

/// The translation unit; its entry is `gemm`.
std::string emit_gemm(const SkinnyGemmConfig& config);

}  // namespace stof::codegen
