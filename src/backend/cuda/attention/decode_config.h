#pragma once
// The decode kernel's configuration for a problem and a GPU.

#include <cstdint>

#include "codegen/decode.h"
#include "stof/cuda_decode.h"

namespace stof::cuda {

/// Query rows that share a key/value head's keys.
inline std::int64_t packed_rows(const DecodeProblem& problem) {
  return problem.num_heads_q / problem.num_heads_kv * problem.seq_q;
}

/// Compute capability `major`.`minor`; `lists`: a static mask's tile lists.
codegen::DecodeConfig decode_config(const DecodeProblem& problem, bool lists, int major, int minor,
                                    int num_sms);

/// How a launch is spread over the GPU.
struct DecodeGrid {
  std::int32_t row_blocks = 1;       ///< pieces of the packed rows, each walks all keys
  std::int32_t slot_rows = 0;        ///< rows of a partial result
  std::int32_t resident_blocks = 1;  ///< fill the GPU once
  std::int32_t max_waves = 1;        ///< the launch has resident_blocks * max_waves blocks
  std::int64_t blocks() const { return std::int64_t{resident_blocks} * max_waves; }
  std::int64_t slots() const { return 2 * blocks(); }
};
DecodeGrid decode_grid(const DecodeProblem& problem, const codegen::DecodeConfig& config,
                       int num_sms);

}  // namespace stof::cuda
