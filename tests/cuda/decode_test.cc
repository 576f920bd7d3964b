#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "attention/decode/schedule.cuh"
#include "backend/cuda/attention/cached_attention.h"
#include "backend/cuda/attention/decode_check.h"
#include "backend/cuda/attention/decode_config.h"
#include "backend/cuda/attention/decode_lists.h"
#include "stof/error.h"

namespace stof::cuda {
namespace {

DecodeProblem small_problem() {
  DecodeProblem p;
  p.batch = 2;
  p.num_heads_q = 8;
  p.num_heads_kv = 2;
  p.seq_q = 3;
  p.max_seq_kv = 200;
  p.head_dim_qk = p.head_dim_v = 64;
  return p;
}

/// What the documentation of DecodeProblem says a query sees.
bool sees(const decode::Window& window, std::int64_t length, std::int64_t position,
          std::int64_t key) {
  const bool all_left = window.left == decode::Window::kUnbounded;
  const bool all_right = window.right == decode::Window::kUnbounded;
  return key < length && (all_right || key <= position + window.right) &&
         (all_left || key >= position - window.left || key < window.sink_tokens);
}

TEST(DecodeSchedule, WalksExactlyTheTilesThatSomeQuerySees) {
  constexpr int kAll = decode::Window::kUnbounded;
  for (const decode::Window& window : {decode::Window{kAll, 0, 0},
                                       {kAll, kAll, 0},
                                       {0, 0, 0},
                                       {50, 0, 4},
                                       {100, 7, 64},
                                       {3, kAll, 70},
                                       {20, 5, 500}})
    for (const int length : {0, 1, 2, 63, 64, 65, 300})
      for (const int seq_q : {1, 3, 16})
        for (const int tile_keys : {16, 64}) {
          const decode::KeyRange keys = decode::visible_keys(window, length, seq_q);
          const decode::TileSpan span = decode::tiles_of(keys, tile_keys);
          std::vector<int> visits(static_cast<std::size_t>(length / tile_keys + 1), 0);
          for (int i = 0; i < span.count; ++i) ++visits[static_cast<std::size_t>(span.tile(i))];
          int seen_tiles = 0;
          for (int tile = 0; tile <= length / tile_keys; ++tile) {
            bool seen = false;
            for (int key = tile * tile_keys; key < (tile + 1) * tile_keys; ++key) {
              bool any = false;
              for (int q = 0; q < seq_q; ++q) {
                const int position = decode::first_position(length, seq_q) + q;
                const bool visible = sees(window, length, position, key);
                any |= visible;
                EXPECT_EQ(key <= decode::last_key(window, position, length) &&
                              (key >= decode::first_key(window, position) || key < keys.sinks),
                          visible)
                    << "length " << length << " position " << position << " key " << key;
              }
              EXPECT_LE(any, keys.contains(key));  // what is seen is loaded
              seen |= any;
            }
            seen_tiles += seen;
            EXPECT_LE(seen ? 1 : 0, visits[static_cast<std::size_t>(tile)]);
            EXPECT_LE(visits[static_cast<std::size_t>(tile)], 1) << "tile " << tile << " twice";
          }
          // Between the sinks and the window nothing is read; no sequence goes without a tile.
          EXPECT_EQ(span.count, std::max(1, seen_tiles)) << "length " << length;
        }
}

TEST(DecodeSchedule, CutsTheTilesIntoEqualPiecesWithoutEmptyOnes) {
  for (const std::int64_t total : {1ll, 5ll, 263ll, 264ll, 10000ll, 40000ll, 3'000'000'000'000ll}) {
    const decode::Partition partition = decode::partition_tiles(total, 264, 4);
    EXPECT_EQ(partition.begin(0), 0);
    EXPECT_EQ(partition.begin(partition.blocks), total);
    EXPECT_LE(partition.blocks, 4 * 264);
    std::int64_t shortest = total, longest = 0;
    for (int block = 0; block < partition.blocks; ++block) {
      const std::int64_t begin = partition.begin(block), end = partition.begin(block + 1);
      shortest = std::min(shortest, end - begin);
      longest = std::max(longest, end - begin);
      EXPECT_EQ(partition.owner(begin), block);
      EXPECT_EQ(partition.owner(end - 1), block);
    }
    EXPECT_GE(shortest, 1);
    EXPECT_LE(longest, shortest + 1);
  }
  EXPECT_EQ(decode::partition_tiles(264 * 32 * 2, 264, 4).blocks, 2 * 264);
}

TEST(DecodeLists, ShowWhatTheMaskShowsAndSkipTheRest) {
  using namespace stof::mask;
  const DecodeProblem p = small_problem();
  const codegen::DecodeConfig config = decode_config(p, true, 9, 0, 132);
  const std::int64_t group = p.num_heads_q / p.num_heads_kv;
  std::vector<Mask> heads;
  for (std::int64_t h = 0; h < p.num_heads_q; ++h) heads.push_back(h % 3 ? causal() : window(h, 2));
  for (const Mask& mask : {all(), causal(), none(), window(30, 0) | global(0, 5),
                           random_elements(0.1, 3), per_head(heads), key_lengths({70, 200})}) {
    const Mask bound =
        mask.bind({p.batch, p.num_heads_q, p.seq_q, p.max_seq_kv}, Alignment::kBottomRight);
    const DecodeLists lists = build_decode_lists(p, bound, config);
    const auto payload_rows = static_cast<std::size_t>(config.rows());
    for (std::int64_t s = 0; s < p.batch * p.num_heads_kv; ++s) {
      const auto index = static_cast<std::size_t>(s);
      const std::int64_t count = lists.sequence_begin[index + 1] - lists.sequence_begin[index];
      ASSERT_GE(count, 1);
      std::vector<int> shown(static_cast<std::size_t>(group * p.seq_q * p.max_seq_kv), 0);
      for (std::int64_t i = 0; i < count; ++i) {
        const ListedTile tile = lists.tiles[static_cast<std::size_t>(lists.list_begin[index] + i)];
        bool shows = false;
        for (std::int64_t row = 0; row < group * p.seq_q; ++row)
          for (std::int64_t k = 0; k < config.tile_keys; ++k) {
            const std::int64_t key = tile.tile * config.tile_keys + k;
            const bool bit = tile.payload < 0 ||
                             (lists.payloads[static_cast<std::size_t>(tile.payload) * payload_rows +
                                             static_cast<std::size_t>(row)] >>
                                  k &
                              1);
            if (!bit || key >= p.max_seq_kv) continue;
            shows = true;
            ++shown[static_cast<std::size_t>(row * p.max_seq_kv + key)];
          }
        EXPECT_TRUE(shows || count == 1) << "an empty tile is listed";
      }
      for (std::int64_t row = 0; row < group * p.seq_q; ++row)
        for (std::int64_t key = 0; key < p.max_seq_kv; ++key)
          ASSERT_EQ(shown[static_cast<std::size_t>(row * p.max_seq_kv + key)],
                    bound.visible(s / p.num_heads_kv, s % p.num_heads_kv * group + row / p.seq_q,
                                  row % p.seq_q, key))
              << mask.describe() << " row " << row << " key " << key;
    }
  }
}

TEST(DecodeConfig, FitsEveryGpuAndRowCount) {
  for (const auto& [major, minor, room] :
       {std::tuple{8, 0, 166912}, {8, 6, 101376}, {8, 9, 101376}, {9, 0, 232448}})
    for (const std::int64_t head_dim : {8, 64, 72, 128, 136, 256})
      for (const std::int64_t heads : {1, 8, 32, 128})
        for (const std::int64_t seq_q : {1, 16})
          for (const bool lists : {false, true}) {
            DecodeProblem p = small_problem();
            p.num_heads_kv = 1, p.num_heads_q = heads, p.seq_q = seq_q;
            p.head_dim_qk = p.head_dim_v = head_dim;
            const codegen::DecodeConfig config = decode_config(p, lists, major, minor, 132);
            EXPECT_NO_THROW(config.validate()) << config.name();
            EXPECT_LE(config.shared_bytes(), room) << config.name();
            const DecodeGrid grid = decode_grid(p, config, 132);
            EXPECT_GE(grid.row_blocks * config.rows(), heads * seq_q);
            EXPECT_LE(grid.blocks(), codegen::kDecodeMaxBlocks);
          }
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(DecodeProblem, ErrorsNameFieldExpectedAndGot) {
  const auto with = [](const std::function<void(DecodeProblem&)>& change) {
    DecodeProblem p = small_problem();
    change(p);
    return message_of([&] { p.validate(); });
  };
  EXPECT_EQ(with([](DecodeProblem&) {}), "no error");
  EXPECT_NE(
      with([](DecodeProblem& p) { p.seq_q = 17; }).find("seq_q: the decode kernel takes 1 to 16"),
      std::string::npos);
  EXPECT_NE(with([](DecodeProblem& p) { p.page_size = 40; }).find("page_size"), std::string::npos);
  EXPECT_NE(with([](DecodeProblem& p) { p.head_dim_v = 12; }).find("head_dim_v"),
            std::string::npos);
  EXPECT_NE(with([](DecodeProblem& p) { p.window_left = -1; }).find("window_left"),
            std::string::npos);
  EXPECT_NE(with([](DecodeProblem& p) { p.num_heads_kv = 3; }).find("num_heads_kv"),
            std::string::npos);
  EXPECT_NE(with([](DecodeProblem& p) { p.dtype = DType::kFloat32; }).find("dtype"),
            std::string::npos);
}

TEST(DecodeTensors, ErrorsNameTheTensor) {
  DecodeProblem p = small_problem();
  p.page_size = 32;
  p.lengths = true;
  // Addresses are only compared, never read.
  const auto at = [](std::uintptr_t address) { return reinterpret_cast<void*>(address); };
  DecodeTensors good;
  good.q = {at(0x100000), p.dtype, {2, 8, 3, 64}};
  good.k = {at(0x200000), p.dtype, {20, 2, 32, 64}};
  good.v = {at(0x400000), p.dtype, {20, 2, 32, 64}};
  good.out = {at(0x600000), p.dtype, {2, 8, 3, 64}};
  good.lengths = {at(0x700000), DType::kInt32, {2}};
  good.page_table = {at(0x800000), DType::kInt32, {2, 7}};
  const auto with = [&](const std::function<void(DecodeTensors&)>& change) {
    DecodeTensors t = good;
    change(t);
    return message_of([&] { check_decode_tensors(p, t); });
  };
  const auto names = [](const std::string& message, const char* tensor) {
    return message.rfind(tensor, 0) == 0;
  };
  EXPECT_EQ(with([](DecodeTensors&) {}), "no error");
  EXPECT_TRUE(names(with([](DecodeTensors& t) { t.page_table.shape = {2, 6}; }), "page_table: "));
  EXPECT_TRUE(names(with([](DecodeTensors& t) { t.page_table = {}; }), "page_table: "));
  EXPECT_TRUE(names(with([](DecodeTensors& t) { t.lengths.dtype = DType::kInt64; }), "lengths: "));
  EXPECT_TRUE(names(with([](DecodeTensors& t) { t.k.strides = {4096, 2048, 68, 1}; }), "k: "));
  EXPECT_TRUE(names(with([](DecodeTensors& t) { t.v.shape = {20, 2, 16, 64}; }), "v: "));
  EXPECT_TRUE(names(with([&](DecodeTensors& t) { t.out.data = at(0x600008); }), "out: "));
  EXPECT_TRUE(names(with([](DecodeTensors& t) {
                      t.lse = {t.out.data, DType::kFloat32, {2, 8, 3}};
                    }),
                    "lse: "));
}

/// "all", or "7" or "7+3" for windows and sinks, or what is said where the mask is none.
std::string reach_of(const mask::Mask& mask, std::vector<std::int64_t> lengths,
                     std::int64_t rows = 1) {
  graph::CachePages cache;
  cache.lengths = std::move(lengths);
  std::vector<std::int64_t> offsets = {0};
  for (std::size_t i = 0; i < cache.lengths.size(); ++i) offsets.push_back(offsets.back() + rows);
  try {
    const cuda::CacheReach reach = cuda::cache_reach(mask, offsets, cache, 4);
    if (!reach.left) return "all";
    return std::to_string(*reach.left) + (reach.sinks > 0 ? "+" + std::to_string(reach.sinks) : "");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    return error.what();
  }
}

TEST(CacheReach, IsReadOffTheRowsOfAMask) {
  using namespace mask;
  EXPECT_EQ(reach_of(causal(), {1, 100, 3000}, 1), "all");
  const Mask window = causal() & mask::window(7, 0),
             streaming = causal() & (mask::window(7, 0) | sink(3));
  EXPECT_EQ(reach_of(window, {5, 8}, 2), "all");
  EXPECT_EQ(reach_of(window, {5, 9, 400}, 2), "7");
  EXPECT_EQ(reach_of(streaming, {11, 12, 4000}, 3), "7+3");
  EXPECT_EQ(reach_of(streaming, {11}, 1), "all");  // sinks and window meet
  EXPECT_THAT(reach_of(all(), {100}, 2),
              testing::HasSubstr("query at 98 does not see itself last"));
  EXPECT_THAT(reach_of(causal() & dilated(8, 2), {100}, 1), testing::HasSubstr("keys in between"));
  EXPECT_THAT(reach_of(causal() & chunked(16), {100}, 2),
              testing::HasSubstr("other numbers of keys"));
  EXPECT_THAT(reach_of(causal() & key_lengths({4, 90}), {100, 90}, 1),
              testing::HasSubstr("differs between sequences"));
}

}  // namespace
}  // namespace stof::cuda
