#pragma once
// Block lists on the host, as tests hand them to the GPU's plan kernels, and the mask they mean.

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "stof/cuda_block_lists.h"
#include "stof/mask.h"

namespace stof::cuda {

/// Lists of one attention call, as a model would leave them: rows padded with what is no id.
struct HostLists {
  std::int64_t batch_extent, head_extent, q_blocks, width;
  std::vector<std::int32_t> counts, ids;

  std::int32_t& count(std::int64_t b, std::int64_t h, std::int64_t row) {
    return counts[static_cast<std::size_t>((b * head_extent + h) * q_blocks + row)];
  }
  std::int32_t* row(std::int64_t b, std::int64_t h, std::int64_t row) {
    return ids.data() + ((b * head_extent + h) * q_blocks + row) * width;
  }
};

inline HostLists empty_lists(std::int64_t batch_extent, std::int64_t head_extent,
                             std::int64_t q_blocks, std::int64_t width) {
  const auto rows = static_cast<std::size_t>(batch_extent * head_extent * q_blocks);
  return {batch_extent,
          head_extent,
          q_blocks,
          width,
          std::vector<std::int32_t>(rows, 0),
          std::vector<std::int32_t>(rows * static_cast<std::size_t>(width), -77)};
}

/// Every row its own share of the blocks, in any order, some named twice.
inline HostLists random_lists(const AttentionProblem& p, const BlockListShape& shape,
                              bool shared_heads, double most, std::mt19937& random) {
  const std::int64_t kv_blocks = shape.num_kv_blocks(p);
  HostLists lists = empty_lists(p.batch, shared_heads ? 1 : shape.num_list_heads(p),
                                shape.num_q_blocks(p), kv_blocks + 3);
  for (std::int64_t b = 0; b < lists.batch_extent; ++b)
    for (std::int64_t h = 0; h < lists.head_extent; ++h)
      for (std::int64_t row = 0; row < lists.q_blocks; ++row) {
        const double share = most * static_cast<double>(random() % 100) / 100;
        std::vector<std::int32_t> chosen;
        for (std::int64_t block = 0; block < kv_blocks; ++block)
          if (static_cast<double>(random() % 1000) < 1000 * share)
            chosen.push_back(static_cast<std::int32_t>(block));
        if (!chosen.empty())
          for (unsigned i = random() % 4; i > 0; --i)
            chosen.push_back(chosen[random() % chosen.size()]);
        std::shuffle(chosen.begin(), chosen.end(), random);
        std::copy(chosen.begin(), chosen.end(), lists.row(b, h, row));
        lists.count(b, h, row) = static_cast<std::int32_t>(chosen.size());
      }
  return lists;
}

/// The same lists as a mask: what is no id is left out, counts are cut.
inline mask::Mask mask_of(HostLists lists, const AttentionProblem& p, const BlockListShape& shape) {
  std::vector<mask::Mask> batches;
  for (std::int64_t b = 0; b < p.batch; ++b) {
    mask::BlockList list;
    list.block_q = shape.block_q;
    list.block_kv = shape.block_kv;
    // One head: all share it.
    for (std::int64_t h = 0; h < (lists.head_extent == 1 ? 1 : p.num_heads_q); ++h) {
      list.heads.emplace_back();
      for (std::int64_t row = 0; row < lists.q_blocks; ++row) {
        const std::int64_t from_b = b % lists.batch_extent,
                           from_h = h * lists.head_extent / p.num_heads_q;
        std::set<std::int32_t> blocks;
        const auto count =
            std::clamp<std::int64_t>(lists.count(from_b, from_h, row), 0, lists.width);
        for (std::int64_t i = 0; i < count; ++i) {
          const std::int32_t id = lists.row(from_b, from_h, row)[i];
          if (id >= 0 && id < shape.num_kv_blocks(p)) blocks.insert(id);
        }
        list.heads.back().emplace_back(blocks.begin(), blocks.end());
      }
    }
    batches.push_back(mask::block_list(list));
  }
  mask::Mask all = mask::per_batch(batches);
  if (shape.key_block_sizes.empty()) return all;
  std::vector<std::uint8_t> exists(static_cast<std::size_t>(p.seq_kv), 0);
  for (std::int64_t key = 0; key < p.seq_kv; ++key)
    exists[static_cast<std::size_t>(key)] =
        key % shape.block_kv <
        shape.key_block_sizes[static_cast<std::size_t>(key / shape.block_kv)];
  return all & mask::dense({exists.data(), DType::kBool, {1, 1, 1, p.seq_kv}});
}

}  // namespace stof::cuda
