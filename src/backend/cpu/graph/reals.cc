#include "backend/cpu/graph/reals.h"

#include <cmath>
#include <numbers>

#include "backend/cpu/attention/element.h"
#include "core/check.h"

namespace stof::cpu {
namespace {

template <class Combine>
void combine(Reals& x, const Reals& y, Combine combine) {
  STOF_ASSERT((y.rows == x.rows || y.rows == 1) && (y.columns == x.columns || y.columns == 1));
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t c = 0; c < x.columns; ++c)
      x.at(r, c) = combine(x.at(r, c), y.at(y.rows == 1 ? 0 : r, y.columns == 1 ? 0 : c));
}

}  // namespace

Reals::Reals(std::int64_t num_rows, std::int64_t num_columns)
    : rows(num_rows),
      columns(num_columns),
      values(static_cast<std::size_t>(num_rows * num_columns)) {}

double& Reals::at(std::int64_t row, std::int64_t column) {
  return values[static_cast<std::size_t>(row * columns + column)];
}

double Reals::at(std::int64_t row, std::int64_t column) const {
  return values[static_cast<std::size_t>(row * columns + column)];
}

Reals load_reals(const TensorView& view) {
  STOF_ASSERT(view.shape.rank() >= 1);
  const std::int64_t columns = view.shape[view.shape.rank() - 1];
  Reals x(num_elements(view.shape) / columns, columns);
  // Row-major, whatever the strides.
  const Tensor copy = Tensor::copy_of(view);
  const TensorView flat(copy.data(), view.dtype, {copy.size()});
  for (std::int64_t i = 0; i < copy.size(); ++i)
    x.values[static_cast<std::size_t>(i)] = load_element(flat, {i});
  return x;
}

Tensor rounded(const Reals& x, DType dtype, const Dims& shape) {
  Tensor tensor(dtype, shape);
  STOF_ASSERT(tensor.size() == static_cast<std::int64_t>(x.values.size()));
  const MutableTensorView flat(tensor.data(), dtype, {tensor.size()});
  for (std::int64_t i = 0; i < tensor.size(); ++i)
    store_element(flat, {i}, x.values[static_cast<std::size_t>(i)]);
  return tensor;
}

Reals columns_of(const Reals& x, std::int64_t first, std::int64_t count) {
  Reals part(x.rows, count);
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t c = 0; c < count; ++c) part.at(r, c) = x.at(r, first + c);
  return part;
}

double activate(graph::Activation activation, double x) {
  switch (activation) {
    case graph::Activation::kNone:
      return x;
    case graph::Activation::kRelu:
      return x < 0 ? 0 : x;  // NaN stays
    case graph::Activation::kGeluErf:
      return x / 2 * (1 + std::erf(x / std::numbers::sqrt2));
    case graph::Activation::kGeluTanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case graph::Activation::kSilu:
      return x / (1 + std::exp(-x));
  }
  throw_error(ErrorCode::kInternal, "activation {} is unknown", static_cast<int>(activation));
}

Reals multiply_matrices(const Reals& x, const Reals& weight) {
  STOF_ASSERT(x.columns == weight.columns);
  Reals y(x.rows, weight.rows);
  const bool large = x.rows * x.columns * weight.rows > 1 << 20;  // worth waking a team
#pragma omp parallel for schedule(static) if (large)
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t o = 0; o < weight.rows; ++o) {
      double sum = 0;
      for (std::int64_t i = 0; i < x.columns; ++i) sum += x.at(r, i) * weight.at(o, i);
      y.at(r, o) = sum;
    }
  return y;
}

void add(Reals& x, const Reals& y) {
  combine(x, y, [](double a, double b) { return a + b; });
}

void multiply(Reals& x, const Reals& y) {
  combine(x, y, [](double a, double b) { return a * b; });
}

void layer_norm(Reals& x, const Reals& gamma, const Reals& beta, double epsilon) {
  const auto width = static_cast<double>(x.columns);
  for (std::int64_t r = 0; r < x.rows; ++r) {
    double mean = 0, variance = 0;
    for (std::int64_t c = 0; c < x.columns; ++c) mean += x.at(r, c) / width;
    for (std::int64_t c = 0; c < x.columns; ++c)
      variance += (x.at(r, c) - mean) * (x.at(r, c) - mean) / width;
    for (std::int64_t c = 0; c < x.columns; ++c)
      x.at(r, c) =
          (x.at(r, c) - mean) / std::sqrt(variance + epsilon) * gamma.at(0, c) + beta.at(0, c);
  }
}

