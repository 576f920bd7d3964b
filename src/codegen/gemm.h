#pragma once
// Matrix products for Hopper with what follows them: configuration and source text. The kernel is
// in kernels/gemm/sm90.

#include <cstdint>
#include <string>
#include <vector>

#include "stof/dtype.h"

namespace stof::codegen {

/// What is done to x W^T before it is stored, in the order of a list.
enum class GemmStep : std::uint8_t {
  kBias,  ///< of a column
  kRelu,
  kGeluErf,
  kGeluTanh,
  kSilu,
  kGate,      ///< halves the columns: those of W's first half, gates, times those of its second;
              ///< the activation right before acts on the gates alone
  kResidual,  ///< adds elements [rows, columns]
  kRowScale,  ///< times a float32 of the row
  kRowStatistics,  ///< stores a row's sum and sum of squares over each tile's columns, as float32;
                   ///< before rounding
  kLayerNorm,      ///< of whole rows, last: (v - mean) / sqrt(variance + epsilon) * gamma + beta
  kRmsNorm,        ///< likewise: v / sqrt(mean square + epsilon) * gamma
  kRope,           ///< turns heads of queries and keys by the row's position; behind the bias alone
  kHeadStore,      ///< last: y is [heads, rows, head_dim]
  kRmsScale,       ///< first: / sqrt(mean + epsilon) of squares whose sums are given a row
  kRowSquares,     ///< last: stores a row's sums of squares of 32 columns each, as float32; before
                   ///< rounding
  kCacheStore,     ///< last: columns of y from one on go to rows of a cache, too, that slots name
};
std::string_view to_string(GemmStep step);

enum class GemmSchedule : std::uint8_t {
  kPingPong,     ///< two warpgroups with a tile each: one multiplies while one stores
  kCooperative,  ///< two warpgroups with half of a tile's rows each
  kSingle,       ///< one warpgroup
  kSplit,        ///< two warpgroups with half of K each
};

struct GemmConfig {
  DType element = DType::kBFloat16;  ///< of x, W, y and residual; or float16
  DType bias = DType::kFloat32;      ///< or the element type
  DType gamma = DType::kFloat32;     ///< of gamma and beta; or the element type
  int rope_dim = 0;                  ///< columns of a head that is rotated; 0 without
  int store_dim = 0;                 ///< likewise of one that is stored by itself
  GemmSchedule schedule = GemmSchedule::kPingPong;
  int tile_m = 128;  ///< 64 or 128; cooperative 128 or 256; single and split 64
  int tile_n = 192;  ///< a multiple of 16 to 256
  int stages = 4;
  int cluster_k = 1;  ///< blocks of a cluster that share a tile's sum: 1, 2 or 4
  int cluster_n =
      1;  ///< with a norm: blocks of a cluster whose column tiles make up a row: 1, 2, 4, 8
  int blocks_per_sm = 1;
  std::vector<GemmStep> steps;

  bool has(GemmStep step) const;
  bool has_norm() const;
  int groups() const;  ///< warpgroups that multiply
  int slabs() const;   ///< of 64 rows, each warpgroup's
  bool large() const;  ///< registers move from the producer to the others
  int threads() const;
  /// Columns of y in a tile.
  int out_n() const { return has(GemmStep::kGate) ? tile_n / 2 : tile_n; }
  /// Columns of y in a staging buffer; a warp's number of buffers.
  int chunk() const;
  int ring() const;
  /// Warpgroups and blocks that share a tile's sum over K.
  int partners() const;
  /// Blocks of a cluster.
  int cluster_blocks() const { return cluster_k * cluster_n; }
  int shared_bytes() const;

  /// "p128x192s4": schedule, tile, stages, then what is special.
  std::string shape() const;
  /// With element types and steps: names all that the text depends on.
  std::string name() const;
  /// Throws Internal naming what is out of range.
  void validate() const;
  /// What validate() would say; empty where it throws nothing.
  std::string problem() const;
};

/// Empty, or why no kernel does these steps in this order.
std::string problem_of(const std::vector<GemmStep>& steps);

/// The body of a kernel's `Steps::apply(epilogue, values)`: calls of the epilogue's members, one a
/// step, then of store(). A norm is left to the kernel, and nothing stored before it.
std::string emit_steps(const std::vector<GemmStep>& steps);

/// How the text of a product's kernel begins, up to its Config: `name` in a comment, declarations
/// of namespace stof that the kernel needs, the header `kernel` and the steps, left open in the
/// namespace.
std::string emit_head(const std::string& name, const std::string& declarations, const char* kernel,
                      const std::vector<GemmStep>& steps);

/// The translation unit; its entry is `gemm`.
std::string emit_gemm(const GemmConfig& config);

}  // namespace stof::codegen
