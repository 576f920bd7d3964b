#pragma once
// The bits of a partial tile in the order in which the block-wise kernels read them.

#include <cstdint>

#include "codegen/attention.h"

namespace stof::cuda {

/// Sets in `words` (config.payload_bytes(), zero before) what visible(row, column) says:
/// [slab][word][thread], bit i = the thread's score register i. Register i of a wgmma accumulator,
/// or of the mma accumulators of a slab, is row warp*16 + lane/4 (+8 if i & 2), column
/// 8*(i/4) + 2*(lane%4) + (i&1).
template <class Visible>
void write_payload(const codegen::AttentionConfig& config, const Visible& visible,
                   std::uint32_t* words) {
  const int registers = config.tile_kv / 2, slabs = config.query_rows() / 64;
  const int slab_words = config.payload_bytes() / 4 / slabs;
  for (int slab = 0; slab < slabs; ++slab)
    for (int thread = 0; thread < 128; ++thread)
      for (int i = 0; i < registers; ++i) {
        const std::int64_t row = slab * 64 + thread / 32 * 16 + thread % 32 / 4 + ((i & 2) ? 8 : 0);
        const std::int64_t column = 8 * (i / 4) + 2 * (thread % 4) + (i & 1);
        if (visible(row, column))
          words[slab * slab_words + i / 32 * 128 + thread] |= 1u << (i % 32);
      }
}

}  // namespace stof::cuda
