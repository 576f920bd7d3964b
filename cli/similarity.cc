#include "similarity.h"

#include <cmath>
#include <vector>

#include "output.h"

namespace stof::cli {
namespace {

/// Without the sign of a negative zero.
std::string two_decimals(double value) {
  return fmt::format("{:.2f}", std::round(value * 100) / 100 + 0.0);
}

}  // namespace

double norm(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return std::sqrt(sum);
}

double cosine(std::span<const float> a, std::span<const float> b) {
  double dot = 0;
  for (std::size_t i = 0; i < a.size(); ++i) dot += static_cast<double>(a[i]) * b[i];
  const double norms = norm(a) * norm(b);
  return norms > 0 ? dot / norms : 0;
}

std::span<const float> tensor_row(const Tensor& matrix, std::int64_t row) {
  const auto columns = static_cast<std::size_t>(matrix.shape()[1]);
  return matrix.as<float>().subspan(static_cast<std::size_t>(row) * columns, columns);
}

std::string similarity_table(const Tensor& embeddings, std::int64_t num_rows) {
  std::vector<std::vector<std::string>> rows(1, {""});
  for (std::int64_t i = 0; i < num_rows; ++i) {
    rows[0].push_back(fmt::format("{}", i + 1));
    rows.push_back({fmt::format("{}", i + 1)});
    for (std::int64_t j = 0; j < num_rows; ++j)
      rows.back().push_back(
          two_decimals(cosine(tensor_row(embeddings, i), tensor_row(embeddings, j))));
  }
  return format_table(rows);
}

}  // namespace stof::cli
