// The kernels that choose key blocks (kernels/prune), run on the CPU thread by thread, against the
// CPU's pruner: the same blocks, whatever the scores.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "emulated/machine.h"
// The kernels' own headers after the machine's built-ins.
#include "backend/cuda/prune/block_params.h"
#include "backend/cuda/prune/block_plan.h"
#include "codegen/prune.h"
#include "jit/nvrtc.h"
#include "prune/choose_blocks.cuh"
#include "prune/pool_blocks.cuh"
#include "stof/error.h"

namespace stof {

namespace prune {
alignas(16) unsigned char shared[32 * 1024];  // what the kernel calls its dynamic shared memory
}

namespace cuda {
namespace {

template <int kDim, bool kMax>
struct Config {
  using Element = ptx::BFloat16;
  static constexpr int kHeadDim = kDim;
  static constexpr bool kMaxPooling = kMax;
};

/// Contiguous bfloat16 [batch, heads, rows, dim] on a multiple of 16 bytes, and its values.
struct Values {
  std::vector<BFloat16> bits;
  std::vector<float> values;
  Dims shape;

  Values(const Dims& dims, std::mt19937& random) : shape(dims) {
    std::normal_distribution<float> normal;
    for (std::int64_t i = 0; i < num_elements(dims); ++i)
      set(i, std::round(2 * normal(random)) / 2, true);  // few values: equal scores
  }
  void set(std::int64_t i, float value, bool is_new = false) {
    if (is_new) bits.emplace_back(), values.emplace_back();
    bits[static_cast<std::size_t>(i)] = BFloat16(value);
    values[static_cast<std::size_t>(i)] = value;
  }
};

template <int kDim, bool kMax>
void check(AttentionProblem p, const std::string& settings, const mask::Mask& base,
           bool odd_values = false) {
  SCOPED_TRACE(settings + " " + base.describe());
  p.head_dim_qk = p.head_dim_v = kDim;
  p.dtype = DType::kBFloat16;
  std::mt19937 random(3);
  Values q({p.batch, p.num_heads_q, p.seq_q, kDim}, random);
  Values k({p.batch, p.num_heads_kv, p.seq_kv, kDim}, random);
  if (odd_values) {  // NaN in a key, infinities of both signs in others, a query of zeros
    k.set(3 * kDim + 1, std::nanf(""));
    k.set((p.seq_kv - 2) * kDim, HUGE_VALF);
    k.set((p.seq_kv / 2) * kDim, -HUGE_VALF);
    for (int d = 0; d < kDim; ++d) q.set(d, 0);
  }
  const auto pruner = mask::Pruner::parse(settings);
  const mask::PruneInput input{{q.values.data(), DType::kFloat32, q.shape},
                               {k.values.data(), DType::kFloat32, k.shape},
                               0,
                               base,
                               p.alignment};
  const mask::PrunedMask expected = mask::prune(input, pruner, 1);

  const BlockPrunePlan plan = plan_block_prune(p, pruner.heads[0], base);
  codegen::BlockPruneConfig config;
  config.head_dim = kDim;
  prune::BlockParams params{};
  static_assert(sizeof(params) == sizeof(BlockPruneParams));
  const auto floats = [&](std::int64_t heads, std::int64_t blocks) {
    return std::vector<float>(static_cast<std::size_t>(p.batch * heads * blocks * kDim),
                              std::nanf(""));
  };
  std::vector<float> pooled_q = floats(p.num_heads_q, plan.q_blocks);
  std::vector<float> pooled_k = floats(p.num_heads_kv, plan.kv_blocks);
  const std::int64_t rows = p.batch * p.num_heads_q * plan.q_blocks;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(rows * plan.max_kept), -7);
  params.q = q.bits.data();
  params.k = k.bits.data();
  for (int i = 0; i < 3; ++i) {
    params.q_strides[i] = contiguous_strides(q.shape)[i];
    params.k_strides[i] = contiguous_strides(k.shape)[i];
  }
  params.pooled_q = pooled_q.data();
  params.pooled_k = pooled_k.data();
  params.used_q = plan.used_q.data();
  params.used_k = plan.used_k.data();
  params.states = plan.states.data();
  params.kept = plan.kept.data();
  params.ids = ids.data();
  params.batch = static_cast<int>(p.batch);
  params.heads_q = static_cast<int>(p.num_heads_q);
  params.heads_kv = static_cast<int>(p.num_heads_kv);
  params.seq_q = static_cast<int>(p.seq_q);
  params.seq_kv = static_cast<int>(p.seq_kv);
  params.block = static_cast<int>(pruner.heads[0].block);
  params.q_blocks = static_cast<int>(plan.q_blocks);
  params.kv_blocks = static_cast<int>(plan.kv_blocks);
  params.max_kept = plan.max_kept;
  params.scale = 1 / std::sqrt(static_cast<float>(kDim));
  const auto at_once = config.pooled_at_once();
  const auto blocks_for = [&](std::int64_t jobs) { return (jobs + at_once - 1) / at_once; };
  params.pool_blocks_q = static_cast<int>(blocks_for(rows));
  const auto launch = [](std::int64_t blocks, int threads, int shared_bytes, const auto& body) {
    gridDim.x = static_cast<unsigned>(blocks);
    for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x)
      emulated::machine.run(threads, prune::shared, static_cast<std::size_t>(shared_bytes),
                            emulated::CopiesLand::kLate, body);
  };
  launch(params.pool_blocks_q + blocks_for(p.batch * p.num_heads_kv * plan.kv_blocks),
         prune::kPoolThreads, 16, [&] { prune::pool_blocks<Config<kDim, kMax>>(params); });
  launch(p.batch * p.num_heads_q * ((plan.q_blocks + prune::kChooseRows - 1) / prune::kChooseRows),
         prune::kChooseThreads, config.choose_shared_bytes(),
         [&] { prune::choose_blocks<Config<kDim, kMax>>(params); });

  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t b = row / (p.num_heads_q * plan.q_blocks);
    const std::int64_t h = row / plan.q_blocks % p.num_heads_q, block = row % plan.q_blocks;
    const std::int64_t side = params.block, end = std::min((block + 1) * side, p.seq_q);
    std::vector<std::int32_t> want;
    for (std::int64_t col = 0; col < plan.kv_blocks; ++col) {
      bool any = false;
      for (std::int64_t i = block * side; i < end; ++i)
        for (std::int64_t j = col * side; j < std::min((col + 1) * side, p.seq_kv); ++j)
          any = any || expected.mask.visible(b, h, i, j);
      if (any) want.push_back(static_cast<std::int32_t>(col));
    }
    const auto count = plan.kept[static_cast<std::size_t>(block)];
    const auto first = ids.begin() + row * plan.max_kept;
    ASSERT_EQ(std::vector<std::int32_t>(first, first + count), want)
        << "batch " << b << " head " << h << " query block " << block;
    for (auto rest = first + count; rest != first + plan.max_kept; ++rest) ASSERT_EQ(*rest, -7);
  }
}

