#pragma once
// Operands for attention tests: strided tensors inside guarded, poisoned memory, and one call that
// runs a problem everywhere and compares with the reference.

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "backend/cpu/attention/launch.h"
#include "backend/cpu/attention/plan_impl.h"
#include "stof/attention.h"

namespace stof::cpu {

/// How a [batch, head, row, dim] tensor lies in memory.
enum class Layout {
  kContiguous,
  kRowsFirst,      ///< [batch, row, head, dim]
  kSliced,         ///< rows and heads with unused elements behind them
  kExpandedRows,   ///< every row the same memory (stride 0), inputs only
  kExpandedBatch,  ///< every batch entry and head the same memory, inputs only
};

/// A tensor in memory of its own, every byte of which is 0xff (NaN) until it is written.
class GuardedTensor {
 public:
  GuardedTensor() = default;
  GuardedTensor(DType dtype, const Dims& shape, Layout layout = Layout::kContiguous);

  MutableTensorView view();
  /// Calls set(index) for every element in row-major order and stores what it returns.
  void fill(const std::function<double()>& next);
  std::vector<double> values();
  /// True where no byte outside the view's elements has changed from 0xff.
  bool guards_intact();
  void poison();

  const std::vector<std::uint8_t>& bytes() const { return bytes_; }
  bool defined() const { return !bytes_.empty(); }

 private:
  std::vector<std::int64_t> offsets() const;  ///< of every element, row-major

  DType dtype_ = DType::kFloat32;
  Dims shape_, strides_;
  std::int64_t base_ = 0;
  std::vector<std::uint8_t> bytes_;
};

struct Layouts {
  Layout q = Layout::kContiguous, k = Layout::kContiguous, v = Layout::kContiguous,
         out = Layout::kContiguous;
};

/// All operands of a problem, filled from a seed: q, k, v normal, slopes, bias and sink as well.
struct Operands {
  Operands(const AttentionProblem& problem, std::uint64_t seed, const Layouts& layouts = {},
           const Dims& bias_shape = {});
  AttentionTensors tensors();

  AttentionProblem problem;
  GuardedTensor q, k, v, out, lse, slopes, bias, sink;
};

/// out and lse of the reference.
struct Result {
  std::vector<double> out, lse;
};
Result reference_of(const mask::Mask& mask, Operands& operands);

/// Runs the fast path at every vector level of this machine with 1 to 4 threads, and the
/// interpreter, all on poisoned outputs; compares with the reference, checks guards, unchanged
/// inputs, and that threads and repetition do not change a bit.
void expect_right_everywhere(const mask::Mask& mask, Operands& operands);
void expect_right_everywhere(const mask::Mask& mask, Operands& operands,
                             const plan::PlanConfig& config);

/// The message of the stof::Error thrown, or "no error".
std::string error_of(const std::function<void()>& action);

}  // namespace stof::cpu
