#pragma once
// Packed sequences as dense problems, for the plans of every backend.

#include <cstdint>
#include <vector>

#include "backend/cpu/attention/check.h"
#include "stof/attention.h"

namespace stof::cpu {

/// One dense problem (batch 1) for every distinct pair of lengths, or for every sequence where the
/// mask differs between them.
struct PackedSequences {
  struct Part {
    AttentionProblem problem;
    mask::Mask mask;
  };
  AttentionProblem problem;  ///< batch = sequences, seq_q and seq_kv = the longest
  std::vector<std::int64_t> cu_seqlens_q, cu_seqlens_kv;
  std::vector<Part> parts;
  std::vector<std::size_t> part_of;  ///< [sequences]

  /// Of q, k, v, out ([rows, heads, head_dim]) and lse ([heads, rows]).
  ExpectedShapes shapes() const;
};

/// Throws InvalidArgument naming the cumulative length or field, Unsupported with a bias.
PackedSequences pack_sequences(const AttentionProblem& problem, const mask::Mask& mask,
                               const std::vector<std::int64_t>& cu_seqlens_q,
                               const std::vector<std::int64_t>& cu_seqlens_kv);

}  // namespace stof::cpu
