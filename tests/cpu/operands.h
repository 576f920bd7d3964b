#pragma once
// Operands for attention checks: strided tensors inside guarded, poisoned memory.

#include <cstdint>
#include <functional>
#include <vector>

#include "stof/attention.h"

namespace stof::cpu {

/// How a [batch, head, row, dim] tensor lies in memory.
enum class Layout {
  kContiguous,
  kRowsFirst,      ///< [batch, row, head, dim]
  kSliced,         ///< rows and heads with unused elements behind them
  kPadded,         ///< the same in steps of 8 elements, as the GPU kernels ask
  kTransposed,     ///< [batch, head, dim, row]: a bias laid out by keys
  kExpandedRows,   ///< every row the same memory (stride 0), inputs only
  kExpandedBatch,  ///< every batch entry and head the same memory, inputs only
};

/// A tensor in memory of its own, every byte of which is 0xff (NaN) until it is written.
class GuardedTensor {
 public:
  GuardedTensor() = default;
  GuardedTensor(DType dtype, const Dims& shape, Layout layout = Layout::kContiguous);
  /// Any strides, 0 and negative ones too.
  GuardedTensor(DType dtype, const Dims& shape, const Dims& strides);

  MutableTensorView view();
  /// Calls set(index) for every element in row-major order and stores what it returns.
  void fill(const std::function<double()>& next);
  std::vector<double> values();
  /// True where no byte outside the view's elements has changed from 0xff.
  bool guards_intact();
  void poison();

  const std::vector<std::uint8_t>& bytes() const { return bytes_; }
  std::vector<std::uint8_t>& bytes() { return bytes_; }
  /// Of element 0 in bytes().
  std::size_t first_byte() const { return static_cast<std::size_t>(base_) * dtype_bytes(dtype_); }
  bool defined() const { return !bytes_.empty(); }

 private:
  void allocate();
  std::vector<std::int64_t> offsets() const;  ///< of every element, row-major

  DType dtype_ = DType::kFloat32;
  Dims shape_, strides_;
  std::int64_t base_ = 0;
  std::vector<std::uint8_t> bytes_;
};

struct Layouts {
  Layout q = Layout::kContiguous, k = Layout::kContiguous, v = Layout::kContiguous,
         out = Layout::kContiguous, bias = Layout::kContiguous;
};

/// All operands of a problem, filled from a seed: q, k, v normal, the score operands as well.
struct Operands {
  Operands(const AttentionProblem& problem, std::uint64_t seed, const Layouts& layouts = {},
           const Dims& bias_shape = {});
  AttentionTensors tensors();

  AttentionProblem problem;
  GuardedTensor q, k, v, out, lse, slopes, bias, sink, position_bias;
  /// Contiguous, with gaps, backwards, or with a stride of 0, by seed; integers are 0 to 2.
  std::vector<GuardedTensor> score_tables;
};

/// out and lse of the reference.
struct Result {
  std::vector<double> out, lse;
};
Result reference_of(const mask::Mask& mask, Operands& operands);

}  // namespace stof::cpu
