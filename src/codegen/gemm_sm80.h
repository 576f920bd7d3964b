#pragma once
// Matrix products from compute capability 8.0 on with what follows them: configuration and source
// text. The kernel is in kernels/gemm/sm80.

#include <string>
#include <vector>

#include "codegen/gemm.h"

namespace stof::codegen {

struct Sm80GemmConfig {
  DType element = DType::kBFloat16;  ///< of x, W, y and residual; or float16
  DType bias = DType::kFloat32;      ///< of the bias; or the element type
  int tile_m = 128;
  int tile_n = 128;
  int tile_k = 32;  ///< columns of x in a stage: 32 or 64
  int warps_m = 2, warps_n = 2;
  int stages = 4;
  int splits = 1;  ///< blocks that share a tile's sum: 1, 2, 4 or 8
  int blocks_per_sm = 1;
  std::vector<GemmStep> steps;  ///< no norm

  bool has(GemmStep step) const;
  int threads() const { return 32 * warps_m * warps_n; }
  int accumulators() const { return tile_m * tile_n / threads(); }  ///< of a thread
  /// Columns of y in a tile.
  int out_n() const { return has(GemmStep::kGate) ? tile_n / 2 : tile_n; }
  int shared_bytes() const;
  /// Of a tile's parts, where several blocks share its sum.
  std::int64_t partial_bytes() const {
    return splits > 1 ? std::int64_t{4} * splits * tile_m * tile_n : 0;
  }

  /// "128x128x32w2x2s4": tile, warps, stages, then what is special.
  std::string shape() const;
  /// With element types and steps: names all that the text depends on.
  std::string name() const;
  /// Throws Internal naming what is out of range.
  void validate() const;
  /// What validate() would say; empty where it throws nothing. Whether the GPU has as much shared
  /// memory plays no part.
  std::string problem() const;
};

/// The translation unit; its entry is `gemm`.
std::string emit_gemm(const Sm80GemmConfig& config);

}  // namespace stof::codegen
