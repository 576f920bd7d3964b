#pragma once
// Dense linear layers on the CPU. The only place that knows oneDNN.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "stof/tensor.h"

namespace stof::cpu {

enum class Activation : std::uint8_t {
  kNone,
  kRelu,
  kGeluErf,   ///< x/2 (1 + erf(x / sqrt 2))
  kGeluTanh,  ///< x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
};

/// What is done to x W^T + b before it is stored, in order.
enum class PostOp : std::uint8_t {
  kRelu,
  kGeluErf,
  kGeluTanh,
  kSilu,      ///< x / (1 + exp(-x))
  kAdd,       ///< + the next of run()'s operands (a residual connection)
  kMultiply,  ///< * the next of run()'s operands (a gate)
};

/// A weight in the layout that oneDNN multiplies fastest, or as it is. Immutable; may be shared.
class PackedWeight {
 public:
  enum class Layout : std::uint8_t {
    kPacked,  ///< a copy
    kPlain,   ///< the caller's memory, which must outlive this
  };
  /// weight: float32 [out, in], contiguous. Throws InvalidArgument naming what does not match.
  explicit PackedWeight(const TensorView& weight, Layout layout = Layout::kPacked);
  ~PackedWeight();

  std::int64_t in_features() const;
  std::int64_t out_features() const;

  struct Impl;
  const Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// A linear layer. Immutable; safe from several threads.
class Linear {
 public:
  /// `bias`: float32 [out], contiguous, copied; undefined for none. Throws InvalidArgument naming
  /// what does not match.
  Linear(std::shared_ptr<const PackedWeight> weight, const TensorView& bias,
         std::vector<PostOp> post_ops = {});
  /// With a weight packed for this layer alone.
  Linear(const TensorView& weight, const TensorView& bias, std::vector<PostOp> post_ops = {});
  ~Linear();
  Linear(Linear&&) noexcept;

  std::int64_t in_features() const;
  std::int64_t out_features() const;

  /// x: [rows, in], y and each of `operands`, one for every post-op that reads one: [rows, out],
  /// all contiguous; y overlaps none of the others. Uses the threads of the calling thread's
  /// ThreadScope. The primitive for a number of rows is made once and kept. Throws InvalidArgument
  /// where the number of operands is another.
  void run(const float* x, std::int64_t rows, float* y,
           std::span<const float* const> operands = {}) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stof::cpu
