#pragma once
// Matrices in double and the arithmetic of operators on them, one plain loop each.

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "stof/tensor.h"

namespace stof::cpu {

/// Row-major.
struct Reals {
  std::int64_t rows = 0, columns = 0;
  std::vector<double> values;

  Reals() = default;
  Reals(std::int64_t num_rows, std::int64_t num_columns);
  double& at(std::int64_t row, std::int64_t column);
  double at(std::int64_t row, std::int64_t column) const;
};

/// The last extent as columns, all others as rows; a vector is one row.
Reals load_reals(const TensorView& view);
/// Rounded to `dtype`, of that shape.
Tensor rounded(const Reals& x, DType dtype, const Dims& shape);
Reals columns_of(const Reals& x, std::int64_t first, std::int64_t count);

double activate(graph::Activation activation, double x);
/// x weight^T
Reals multiply_matrices(const Reals& x, const Reals& weight);
/// x + y or x * y, y broadcast over extents of 1.
void add(Reals& x, const Reals& y);
void multiply(Reals& x, const Reals& y);
void layer_norm(Reals& x, const Reals& gamma, const Reals& beta, double epsilon);
void rms_norm(Reals& x, const Reals& gamma, double epsilon);
/// Sums of squares of graph::kSquaredColumns columns each.
Reals row_squares(const Reals& x);
/// x / sqrt(mean of the squares whose sums these are + epsilon).
void rms_scale(Reals& x, const Reals& squares, double epsilon);
/// Gammas: [1, head_dim]
void head_norm(Reals& x, const Reals& query_gamma, const Reals& key_gamma,
               const graph::Attributes& attributes);
/// positions: [1, rows]; frequencies: [1, head_dim / 2]
void rope(Reals& x, const Reals& positions, const Reals& frequencies,
          const graph::Attributes& attributes);
/// [rows, heads * head_dim] to [heads, rows, head_dim], given as [heads * rows, head_dim].
Reals heads_apart(const Reals& x, const graph::Attributes& attributes);
/// The cache with keys and values of x's rows in it; slots: [1, rows]. Throws InvalidArgument for a
/// slot past its end.
Reals stored_in_cache(const Reals& x, const Reals& slots, Reals cache,
                      const graph::Attributes& attributes);

}  // namespace stof::cpu
