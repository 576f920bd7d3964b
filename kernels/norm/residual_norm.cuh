#pragma once
// The end of each half of a BERT layer: x = LayerNorm(x + y + bias), where y is a matrix product.

#include "norm/row.cuh"

namespace stof {

/// Mirrored by src/backend/cuda/rows/row_kernels.cc.
struct ResidualParams {
  Pack* x;              // [rows, width]: the residual stream, replaced
  const Pack* y;        // [rows, width]
  const float4* bias;   // [width]
  const float4* gamma;  // [width]
  const float4* beta;   // [width]
  i64 rows;
  float epsilon;
};

template <class Config>
__device__ __forceinline__ void residual_norm(const ResidualParams& params) {
  using R = Row<Config>;
  const i64 index = R::index();
  if (index >= params.rows) return;
  R row;
  row.clear();
  row.add(params.x + index * R::kPacks);
  row.add(params.y + index * R::kPacks);
  row.add(params.bias);
  row.normalise_and_store(params.gamma, params.beta, params.epsilon, params.x + index * R::kPacks);
}

}  // namespace stof