void rms_norm(Reals& x, const Reals& gamma, double epsilon) {
  const auto width = static_cast<double>(x.columns);
  for (std::int64_t r = 0; r < x.rows; ++r) {
    double squares = 0;
    for (std::int64_t c = 0; c < x.columns; ++c) squares += x.at(r, c) * x.at(r, c) / width;
    for (std::int64_t c = 0; c < x.columns; ++c)
      x.at(r, c) = x.at(r, c) / std::sqrt(squares + epsilon) * gamma.at(0, c);
  }
}

Reals row_squares(const Reals& x) {
  Reals sums(x.rows, x.columns / graph::kSquaredColumns);
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t c = 0; c < x.columns; ++c)
      sums.at(r, c / graph::kSquaredColumns) += x.at(r, c) * x.at(r, c);
  return sums;
}

void rms_scale(Reals& x, const Reals& squares, double epsilon) {
  const auto width = static_cast<double>(squares.columns * graph::kSquaredColumns);
  for (std::int64_t r = 0; r < x.rows; ++r) {
    double sum = 0;
    for (std::int64_t c = 0; c < squares.columns; ++c) sum += squares.at(r, c);
    for (std::int64_t c = 0; c < x.columns; ++c) x.at(r, c) /= std::sqrt(sum / width + epsilon);
  }
}

void head_norm(Reals& x, const Reals& query_gamma, const Reals& key_gamma,
               const graph::Attributes& attributes) {
  const std::int64_t dim = attributes.head_dim;
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t h = 0; h < attributes.heads + attributes.kv_heads; ++h) {  // values stay
      const Reals& gamma = h < attributes.heads ? query_gamma : key_gamma;
      double squares = 0;
      for (std::int64_t d = 0; d < dim; ++d) squares += x.at(r, h * dim + d) * x.at(r, h * dim + d);
      const double root = std::sqrt(squares / static_cast<double>(dim) + attributes.epsilon);
      for (std::int64_t d = 0; d < dim; ++d)
        x.at(r, h * dim + d) = x.at(r, h * dim + d) / root * gamma.at(0, d);
    }
}

void rope(Reals& x, const Reals& positions, const Reals& frequencies,
          const graph::Attributes& attributes) {
  const std::int64_t dim = attributes.head_dim, half = dim / 2;
  const std::int64_t rotated = attributes.heads + attributes.kv_heads;  // values stay
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t h = 0; h < rotated; ++h)
      for (std::int64_t i = 0; i < half; ++i) {
        // Rounded: it is how the operator is defined.
        const double angle = static_cast<float>(positions.at(0, r) * frequencies.at(0, i));
        double& low = x.at(r, h * dim + i);
        double& high = x.at(r, h * dim + half + i);
        const double a = low, b = high;
        low = a * std::cos(angle) - b * std::sin(angle);
        high = b * std::cos(angle) + a * std::sin(angle);
      }
}

Reals heads_apart(const Reals& x, const graph::Attributes& attributes) {
  const std::int64_t dim = attributes.head_dim;
  Reals y(attributes.heads * x.rows, dim);
  for (std::int64_t h = 0; h < attributes.heads; ++h)
    for (std::int64_t r = 0; r < x.rows; ++r)
      for (std::int64_t d = 0; d < dim; ++d) y.at(h * x.rows + r, d) = x.at(r, h * dim + d);
  return y;
}

Reals stored_in_cache(const Reals& x, const Reals& slots, Reals cache,
                      const graph::Attributes& attributes) {
  const std::int64_t first = attributes.heads * attributes.head_dim;
  for (std::int64_t r = 0; r < x.rows; ++r) {
    const auto slot = static_cast<std::int64_t>(slots.at(0, r));
    STOF_CHECK(slot < cache.rows, kInvalidArgument,
               "row {}: expected a slot below {}, the cache's, or a negative one, got {}", r,
               cache.rows, slot);
    for (std::int64_t c = 0; slot >= 0 && c < cache.columns; ++c)
      cache.at(slot, c) = x.at(r, first + c);
  }
  return cache;
}

}  // namespace stof::cpu
