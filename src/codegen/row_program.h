#pragma once
// Kernels that do a short program of steps to each row of a matrix: configuration and source text.
// The kernel is in kernels/norm/row_program.cuh.

#include <cstdint>
#include <string>
#include <vector>

#include "stof/dtype.h"

namespace stof::codegen {

/// What is done to the running row, float32 in registers, which starts as zeros. Operands are
/// numbered by the program. Mirrored by kernels/norm/row_program.cuh.
enum class RowStep : std::uint8_t {
  kAddRow,       ///< + a matrix's row
  kAddTable,     ///< + the row of a table (operand + 1) that ids (operand, int32 [rows]) name
  kAddVector,    ///< + a vector
  kMultiplyRow,  ///< * a matrix's row
  kScale,        ///< * one element of each row
  kRelu,
  kGeluErf,
  kGeluTanh,
  kSilu,
  kLayerNorm,   ///< by gamma (operand) and beta (operand + 1)
  kRmsNorm,     ///< by gamma
  kRope,        ///< queries and keys turned by positions (operand, int32 [rows]) times frequencies
                ///< (operand + 1, float32 [dim / 2])
  kStore,       ///< rounded, into a matrix's row; the running row stays as it is
  kStoreHeads,  ///< the same into [heads, rows, dim]
  kStoreCache,  ///< the same of the columns from `cached` on, into the row of a cache (operand + 1)
                ///< that slots (operand, int32 [rows]) name; nowhere where that is negative
  kRmsScale,    ///< / sqrt(mean + epsilon) of squares whose sums, of 32 each, are a row of floats
  kStoreSquares,  ///< sums of squares of 32 columns each, into a row of floats
  kHeadNorm,  ///< an RMSNorm of each head of queries and keys, by their gammas [dim] (operand and
              ///< operand + 1)
};

/// How a row is made of heads; zeros where no step asks. Mirrored by kernels/norm/row_program.cuh.
struct RowHeads {
  int dim = 0;      ///< of a head: a power of two from 2 to 32 vectors
  int rotated = 0;  ///< columns of queries and keys, which kRope turns and kHeadNorm norms
  int cached = 0;   ///< the first column that goes to a cache: queries come before it
  int queries = 0;  ///< columns of queries, with kHeadNorm

  bool operator==(const RowHeads&) const = default;
};

struct RowInstruction {
  RowStep step = RowStep::kAddRow;
  int operand = 0;
  bool wide = false;  ///< the vectors it reads are float32 instead of elements

  bool operator==(const RowInstruction&) const = default;
};

struct RowProgramConfig {
  DType element = DType::kBFloat16;  ///< or float16
  std::int64_t width = 0;            ///< columns, a multiple of 8
  std::vector<RowInstruction> program;
  int vector = 8;  ///< elements of one load: 8 or 4
  int warps = 1;   ///< of a row
  int rows = 4;    ///< of a block; 1 where a row has several warps
  RowHeads heads = {};

  static constexpr int kMaxOperands = 12;
  static constexpr int kMaxValues = 64;  ///< of a thread: more would spill

  /// Registers' worth of columns a thread holds.
  int values_per_thread() const;
  int threads() const { return 32 * warps * rows; }
  /// "rows_bf16_768_v8_w1_r4_add0_vector1w_layernorm2w_store4": names all that the text depends on.
  std::string name() const;
  /// Throws Unsupported naming the field that has no kernel, what is expected and what was got.
  void validate() const;
  bool operator==(const RowProgramConfig&) const = default;
};

/// Geometries worth trying for a program on that many rows, the one to use untuned first; none
/// where width, element or heads have no kernel.
std::vector<RowProgramConfig> row_program_configs(DType element, std::int64_t width,
                                                  const std::vector<RowInstruction>& program,
                                                  std::int64_t rows, int num_sms,
                                                  const RowHeads& heads = {});

/// The translation unit; its entry is `row_program`.
std::string emit_row_program(const RowProgramConfig& config);

}  // namespace stof::codegen
