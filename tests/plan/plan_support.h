#pragma once
// Reading a MaskPlan pair by pair, and random masks to build plans from.

#include <rapidcheck.h>

#include <string>
#include <utility>
#include <vector>

#include "stof/block_mask.h"
#include "stof/mask.h"
#include "stof/mask_plan.h"

namespace stof::plan {

/// One pattern of a plan as a seq_q x seq_kv array of how often each pair is visited and shown.
inline std::vector<int> draw_pattern(const MaskPlan& plan, std::int32_t pattern) {
  const std::int64_t seq_q = plan.shape.seq_q, seq_kv = plan.shape.seq_kv;
  std::vector<int> shown(static_cast<std::size_t>(seq_q * seq_kv), 0);
  const auto visit = [&](const WorkItem& item, std::int64_t tile, const std::uint64_t* payload) {
    for (std::int64_t i = 0; i < plan.config.tile_q; ++i)
      for (std::int64_t j = 0; j < plan.config.tile_kv; ++j) {
        const std::int64_t q = std::int64_t{item.q_tile} * plan.config.tile_q + i;
        const std::int64_t k = tile * plan.config.tile_kv + j;
        const bool bit =
            payload == nullptr || ((payload[i * plan.words_per_row() + j / 64] >> (j % 64)) & 1);
        if (q < seq_q && k < seq_kv && bit) ++shown[static_cast<std::size_t>(q * seq_kv + k)];
      }
  };
  for (const WorkItem& item : plan.items) {
    if (item.pattern != pattern) continue;
    for (auto i = item.partial_begin; i < item.partial_end; ++i) {
      const PartialTile& tile = plan.partial[static_cast<std::size_t>(i)];
      visit(item, tile.tile, plan.payloads.data() + tile.payload * plan.payload_words());
    }
    for (auto i = item.run_begin; i < item.run_end; ++i)
      for (auto tile = plan.runs[static_cast<std::size_t>(i)].begin;
           tile < plan.runs[static_cast<std::size_t>(i)].end; ++tile)
        visit(item, tile, nullptr);
  }
  return shown;
}

/// A mask of up to two operators over simple primitives, for any lengths.
inline rc::Gen<mask::Mask> any_mask() {
  return rc::gen::exec([] {
    const auto primitive = [] {
      const auto small = [] { return *rc::gen::inRange<std::int64_t>(0, 90); };
      switch (*rc::gen::inRange(0, 9)) {
        case 0:
          return mask::all();
        case 1:
          return mask::none();
        case 2:
          return mask::causal(small() - 45);
        case 3: {
          const std::int64_t left = small();
          return mask::window(left, small());
        }
        case 4:
          return mask::chunked(small() + 1);
        case 5:
          return mask::prefix(small());
        case 6:
          return mask::global(small() / 8, small() / 8);
        case 7:
          return mask::document({small(), small(), small()});
        default: {
          const double rate = *rc::gen::element(0.01, 0.3, 0.97);
          return mask::random_elements(rate, *rc::gen::arbitrary<std::uint64_t>());
        }
      }
    };
    mask::Mask result = primitive();
    for (int i = *rc::gen::inRange(0, 3); i > 0; --i) switch (*rc::gen::inRange(0, 3)) {
        case 0:
          result = result & primitive();
          break;
        case 1:
          result = result | primitive();
          break;
        default:
          result = ~result;
      }
    return result;
  });
}

/// Tile sizes of kernels here and elsewhere, and odd ones.
inline rc::Gen<std::pair<std::int32_t, std::int32_t>> any_tile() {
  using Tile = std::pair<std::int32_t, std::int32_t>;
  return rc::gen::elementOf(std::vector<Tile>{{64, 64},
                                              {128, 128},
                                              {32, 128},
                                              {128, 64},
                                              {64, 128},
                                              {16, 64},
                                              {16, 16},
                                              {96, 64},
                                              {96, 96},
                                              {8, 8},
                                              {8, 512},
                                              {512, 8},
                                              {24, 40},
                                              {200, 72},
                                              {32, 32}});
}

inline MaskPlan build(const mask::Mask& mask, const mask::ScoreShape& shape,
                      const PlanConfig& config = {},
                      mask::Alignment alignment = mask::Alignment::kTopLeft) {
  return build_mask_plan(mask::build_block_mask(mask, shape, alignment), config);
}

}  // namespace stof::plan
