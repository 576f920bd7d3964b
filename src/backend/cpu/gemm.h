#pragma once
// Dense linear layers on the CPU. The only place that knows oneDNN.

#include <cstdint>
#include <memory>

#include "stof/tensor.h"

namespace stof::cpu {

enum class Activation : std::uint8_t {
  kNone,
  kRelu,
  kGeluErf,   ///< x/2 (1 + erf(x / sqrt 2))
  kGeluTanh,  ///< x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
};

/// What happens to x W^T + b before it is stored.
enum class Store : std::uint8_t {
  kReplace,  ///< y = activation(...)
  kAdd,      ///< y += ... (a residual connection); needs Activation::kNone
};

/// A linear layer whose weights are packed once. Immutable; safe from several threads.
class Linear {
 public:
  /// weight: float32 [out, in], bias: float32 [out], both contiguous; both are copied. Throws
  /// InvalidArgument naming what does not match.
  Linear(const TensorView& weight, const TensorView& bias,
         Activation activation = Activation::kNone, Store store = Store::kReplace);
  ~Linear();
  Linear(Linear&&) noexcept;

  std::int64_t in_features() const;
  std::int64_t out_features() const;

  /// x: [rows, in], y: [rows, out], contiguous, not overlapping. Uses the threads of the calling
  /// thread's ThreadScope. The primitive for a number of rows is made once and kept.
  void run(const float* x, std::int64_t rows, float* y) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stof::cpu
