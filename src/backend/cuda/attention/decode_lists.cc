#include "backend/cuda/attention/decode_lists.h"

#include <algorithm>
#include <map>

#include "backend/cuda/attention/decode_config.h"
#include "core/bits.h"

namespace stof::cuda {
namespace {

/// Reads one (batch entry, key/value head) of the mask tile by tile.
class TileReader {
 public:
  TileReader(const DecodeProblem& problem, const mask::Mask& mask, std::int64_t tile_keys,
             std::int64_t payload_rows)
      : problem_(problem),
        mask_(mask),
        tile_keys_(tile_keys),
        bits_(static_cast<std::size_t>(payload_rows)) {}

  mask::TileClass read(std::int64_t b, std::int64_t head_kv, std::int64_t tile) {
    const std::int64_t group = problem_.num_heads_q / problem_.num_heads_kv;
    const std::int64_t begin = tile * tile_keys_;
    const std::int64_t end = std::min(begin + tile_keys_, problem_.max_seq_kv);
    // Where all heads share the mask one answer stands for the group.
    const std::int64_t heads = mask_.head_extent() == 1 ? 1 : group;
    bool all_full = true, all_empty = true;
    for (std::int64_t h = 0; h < heads; ++h) {
      const auto found = mask_.classify(b, head_kv * group + h, {0, problem_.seq_q, begin, end});
      all_full &= found == mask::TileClass::kFull;
      all_empty &= found == mask::TileClass::kEmpty;
    }
    if (all_full) return mask::TileClass::kFull;
    if (all_empty) return mask::TileClass::kEmpty;
    const std::uint64_t inside = low_bits(end - begin);
    all_full = all_empty = true;
    for (std::int64_t h = 0; h < group; ++h)
      for (std::int64_t q = 0; q < problem_.seq_q; ++q) {
        const std::uint64_t bits = h < heads
                                       ? mask_.row_bits(b, head_kv * group + h, q, begin) & inside
                                       : bits_[static_cast<std::size_t>(q)];
        bits_[static_cast<std::size_t>(h * problem_.seq_q + q)] = bits;
        all_full &= bits == inside;
        all_empty &= bits == 0;
      }
    return all_full    ? mask::TileClass::kFull
           : all_empty ? mask::TileClass::kEmpty
                       : mask::TileClass::kPartial;
  }
  /// Of the partial tile just read; rows past the last are 0.
  const std::vector<std::uint64_t>& bits() const { return bits_; }

 private:
  const DecodeProblem& problem_;
  const mask::Mask& mask_;
  const std::int64_t tile_keys_;
  std::vector<std::uint64_t> bits_;
};

}  // namespace

std::size_t DecodeLists::bytes() const {
  return tiles.size() * sizeof(ListedTile) +
         8 * (payloads.size() + sequence_begin.size() + list_begin.size());
}

DecodeLists build_decode_lists(const DecodeProblem& problem, const mask::Mask& mask,
                               const codegen::DecodeConfig& config) {
  DecodeLists lists;
  const std::int64_t row_blocks = (packed_rows(problem) + config.rows() - 1) / config.rows();
  const std::int64_t num_tiles = (problem.max_seq_kv + config.tile_keys - 1) / config.tile_keys;
  std::map<std::vector<std::uint64_t>, std::int32_t> known;
  const auto intern = [&](const std::vector<std::uint64_t>& bits) {
    const auto [at, is_new] = known.try_emplace(bits, static_cast<std::int32_t>(known.size()));
    if (is_new) lists.payloads.insert(lists.payloads.end(), bits.begin(), bits.end());
    return at->second;
  };
  TileReader reader(problem, mask, config.tile_keys, row_blocks * config.rows());

  struct List {
    std::int64_t begin, count;
  };
  std::map<std::pair<std::int64_t, std::int64_t>, List> lists_of;  // by distinct (batch, head)
  lists.sequence_begin.push_back(0);
  for (std::int64_t b = 0; b < problem.batch; ++b)
    for (std::int64_t h = 0; h < problem.num_heads_kv; ++h) {
      const auto [at, is_new] = lists_of.try_emplace(
          std::pair{mask.batch_extent() == 1 ? 0 : b, mask.head_extent() == 1 ? 0 : h}, List{});
      if (is_new) {
        at->second.begin = static_cast<std::int64_t>(lists.tiles.size());
        for (std::int64_t tile = 0; tile < num_tiles; ++tile) {
          const mask::TileClass found = reader.read(b, h, tile);
          if (found == mask::TileClass::kEmpty) continue;
          lists.tiles.push_back({static_cast<std::int32_t>(tile),
                                 found == mask::TileClass::kFull ? -1 : intern(reader.bits())});
        }
        if (static_cast<std::int64_t>(lists.tiles.size()) == at->second.begin)
          lists.tiles.push_back({0, intern(std::vector<std::uint64_t>(reader.bits().size(), 0))});
        at->second.count = static_cast<std::int64_t>(lists.tiles.size()) - at->second.begin;
      }
      for (std::int64_t piece = 0; piece < row_blocks; ++piece) {
        lists.list_begin.push_back(at->second.begin);
        lists.sequence_begin.push_back(lists.sequence_begin.back() + at->second.count);
      }
    }
  return lists;
}

}  // namespace stof::cuda
