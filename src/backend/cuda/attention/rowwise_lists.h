#pragma once
// A mask as the row-wise kernel reads it: for every 16 query rows the keys that at least one of
// them sees, in chunks of 16. Mirrors kernels/attention/rowwise/config.cuh.

#include <cstdint>
#include <optional>
#include <vector>

#include "stof/attention.h"
#include "stof/block_mask.h"

namespace stof::cuda {

struct RowItem {
  std::int32_t q_row, head, batch, chunk_begin, num_chunks, unused;
};
struct KeyChunk {
  std::int32_t first, columns, bits, unused;
};
static_assert(sizeof(RowItem) == 24 && sizeof(KeyChunk) == 16);

/// Host image of what the kernel reads.
struct RowwiseLists {
  std::vector<RowItem> items;         ///< every (batch, head, 16 rows), heads of a batch together
  std::vector<KeyChunk> chunks;       ///< shared by heads of one pattern
  std::vector<std::int32_t> columns;  ///< gathered keys, 16 a chunk, -1: none
  std::vector<std::uint32_t> bits;    ///< distinct visibilities, 16 bits a row, 8 words each
  std::int64_t total_chunks = 0;      ///< over all items
  std::int32_t longest = 0;           ///< chunks of the longest item

  std::size_t bytes() const;
};

/// Nothing where the lists would hold more than `max_chunks` chunks.
std::optional<RowwiseLists> build_rowwise_lists(const AttentionProblem& problem,
                                                const mask::BlockMask& mask,
                                                std::int64_t max_chunks);

}  // namespace stof::cuda
