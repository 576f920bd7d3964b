#include "backend/cpu/ops/embedding.h"

namespace stof::cpu {

void embed_tokens(const EmbeddingTables& tables, std::span<const std::int32_t> ids,
                  std::span<const std::int32_t> positions, float* out) {
  const std::int64_t width = tables.norm.width;
  const auto num_tokens = static_cast<std::int64_t>(ids.size());
#pragma omp parallel for schedule(static)
  for (std::int64_t t = 0; t < num_tokens; ++t) {
    const float* word = tables.words + ids[static_cast<std::size_t>(t)] * width;
    const float* position = tables.positions + positions[static_cast<std::size_t>(t)] * width;
    float* row = out + t * width;
#pragma omp simd
    for (std::int64_t i = 0; i < width; ++i) row[i] = word[i] + tables.segment[i] + position[i];
    tables.norm.row(row, row);
  }
}

}  // namespace stof::cpu
