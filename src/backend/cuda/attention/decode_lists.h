#pragma once
// A static mask as the decode kernel reads it: each sequence's key tiles with their bits.

#include <cstdint>
#include <vector>

#include "codegen/decode.h"
#include "stof/cuda_decode.h"

namespace stof::cuda {

/// A key tile and its payload; -1: every row sees all of it. Mirrors kernels/attention/decode.
struct ListedTile {
  std::int32_t tile, payload;
};

/// Host image. A sequence is one (batch entry, key/value head, piece of the packed rows).
struct DecodeLists {
  std::vector<ListedTile> tiles;
  std::vector<std::uint64_t> payloads;  ///< [payload][row_blocks * rows], bit = key of the tile
  std::vector<std::int64_t> sequence_begin;  ///< [sequences + 1]: tiles of earlier sequences
  std::vector<std::int64_t> list_begin;      ///< [sequences]: into tiles, shared by equal masks

  std::size_t bytes() const;
};

/// `mask` is bound to [batch, num_heads_q, seq_q, max_seq_kv]. A sequence that sees nothing gets
/// one tile whose payload hides it all: its zeros must be stored.
DecodeLists build_decode_lists(const DecodeProblem& problem, const mask::Mask& mask,
                               const codegen::DecodeConfig& config);

}  // namespace stof::cuda
