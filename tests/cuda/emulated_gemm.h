#pragma once
// Products run on the CPU thread by thread (emulated/machine.h): their steps, and random operands.

#include <cmath>
#include <random>
#include <vector>

#include "elementwise/activation.cuh"
#include "stof/dtype.h"

namespace stof {

/// As src/codegen/gemm.cc would emit them, by the configuration's flags: row scale, bias, SiLU and
/// gate or (with a bias) GELU, residual, statistics; or the rotation of heads.
struct Steps {
  template <template <class> class Epilogue, class D, int kCount>
  static void apply(Epilogue<D>& epilogue, float (&values)[kCount]) {
    if constexpr (requires {
                    requires D::kRopeDim >
                    0;
                  }) {
      epilogue.rotated(values);
      epilogue.store(values);
      return;
    }
    if constexpr (requires { requires D::kRowScale; }) epilogue.scale_rows(values);
    if constexpr (D::kBias) epilogue.add_bias(values);
    if constexpr (D::kGate) {
      float gated[kCount / 2];
      epilogue.gate(values, gated, [](float x) { return silu(x); });
      finish(epilogue, gated);
    } else {
      if constexpr (D::kBias) epilogue.activate(values, [](float x) { return gelu_erf(x); });
      finish(epilogue, values);
    }
  }

 private:
  template <template <class> class Epilogue, class D, int kCount>
  static void finish(Epilogue<D>& epilogue, float (&values)[kCount]) {
    if constexpr (D::kResidual) epilogue.add_residual(values);
    if constexpr (requires { requires D::kStatistics; }) epilogue.count(values);
    epilogue.store(values);
  }
};

/// Rows of bfloat16 with 8 elements of NaN behind each; size 0: NaN throughout.
struct Matrix {
  std::int64_t rows, columns, stride;
  std::vector<BFloat16> values;

  Matrix(std::int64_t r, std::int64_t c, float size, std::mt19937& random)
      : rows(r), columns(c), stride(c + 8), values(static_cast<std::size_t>(r * stride)) {
    std::normal_distribution<float> normal(0, size);
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t i = 0; i < stride; ++i)
        values[static_cast<std::size_t>(row * stride + i)] =
            BFloat16(i < columns && size > 0 ? normal(random) : std::nanf(""));
  }
  double at(std::int64_t row, std::int64_t column) const {
    return static_cast<float>(values[static_cast<std::size_t>(row * stride + column)]);
  }
  /// Without what lies between the rows.
  std::vector<BFloat16> dense() const {
    std::vector<BFloat16> all;
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t i = 0; i < columns; ++i)
        all.push_back(values[static_cast<std::size_t>(row * stride + i)]);
    return all;
  }
  std::vector<float> floats(std::int64_t row) const {
    std::vector<float> all;
    for (std::int64_t i = 0; i < columns; ++i) all.push_back(static_cast<float>(at(row, i)));
    return all;
  }
};

}  // namespace stof
