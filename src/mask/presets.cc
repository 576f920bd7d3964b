// Named masks of well-known models.

#include "mask/arguments.h"
#include "stof/mask.h"

namespace stof::mask {

Mask bert_padding(const std::vector<std::int64_t>& lengths) { return key_lengths(lengths); }

Mask sliding(std::int64_t w) {
  check_argument("sliding", "w", w, 0);
  return window(w, w);
}

Mask longformer(std::int64_t w, std::int64_t num_global) {
  check_argument("longformer", "w", w, 0);
  check_argument("longformer", "num_global", num_global, 0);
  return window(w, w) | global(num_global, num_global);
}

Mask bigbird(std::int64_t block, std::int64_t window_blocks, std::int64_t global_blocks,
             std::int64_t random_count, std::uint64_t seed) {
  check_argument("bigbird", "block", block, 1);
  check_argument("bigbird", "window_blocks", window_blocks, 0);
  check_argument("bigbird", "random_count", random_count, 0);
  STOF_CHECK(global_blocks >= 0 && global_blocks <= kMaxPosition / block, kInvalidArgument,
             "bigbird(global_blocks={}): expected 0 to {}", global_blocks, kMaxPosition / block);
  const std::int64_t num_global = global_blocks * block;
  return block_window(block, window_blocks, window_blocks) | global(num_global, num_global) |
         random_blocks_count(block, random_count, seed);
}

Mask sparse_transformer_strided(std::int64_t local, std::int64_t stride) {
  return causal() & strided(local, stride);
}

Mask sparse_transformer_fixed(std::int64_t stride, std::int64_t count) {
  return causal() & (chunked(stride) | summary(stride, count));
}

Mask streaming(std::int64_t num_sinks, std::int64_t w) {
  check_argument("streaming", "w", w, 0);
  return causal() & (sink(num_sinks) | window(w, 0));
}

}  // namespace stof::mask
