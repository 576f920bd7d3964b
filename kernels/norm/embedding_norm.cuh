#pragma once
// The input layer of BERT: word + position + segment embedding, normalised.

#include "norm/row.cuh"

namespace stof {

/// Mirrored by src/backend/cuda/rows/row_kernels.cc.
struct EmbeddingParams {
  const i32* ids;         // [rows]
  const i32* positions;   // [rows]
  const Pack* words;      // [vocabulary, width]
  const Pack* places;     // [positions, width]
  const Pack* segment;    // [width]: the row of the only segment
  const float4* gamma;    // [width]
  const float4* beta;     // [width]
  Pack* out;              // [rows, width]
  i64 rows;
  float epsilon;
};

template <class Config>
__device__ __forceinline__ void embedding_norm(const EmbeddingParams& params) {
  using R = Row<Config>;
  const i64 index = R::index();
  if (index >= params.rows) return;
  R row;
  row.clear();
  row.add(params.words + static_cast<i64>(params.ids[index]) * R::kPacks);
  row.add(params.places + static_cast<i64>(params.positions[index]) * R::kPacks);
  row.add(params.segment);
  row.normalise_and_store(params.gamma, params.beta, params.epsilon,
                          params.out + index * R::kPacks);
}

}  // namespace stof