AttentionProblem problem_of(std::int64_t seq_q, std::int64_t seq_kv) {
  AttentionProblem p;
  p.batch = 2;
  p.num_heads_q = 2;
  p.num_heads_kv = 1;
  p.seq_q = seq_q;
  p.seq_kv = seq_kv;
  return p;
}

TEST(BlockPruneEmulated, ChoosesWhatTheCpuPrunerDoes) {
  check<32, false>(problem_of(53, 53), "block_topk(0.4, block=4)", mask::causal());
  check<24, true>(problem_of(50, 90), "block_topk(0.3, block=8, pool=max, sinks=2, local=0)",
                  mask::all());
  AttentionProblem last = problem_of(14, 263);  // more key blocks than threads
  last.alignment = mask::Alignment::kBottomRight;
  check<16, false>(last, "block_topk(0.2, block=1, local=2)", mask::window(50, 4));
  check<16, false>(problem_of(64, 64), "block_topk(1, block=16)", mask::document({30, 34}));
}

TEST(BlockPruneEmulated, OrdersNanInfinitiesAndEqualScores) {
  for (const char* settings :
       {"block_topk(0.4, block=4, sinks=0, local=0)", "block_topk(0.9, block=4, sinks=0, local=0)"})
    check<16, false>(problem_of(30, 60), settings, mask::all(), true);
  check<16, true>(problem_of(30, 60), "block_topk(0.6, block=4, pool=max, sinks=0, local=0)",
                  mask::random_elements(0.1, 3), true);
}

TEST(BlockPruneEmulated, RefusesByName) {
  const AttentionProblem p = problem_of(64, 8192);
  const auto message = [&](const std::string& settings, const mask::Mask& base) -> std::string {
    try {
      AttentionProblem own = p;
      own.head_dim_qk = own.head_dim_v = 64;
      plan_block_prune(own, mask::Pruner::parse(settings).heads[0], base);
      lists_are_causal(own, mask::Pruner::parse(settings).heads[0], base);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_NE(message("mass(0.5)", mask::all()).find("method: "), std::string::npos);
  EXPECT_NE(message("block_topk(0.5, block=1)", mask::all()).find("block: "), std::string::npos);
  const auto by_head = mask::per_head({mask::all(), mask::causal()});
  EXPECT_NE(message("block_topk(0.5)", by_head).find("base: "), std::string::npos);
  // Lists would show what these hide.
  for (const mask::Mask& base :
       {mask::window(50, 4), mask::document({30, 34}), mask::causal() & mask::window(20, 0)})
    EXPECT_NE(message("block_topk(0.5)", base).find("base: expected one that shows whole blocks"),
              std::string::npos)
        << base.describe();
}

TEST(BlockPruneLists, AreCausalWhereTheBaseIs) {
  AttentionProblem p = problem_of(128, 256);
  p.head_dim_qk = p.head_dim_v = 64;
  p.alignment = mask::Alignment::kBottomRight;
  const auto settings = mask::Pruner::parse("block_topk(0.5)").heads[0];
  EXPECT_TRUE(lists_are_causal(p, settings, mask::causal()));
  EXPECT_FALSE(lists_are_causal(p, settings, mask::all()));
  EXPECT_FALSE(lists_are_causal(p, settings, mask::document({64, 64})));
}

TEST(BlockPruneBuild, CompilesWithoutSpills) {
  for (const char* target : {"sm_80", "sm_89", "sm_90a"}) {
    codegen::BlockPruneConfig config;
    config.max_pooling = target == std::string("sm_89");
    for (const auto& text : {emit_pool_blocks(config), emit_choose_blocks(config)}) {
      const auto report =
          jit::parse_resources(jit::Nvrtc::instance().compile("prune", text, target).log);
      EXPECT_GT(report.registers, 0) << target;
      EXPECT_EQ(report.spill_bytes, 0) << target;
      EXPECT_EQ(report.stack_bytes, 0) << target;
    }
  }
}

}  // namespace
}  // namespace cuda
}  // namespace stof
