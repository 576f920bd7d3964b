#include "backend/cuda/gemm/problem.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "core/check.h"

namespace stof::cuda {

using codegen::GemmStep;

bool GemmProblem::has(GemmStep step) const {
  return std::find(steps.begin(), steps.end(), step) != steps.end();
}

bool GemmProblem::has_norm() const { return has(GemmStep::kLayerNorm) || has(GemmStep::kRmsNorm); }

std::int64_t GemmProblem::y_columns() const { return has(GemmStep::kGate) ? out / 2 : out; }

int GemmProblem::rope_dim() const { return has(GemmStep::kRope) ? static_cast<int>(head_dim) : 0; }

int GemmProblem::store_dim() const {
  return has(GemmStep::kHeadStore) ? static_cast<int>(head_dim) : 0;
}

std::string GemmProblem::describe() const {
  std::string text =
      fmt::format("{} [{}, {}] x [{}, {}]^T", stof::to_string(element), rows, in, out, in);
  for (const GemmStep step : steps) text += fmt::format(", {}", codegen::to_string(step));
  return text;
}

std::string GemmProblem::unsupported() const {
  if (element != DType::kFloat16 && element != DType::kBFloat16)
    return fmt::format("element: expected float16 or bfloat16, got {}", stof::to_string(element));
  for (const auto& [name, dtype, read] :
       {std::tuple{"bias", bias, has(GemmStep::kBias)}, {"gamma", gamma, has_norm()}})
    if (read && dtype != DType::kFloat32 && dtype != element)
      return fmt::format("{}: expected float32 or {}, got {}", name, stof::to_string(element),
                         stof::to_string(dtype));
  constexpr std::int64_t kMostHead = 256;
  if ((has(GemmStep::kRope) || has(GemmStep::kHeadStore)) &&
      (head_dim < 16 || head_dim > kMostHead || head_dim % 16 != 0 || rotated < 0 ||
       rotated > out || rotated % head_dim != 0))
    return fmt::format(
        "head_dim: expected a multiple of 16 up to {}, and whole heads rotated, got {} and {} "
        "columns",
        kMostHead, head_dim, rotated);
  if (has(GemmStep::kHeadStore) && (out % head_dim != 0 || y_stride != 0))
    return fmt::format("out: expected whole heads of {} and no y_stride, got {} and {}", head_dim,
                       out, y_stride);
  if (std::string text = codegen::problem_of(steps); !text.empty()) return text;
  if (!has(GemmStep::kCacheStore) && (cached != 0 || cache_stride != 0))
    return fmt::format("cached, cache_stride: expected 0 without cache_store, got {} and {}",
                       cached, cache_stride);
  if (has(GemmStep::kCacheStore) && (cached < 0 || cached >= out || cached % 8 != 0))
    return fmt::format("cached: expected a multiple of 8 below {}, got {}", out, cached);
  if (has(GemmStep::kCacheStore) && (cache_stride < out - cached || cache_stride % 8 != 0))
    return fmt::format("cache_stride: expected a multiple of 8 of at least {}, got {}",
                       out - cached, cache_stride);
  if (has(GemmStep::kRmsScale) ? num_squares < 2 || num_squares % 2 != 0 : num_squares != 0)
    return fmt::format("num_squares: expected {}, got {}",
                       has(GemmStep::kRmsScale) ? "an even number of sums" : "0 without rms_scale",
                       num_squares);
  if (has(GemmStep::kRowSquares) && out % 64 != 0)
    return fmt::format("out: expected a multiple of 64 with row_squares, got {}", out);
  if (!(epsilon >= 0)) return fmt::format("epsilon: expected 0 or more, got {}", epsilon);
  // The copy engine's rows begin at multiples of 16 bytes; its positions are 32-bit.
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max() - 512;
  const std::int64_t columns = has(GemmStep::kGate) ? 16 : 8;
  for (const auto& [name, value, step] : {std::tuple{"rows", rows, std::int64_t{1}},
                                          {"in", in, std::int64_t{8}},
                                          {"out", out, columns}})
    if (value < 1 || value > kMost || value % step != 0)
      return fmt::format("{}: expected a multiple of {} from {} to {}, got {}", name, step, step,
                         kMost, value);
  for (const auto& [name, stride, width] : {std::tuple{"x_stride", x_stride, in},
                                            {"y_stride", y_stride, y_columns()},
                                            {"residual_stride", residual_stride, y_columns()}})
    if (stride != 0 && (stride < width || stride % 8 != 0))
      return fmt::format("{}: expected 0 or a multiple of 8 of at least {}, got {}", name, width,
                         stride);
  return "";
}

}  // namespace stof::cuda
