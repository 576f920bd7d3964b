#include "stof/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <nlohmann/json.hpp>

#include "stof/error.h"

namespace stof::simulate {
namespace {

using ::testing::HasSubstr;

mask::BlockMask block_mask(const mask::Mask& mask, std::int64_t seq_q, std::int64_t seq_kv) {
  return mask::build_block_mask(mask, {1, 1, seq_q, seq_kv});
}

/// The whole of one tile, or n of each group of it.
Pattern one_tile(std::int64_t n, std::int64_t group) {
  return uniform_pattern(block_mask(mask::all(), 64, 64), n, group);
}

TEST(Simulate, CountsADenseTileByHand) {
  const Machine machine;
  const Cost cost = attention_cost(machine, one_tile(4, 4), 64, Mode::kDense);
  // Each product: 64 * 64 * 64 MACs by 4 * 512 a cycle = 128; its B operand takes 64 * 64 * 2 / 128
  // = 64 cycles of shared memory. Softmax: 4096 / 16 = 256 for exponentials, 4096 * 6 / 128 = 192
  // for lanes. Half of the shorter hides: 256 + 128.
  EXPECT_DOUBLE_EQ(cost.tensor_cycles, 256);
  EXPECT_DOUBLE_EQ(cost.busy_cycles, 256);
  EXPECT_DOUBLE_EQ(cost.cycles, 384);
  EXPECT_DOUBLE_EQ(cost.longest_cycles, 384);
  EXPECT_DOUBLE_EQ(cost.utilisation(), 1);
  EXPECT_DOUBLE_EQ(cost.macs, 2 * 64 * 64 * 64);
  EXPECT_DOUBLE_EQ(cost.dot_products_pj, 524288 * 0.59);
  // Q and P once: 64 * 64 * 2 bytes each.
  EXPECT_DOUBLE_EQ(cost.registers_pj, 16384 * 0.94);
  // 64 * 64 floats, read and written in each of four steps of 16, in both products.
  EXPECT_DOUBLE_EQ(cost.accumulators_pj, 2 * 4 * 64 * 64 * 8 * 0.94);
  // B of both products, and half of the tile of K and V written: two row tiles share it.
  EXPECT_DOUBLE_EQ(cost.shared_pj, (16384 + 8192) * 1.06);
  EXPECT_DOUBLE_EQ(cost.metadata_pj, 0);
  EXPECT_DOUBLE_EQ(cost.softmax_pj, 4096 * (5 * 8 + 12.0));
  EXPECT_DOUBLE_EQ(cost.l2_pj, 8192 * 8);
  EXPECT_DOUBLE_EQ(cost.dram_pj, 4 * 64 * 64 * 2 * 31);
  EXPECT_DOUBLE_EQ(cost.static_pj, 384 * 600);
  EXPECT_DOUBLE_EQ(cost.total_pj(),
                   cost.tensor_pj() + cost.softmax_pj + cost.l2_pj + cost.dram_pj + cost.static_pj);
}

TEST(Simulate, CountsTodaysSparsityByHand) {
  const Machine machine;
  const Cost cost = attention_cost(machine, one_tile(2, 4), 64, Mode::kSparse24);
  // P V: 64 cycles of dot products and as many of shared memory. Half of the exponentials, but the
  // choice looks at every score: (2048 + 5 * 2048 + 1.5 * 4096) / 128 = 144.
  EXPECT_DOUBLE_EQ(cost.tensor_cycles, 128 + 64);
  EXPECT_DOUBLE_EQ(cost.cycles, 192 + 0.5 * 144);
  EXPECT_DOUBLE_EQ(cost.macs, 1.5 * 64 * 64 * 64);
  // Two bits of each kept weight, and a selection for each of P V's MACs.
  EXPECT_DOUBLE_EQ(cost.metadata_pj, 64 * 32 * 2 / 8 * 0.94 + 64 * 64 * 64 / 2 * 0.03);
  // Three of four do not fit: dense, and the choice was in vain.
  const Cost dense = attention_cost(machine, one_tile(3, 4), 64, Mode::kSparse24);
  EXPECT_DOUBLE_EQ(dense.tensor_cycles, 256);
  EXPECT_DOUBLE_EQ(dense.cycles, 256 + 0.5 * 256);
}

TEST(Simulate, CountsTheExtensionByHand) {
  Machine machine;
  const Cost cost = attention_cost(machine, one_tile(1, 4), 64, Mode::kExtension);
  // Each product: 32 cycles of dot products, but the whole of K and V is read: 64 of shared memory.
  EXPECT_DOUBLE_EQ(cost.busy_cycles, 64);
  EXPECT_DOUBLE_EQ(cost.tensor_cycles, 128);
  EXPECT_DOUBLE_EQ(cost.utilisation(), 0.5);
  EXPECT_DOUBLE_EQ(cost.cycles, 128 + 0.5 * 64);
  EXPECT_DOUBLE_EQ(cost.macs, 64 * 64 * 64 / 2);
  // Two bits of each kept score, in both products.
  EXPECT_DOUBLE_EQ(cost.metadata_pj, 2 * 64 * 16 * 2 / 8 * 0.94 + 64 * 64 * 64 / 2 * 0.03);
  EXPECT_DOUBLE_EQ(cost.registers_pj, (8192 + 2048) * 0.94);
  machine.shared_ports = 2;
  EXPECT_DOUBLE_EQ(attention_cost(machine, one_tile(1, 4), 64, Mode::kExtension).tensor_cycles, 64);
}

TEST(Simulate, WaitsForTheFullestStrip) {
  // Queries 0 to 15 see every key, the others one of four: the tile takes what a full one takes.
  const mask::Mask uneven = mask::parse("global(16, 0) | strided(0, 4)");
  const Pattern pattern = pattern_of(block_mask(uneven, 64, 64), 0, 0, 4);
  EXPECT_EQ(pattern.tiles.at(0).of_group[0][1], 4);
  EXPECT_EQ(pattern.tiles.at(0).of_group[1][1], 1);
  const Cost cost = attention_cost({}, pattern, 64, Mode::kExtension);
  EXPECT_DOUBLE_EQ(cost.tensor_cycles, 256);
  EXPECT_DOUBLE_EQ(cost.busy_cycles, 2 * (128 + 3 * 32) / 4.0);
}

TEST(Simulate, ReadsOperandsOfRegisterInstructions) {
  Machine machine;
  machine.operands = Operands::kRegisters;
  // mma m16n8k16: 512 bytes of A, 256 of B and 512 of C are read, 256 a cycle, and one cycle more.
  EXPECT_DOUBLE_EQ(cycles_per_mac(machine, false, 0, false), 6.0 / (4 * 2048));
  // m16n8k32 sparse: twice B, and a cycle of metadata.
  EXPECT_DOUBLE_EQ(cycles_per_mac(machine, true, 0, false), 8.0 / (4 * 4096));
  // A strip: 8 key columns of 8, 4 depths of 16: 32 instructions of 6 cycles, in each product. Each
  // strip loads B for itself, by 4 * 64 cycles of shared memory: more than that.
  EXPECT_DOUBLE_EQ(attention_cost(machine, one_tile(4, 4), 64, Mode::kDense).tensor_cycles, 512);
  machine.shared_bytes_per_cycle = 1024;
  const Cost cost = attention_cost(machine, one_tile(4, 4), 64, Mode::kDense);
  EXPECT_DOUBLE_EQ(cost.tensor_cycles, 2 * 32 * 6.0);
  // P V with 2:4: 16 instructions of 8 cycles.
  const Cost sparse = attention_cost(machine, one_tile(2, 4), 64, Mode::kSparse24);
  EXPECT_DOUBLE_EQ(sparse.tensor_cycles, 32 * 6.0 + 16 * 8.0);
  machine.mma_issue_cycles = 0;
  EXPECT_DOUBLE_EQ(cycles_per_mac(machine, false, 0, false), 5.0 / (4 * 2048));
}

TEST(Simulate, TellsWhatLimitsWgmma) {
  const Machine machine;
  EXPECT_DOUBLE_EQ(cycles_per_mac(machine, false, 128, true), 64.0 / (64 * 128 * 16));
  EXPECT_DOUBLE_EQ(cycles_per_mac(machine, true, 128, false), 64.0 / (64 * 128 * 32));
  // B of 128 x 32 and A of 64 x 16: (8192 + 2048) / 128 bytes a cycle.
  EXPECT_DOUBLE_EQ(cycles_per_mac(machine, true, 128, true), 80.0 / (64 * 128 * 32));
  EXPECT_THROW(cycles_per_mac(machine, true, 4, true), Error);
}

TEST(Simulate, AddsALayersOtherProducts) {
  const Machine machine;
  const LayerShape layer{"tiny", 2, 1, 64, 128, 256, 3};
  const Cost cost = products_cost(machine, layer, 64);
  // Weights of Q and the output 128 x 128, of K and V 128 x 64, three of 128 x 256.
  const double weights = 2 * 128 * 128 + 2 * 128 * 64 + 3 * 128 * 256;
  EXPECT_DOUBLE_EQ(cost.macs, 64 * weights);
  EXPECT_DOUBLE_EQ(cost.cycles, 64 * weights / 2048 / 0.8);
  EXPECT_DOUBLE_EQ(cost.dram_pj,
                   2 * (weights + 64 * (4 * 128 + 2 * 128 + 2 * 64 + 3 * (128 + 256))) * 31);
  const std::vector<Pattern> patterns = {one_tile(4, 4)};
  const LayerCost whole = layer_cost(machine, layer, patterns, Mode::kDense);
  // Two tiles do not fill 132 SMs: the layer waits for one.
  EXPECT_DOUBLE_EQ(whole.cycles, 384 + cost.cycles / 132);
  EXPECT_DOUBLE_EQ(whole.total_pj, whole.attention.total_pj() + cost.total_pj());
}

mask::Mask random_bits(double density) {
  return mask::random_elements(density, static_cast<std::uint64_t>(*rc::gen::inRange(0, 1 << 20)));
}

RC_GTEST_PROP(Simulate, MoreZerosNeverCostMoreCycles, ()) {
  const std::int64_t seq_q = *rc::gen::resize(100, rc::gen::inRange(1, 150));
  const std::int64_t seq_kv = *rc::gen::resize(100, rc::gen::inRange(1, 150));
  const std::int64_t group = std::int64_t{2} << *rc::gen::resize(100, rc::gen::inRange(0, 5));
  const double density = *rc::gen::element(0.02, 0.3, 0.9, 1.0);
  const mask::Mask more = random_bits(density);
  const mask::Mask fewer = more & (random_bits(*rc::gen::element(0.05, 0.5, 0.95)) |
                                   mask::block_window(64, *rc::gen::element(0, 1), 0));
  const Pattern a = pattern_of(block_mask(fewer, seq_q, seq_kv), 0, 0, group);
  const Pattern b = pattern_of(block_mask(more, seq_q, seq_kv), 0, 0, group);
  for (const Operands operands : {Operands::kShared, Operands::kRegisters})
    for (const Mode mode : {Mode::kDense, Mode::kSparse24, Mode::kExtension}) {
      Machine machine;
      machine.operands = operands;
      machine.overlap = *rc::gen::element(0.0, 0.5, 1.0);
      const std::int64_t dim = *rc::gen::element(8, 64, 128);
      const Cost less = attention_cost(machine, a, dim, mode);
      const Cost all = attention_cost(machine, b, dim, mode);
      RC_ASSERT(less.cycles <= all.cycles * (1 + 1e-12));
      RC_ASSERT(less.longest_cycles <= all.longest_cycles * (1 + 1e-12));
      RC_ASSERT(less.macs <= all.macs);
    }
}

RC_GTEST_PROP(Pattern, CountsWhatEachInstructionKeeps, ()) {
  const std::int64_t seq_q = *rc::gen::resize(100, rc::gen::inRange(1, 130));
  const std::int64_t seq_kv = *rc::gen::resize(100, rc::gen::inRange(1, 130));
  const std::int64_t group = std::int64_t{2} << *rc::gen::resize(100, rc::gen::inRange(0, 5));
  const std::int64_t n = *rc::gen::inRange<std::int64_t>(1, group + 1);
  const mask::BlockMask blocks = block_mask(random_bits(0.4) | mask::chunked(64), seq_q, seq_kv);
  for (const std::int64_t keeps : {group, n}) {
    const Pattern pattern = uniform_pattern(blocks, keeps, group);
    std::int64_t pairs = 0;
    std::size_t next = 0;
    for (std::int64_t row = 0; row * 64 < seq_q; ++row)
      for (std::int64_t col = 0; col * 64 < seq_kv; ++col) {
        int most[kStrips][kSteps] = {}, of_four[kStrips][kSteps] = {}, here = 0;
        for (std::int64_t q = row * 64; q < std::min(row * 64 + 64, seq_q); ++q) {
          int kept[64] = {};
          for (std::int64_t first = col * 64; first < col * 64 + 64; first += group)
            for (std::int64_t k = first, taken = 0; k < std::min(first + group, seq_kv); ++k)
              if (taken < keeps && blocks.visible(0, 0, q, k)) kept[k - col * 64] = 1, ++taken;
          for (std::int64_t k = 0; k < 64; ++k) {
            here += kept[k];
            int groups = 0, fours = 0;
            for (std::int64_t i = k / group * group; i < (k / group + 1) * group; ++i)
              groups += kept[i];
            for (std::int64_t i = k / 4 * 4; i < k / 4 * 4 + 4; ++i) fours += kept[i];
            int& m = most[(q - row * 64) / 16][k / 32];
            int& f = of_four[(q - row * 64) / 16][k / 32];
            m = std::max(m, groups);
            f = std::max(f, fours);
          }
        }
        pairs += here;
        if (here == 0) continue;
        RC_ASSERT(next < pattern.tiles.size());
        const PatternTile& tile = pattern.tiles[next++];
        RC_ASSERT(tile.row == row && tile.col == col && tile.pairs == here);
        for (int strip = 0; strip < kStrips; ++strip)
          for (int step = 0; step < kSteps; ++step) {
            RC_ASSERT(int{tile.of_group[strip][step]} == most[strip][step]);
            RC_ASSERT(int{tile.of_four[strip][step]} == of_four[strip][step]);
          }
      }
    RC_ASSERT(next == pattern.tiles.size());
    RC_ASSERT(pattern.visible_pairs() == pairs);
  }
}

TEST(Simulation, ComparesWithTheDenseMachineUnderTheBase) {
  const mask::BlockMask causal = block_mask(mask::causal(), 256, 256);
  const std::vector<Pattern> base = {pattern_of(causal, 0, 0, 4)};
  const LayerShape& bert = model_shapes().at(3);
  const Simulation s = simulate({}, bert, {uniform_pattern(causal, 1, 4)}, base);
  EXPECT_NEAR(s.kept_fraction, 0.25, 0.01);
  ASSERT_EQ(s.modes.size(), 3U);
  EXPECT_DOUBLE_EQ(s.modes[0].speed_up, 1);  // dense hardware can't use it
  EXPECT_DOUBLE_EQ(s.modes[0].saving, 0);
  EXPECT_GT(s.modes[2].speed_up, s.modes[1].speed_up);
  EXPECT_GT(s.modes[2].attention_speed_up, s.modes[2].speed_up);
  EXPECT_GT(s.modes[2].tensor_saving, s.modes[2].saving);
  const auto json = nlohmann::json::parse(s.to_json());
  EXPECT_EQ(json["modes"][2]["mode"], "extension");
  EXPECT_DOUBLE_EQ(json["base"]["cycles"], s.base.cycles);
  EXPECT_DOUBLE_EQ(json["constants"]["mac_pj"], 0.59);
  EXPECT_THAT(s.to_svg(), HasSubstr("extension, pruned"));
  EXPECT_THAT(s.to_svg(), HasSubstr("bert-base: 256 queries"));
}

TEST(Simulation, FeelsEveryConstant) {
  const mask::BlockMask all = block_mask(mask::all(), 512, 512);
  const std::vector<Pattern> base = {pattern_of(all, 0, 0, 4)}, half = {uniform_pattern(all, 2, 4)};
  for (const Constant& constant : constants()) {
    bool felt = false;
    for (const Operands operands : {Operands::kShared, Operands::kRegisters})
      for (const double factor : {0.2, 5.0}) {
        Machine machine;
        machine.operands = operands;
        Machine changed = machine;
        changed.*constant.value = std::min(
            changed.*constant.value * factor,
            constant.value == &Machine::overlap || constant.value == &Machine::gemm_utilisation
                ? 1.0
                : 1e9);
        const auto figures = [&](const Machine& m) {
          auto json =
              nlohmann::json::parse(simulate(m, model_shapes().at(3), half, base).to_json());
          json.erase("constants");
          return json;
        };
        felt |= figures(machine) != figures(changed);
      }
    EXPECT_TRUE(felt) << constant.name;
    EXPECT_STRNE(constant.source, "") << constant.name;
  }
  const std::vector<Sensitivity> moved = sensitivities({}, model_shapes().at(3), half, base);
  ASSERT_EQ(moved.size(), constants().size());
  for (const Sensitivity& s : moved) {
    if (std::string_view(s.constant->name) != "mac_pj") continue;
    EXPECT_LT(s.saving[0], s.saving[1]);
  }
}

TEST(Simulation, RefusesByName) {
  const auto message = [](const auto& action) -> std::string {
    try {
      action();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  Machine machine;
  EXPECT_THAT(message([&] { set_constant(machine, "mac_p=1"); }),
              HasSubstr("did you mean \"mac_pj\""));
  EXPECT_THAT(message([&] { set_constant(machine, "mac_pj"); }), HasSubstr("expected NAME=NUMBER"));
  EXPECT_THAT(message([&] { set_constant(machine, "mac_pj=x"); }),
              HasSubstr("mac_pj: expected a number"));
  EXPECT_THAT(message([&] { set_constant(machine, "num_sms=0"); }),
              HasSubstr("num_sms: expected a number above 0"));
  EXPECT_THAT(message([&] { set_constant(machine, "overlap=2"); }), HasSubstr("at most 1"));
  const mask::BlockMask all = block_mask(mask::all(), 64, 64);
  EXPECT_THAT(message([&] { pattern_of(all, 0, 0, 3); }), HasSubstr("group: expected M of 2"));
  EXPECT_THAT(message([&] { uniform_pattern(all, 5, 4); }), HasSubstr("n: expected 1 to 4"));
  EXPECT_THAT(message([&] { pattern_of(all, 0, 1, 4); }),
              HasSubstr("expected a batch entry and head"));
  const std::vector<Pattern> two(2, pattern_of(all, 0, 0, 4));
  EXPECT_THAT(message([&] { simulate(machine, model_shapes().at(3), two, two); }),
              HasSubstr("expected 1 pattern or one for each of 12 heads"));
}

}  // namespace
}  // namespace stof::simulate
