#pragma once
// How far a result may be from the reference, one row per dtype. Non-finite positions come first,
// then the whole tensor, then the worst element.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "stof/dtype.h"

namespace stof::cpu {

struct Tolerance {
  double whole;    ///< Frobenius norm of the error / norm of the reference
  double element;  ///< worst error / max(|element|, root mean square of the reference)
};

/// float32: a score of magnitude s is rounded by s * 2^-24 a few times, and exp() makes that the
/// relative error of its weight: 4e-6 with the scores to 30 that occur here. An output is a
/// weighted mean of values that may cancel to a tenth of their size (7.7e-6 of values to 2 was seen
/// as 4.4e-5 of an element), and a tensor of one row averages nothing out. A wrong key or weight is
/// off by 1e-3 and more. The 16-bit types: both sides round once more and may land on neighbouring
/// values, up to 2^-10 and 2^-7 apart; a tensor of one element has no better bound.
inline Tolerance tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return {1e-3, 2e-3};
    case DType::kBFloat16:
      return {8e-3, 1.6e-2};
    default:
      return {3e-5, 2e-4};
  }
}

/// Success, or what is wrong first.
inline testing::AssertionResult close_to(const std::vector<double>& actual,
                                         const std::vector<double>& expected,
                                         const Tolerance& tolerance) {
  if (actual.size() != expected.size())
    return testing::AssertionFailure()
           << actual.size() << " elements, expected " << expected.size();
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const bool same_kind =
        std::isfinite(expected[i])
            ? std::isfinite(actual[i])
            : (std::isnan(expected[i]) ? std::isnan(actual[i]) : actual[i] == expected[i]);
    if (!same_kind)
      return testing::AssertionFailure()
             << "element " << i << " is " << actual[i] << ", expected " << expected[i];
    if (!std::isfinite(expected[i])) continue;
    error += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  if (std::sqrt(error) > tolerance.whole * std::sqrt(norm))
    return testing::AssertionFailure()
           << "relative error of the whole tensor is " << std::sqrt(error / norm) << ", allowed "
           << tolerance.whole;
  const double mean =
      std::sqrt(norm / static_cast<double>(std::max<std::size_t>(1, actual.size())));
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (!std::isfinite(expected[i])) continue;
    const double allowed = tolerance.element * std::max(std::abs(expected[i]), mean);
    if (std::abs(actual[i] - expected[i]) > allowed)
      return testing::AssertionFailure() << "element " << i << " is " << actual[i] << ", expected "
                                         << expected[i] << " within " << allowed;
  }
  return testing::AssertionSuccess();
}

}  // namespace stof::cpu
