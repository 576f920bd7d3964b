// The row-wise kernel's own source, run on the CPU thread by thread (emulated/machine.h), on lists
// as the host makes them, against a reference in double.

#include <gtest/gtest.h>

#include "attention/rowwise/kernel.cuh"
#include "backend/cuda/attention/rowwise_lists.h"
#include "codegen/rowwise.h"
#include "emulated/operand.h"

namespace stof {

namespace rowwise {
alignas(1024) unsigned char shared[160 * 1024];  // what the kernel calls its shared memory
}

namespace cuda {
namespace {

using emulated::CopiesLand;

template <int kQk, int kV, int kWide, int kRing, bool kCap>
struct EmulatedConfig {
  using Element = ptx::BFloat16;
  static constexpr int kHeadDimQk = kQk, kHeadDimV = kV, kWarps = kWide, kStages = kRing;
  static constexpr bool kSoftcap = kCap, kEarlyStart = true;

  static codegen::RowwiseConfig host() {
    codegen::RowwiseConfig config;
    config.head_dim_qk = kQk, config.head_dim_v = kV;
    config.warps = kWide, config.stages = kRing;
    config.validate();
    return config;
  }
};

template <class Config>
void check(std::int64_t seq_q, std::int64_t seq_kv, const mask::Mask& mask, CopiesLand copies) {
  SCOPED_TRACE(mask.describe());
  using D = rowwise::Derived<Config>;
  constexpr std::int64_t kHeads = 2, kHeadsKv = 1;
  constexpr float kCap = 20;
  AttentionProblem problem;
  problem.num_heads_q = kHeads, problem.num_heads_kv = kHeadsKv;
  problem.seq_q = seq_q, problem.seq_kv = seq_kv;
  problem.head_dim_qk = Config::kHeadDimQk, problem.head_dim_v = Config::kHeadDimV;
  const mask::ScoreShape shape{1, kHeads, seq_q, seq_kv};
  const mask::Mask bound = mask.bind(shape);
  const auto lists = build_rowwise_lists(problem, build_block_mask(bound, shape), 10000);
  ASSERT_TRUE(lists);

  std::mt19937 random(3);
  Operand16<BFloat16> q(1, kHeads, seq_q, Config::kHeadDimQk, random),
      k(1, kHeadsKv, seq_kv, Config::kHeadDimQk, random),
      v(1, kHeadsKv, seq_kv, Config::kHeadDimV, random),
      out(1, kHeads, seq_q, Config::kHeadDimV, random);
  out.clear();
  std::vector<float> lse(static_cast<std::size_t>(kHeads * seq_q), std::nanf(""));
  rowwise::RowwiseParams params{};
  params.q = q.data(), params.k = k.data(), params.v = v.data(), params.out = out.data();
  params.lse = lse.data();
  params.items = reinterpret_cast<const rowwise::RowItem*>(lists->items.data());
  params.chunks = reinterpret_cast<const rowwise::KeyChunk*>(lists->chunks.data());
  params.columns = lists->columns.data(), params.bits = lists->bits.data();
  for (int i = 0; i < 3; ++i) {
    params.q_strides[i] = q.strides()[i], params.k_strides[i] = k.strides()[i];
    params.v_strides[i] = v.strides()[i], params.out_strides[i] = out.strides()[i];
  }
  params.num_heads_q = kHeads, params.group = kHeads / kHeadsKv;
  params.seq_q = static_cast<int>(seq_q), params.seq_kv = static_cast<int>(seq_kv);
  params.scale = 1.0f / std::sqrt(static_cast<float>(Config::kHeadDimQk));
  params.softcap = kCap;
  static_assert(D::kSharedBytes <= sizeof(rowwise::shared));
  ASSERT_EQ(D::kSharedBytes, Config::host().shared_bytes());
  gridDim.x = static_cast<unsigned>(lists->items.size());
  for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x)
    emulated::machine.run(D::kThreads, rowwise::shared, D::kSharedBytes, copies,
                          [&] { rowwise::rowwise_kernel<D>(params); });

  double difference = 0, norm = 0;
  for (std::int64_t h = 0; h < kHeads; ++h)
    for (std::int64_t i = 0; i < seq_q; ++i) {
      const ReferenceRow want(
          seq_kv, Config::kHeadDimQk, Config::kHeadDimV, Config::kSoftcap ? kCap : 0, -HUGE_VAL,
          [&](std::int64_t j) { return bound.visible(0, h, i, j) ? 0 : -HUGE_VAL; },
          [&](std::int64_t d) { return q.get(0, h, i, d); },
          [&](std::int64_t j, std::int64_t d) { return k.get(0, 0, j, d); },
          [&](std::int64_t j, std::int64_t d) { return v.get(0, 0, j, d); });
      const float got_lse = lse[static_cast<std::size_t>(h * seq_q + i)];
      if (want.lse == -HUGE_VAL)
        ASSERT_EQ(got_lse, -HUGE_VALF) << h << " " << i;
      else
        ASSERT_NEAR(got_lse, want.lse, 1e-4) << h << " " << i;
      for (std::int64_t d = 0; d < Config::kHeadDimV; ++d) {
        const double got = out.get(0, h, i, d), expected = want.out[static_cast<std::size_t>(d)];
        ASSERT_FALSE(std::isnan(got)) << h << " " << i << " " << d;
        difference += (got - expected) * (got - expected);
        norm += expected * expected;
      }
    }
  EXPECT_LE(std::sqrt(difference), 4e-3 * std::sqrt(norm));
}

TEST(RowwiseEmulated, ConsecutiveAndGatheredKeysOverWarps) {
  using Four = EmulatedConfig<64, 64, 4, 3, false>;
  for (const mask::Mask& mask :
       {mask::causal(), mask::random_elements(0.04, 5), mask::causal() & mask::strided(8, 32)})
    check<Four>(70, 150, mask, CopiesLand::kLate);
  check<EmulatedConfig<128, 128, 8, 2, false>>(40, 130, mask::all(), CopiesLand::kEarly);
}

TEST(RowwiseEmulated, OneWarpOddHeadDimensionsAndSoftcap) {
  using One = EmulatedConfig<24, 40, 1, 3, true>;
  for (const mask::Mask& mask : {mask::none(), mask::window(20, 10), mask::key_lengths({33})})
    check<One>(50, 90, mask, CopiesLand::kEarly);
}

}  // namespace
}  // namespace cuda
}  // namespace stof
