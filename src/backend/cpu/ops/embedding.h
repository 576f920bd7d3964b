#pragma once
// The input layer of BERT: word + position + segment embedding, normalised.

#include <cstdint>
#include <span>

#include "backend/cpu/ops/layer_norm.h"

namespace stof::cpu {

struct EmbeddingTables {
  const float* words;      ///< [vocabulary, width]
  const float* positions;  ///< [positions, width]
  const float* segment;    ///< [width]: the row of the only segment
  LayerNorm norm;          ///< its width is the width of all tables
};

/// out: [ids.size(), width]. positions[i] is the place of token i in its text. The caller checks
/// ids and positions against the tables.
void embed_tokens(const EmbeddingTables& tables, std::span<const std::int32_t> ids,
                  std::span<const std::int32_t> positions, float* out);

}  // namespace stof::cpu
