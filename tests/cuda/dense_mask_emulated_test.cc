// The kernels that read boolean tensors into plans (kernels/plan/dense_mask.cuh), run on the CPU
// thread by thread, against the plan that the host builds of the same mask.

#include <gtest/gtest.h>

#include <random>

#include "emulated/machine.h"
// The kernels' own headers after the machine's built-ins.
#include "backend/cuda/attention/candidates.h"
#include "backend/cuda/attention/device_plan.h"
#include "backend/cuda/plan/dense_tiles.h"
#include "cuda/seen_plan.h"
#include "plan/dense_mask.cuh"
#include "stof/block_mask.h"
#include "stof/error.h"

namespace stof::cuda {
namespace {

AttentionProblem problem_of(std::int64_t batch, std::int64_t heads, std::int64_t seq_q,
                            std::int64_t seq_kv) {
  AttentionProblem p;
  p.batch = batch;
  p.num_heads_q = p.num_heads_kv = heads;
  p.seq_q = seq_q;
  p.seq_kv = seq_kv;
  p.head_dim_qk = p.head_dim_v = 64;
  p.dtype = DType::kBFloat16;
  return p;
}

/// How a tensor lies in memory.
enum class Layout { kAligned, kOddPitch, kTransposed };

/// [batch, heads, seq_q, seq_kv] with extents of 1 where it is shared; true is any byte but 0.
class BoolTensor {
 public:
  BoolTensor(const Dims& shape, Layout layout, const mask::Mask& bound) : shape_(shape) {
    const std::int64_t pitch =
        layout == Layout::kAligned ? (shape[3] + 31) / 16 * 16 : shape[3] + 3;
    strides_ = layout == Layout::kTransposed
                   ? Dims{shape[1] * shape[2] * shape[3], shape[2] * shape[3], 1, shape[2]}
                   : Dims{shape[1] * shape[2] * pitch, shape[2] * pitch, pitch, 1};
    bytes_.assign(static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * (pitch + 3) + 48),
                  0xee);
    base_ = 16 - reinterpret_cast<std::uintptr_t>(bytes_.data()) % 16;
    if (layout == Layout::kOddPitch) ++base_;
    std::mt19937 random(1);
    for (std::int64_t b = 0; b < shape[0]; ++b)
      for (std::int64_t h = 0; h < shape[1]; ++h)
        for (std::int64_t q = 0; q < shape[2]; ++q)
          for (std::int64_t k = 0; k < shape[3]; ++k)
            bytes_[base_ + static_cast<std::size_t>(b * strides_[0] + h * strides_[1] +
                                                    q * strides_[2] + k * strides_[3])] =
                bound.visible(b, h, q, k) ? static_cast<std::uint8_t>(1u << random() % 8) : 0;
  }
  TensorView view() const { return {bytes_.data() + base_, DType::kBool, shape_, strides_}; }

 private:
  Dims shape_, strides_;
  std::vector<std::uint8_t> bytes_;
  std::size_t base_ = 0;
};

/// The plan as the GPU would make it.
SeenPlan emulated_plan(const AttentionProblem& p, const TensorView& visible,
                       const codegen::AttentionConfig& config, int num_blocks) {
  const DenseMask mask = dense_mask(p, visible);
  GroupBits bits = GroupBits::of(p, mask);
  dense::DenseParams params{};
  params.visible = static_cast<const unsigned char*>(mask.data);
  std::copy(mask.strides, mask.strides + 4, params.strides);
  std::fill(bits.shown.begin(), bits.shown.end(), 0xeeeeeeee);
  std::fill(bits.hidden.begin(), bits.hidden.end(), 0xeeeeeeee);
  params.shown = bits.shown.data();
  params.hidden = bits.hidden.data();
  params.heads = static_cast<int>(mask.head_extent);
  params.seq_q = static_cast<int>(p.seq_q);
  params.seq_kv = static_cast<int>(p.seq_kv);
  params.strips = static_cast<int>(bits.strips);
  params.words = static_cast<int>(bits.words);
  params.num_words = static_cast<int>(bits.shown.size());
  params.wide_loads = mask.wide_loads;
  alignas(16) unsigned char none[16];
  const auto launch = [&](std::size_t blocks, const auto& body) {
    gridDim.x = static_cast<unsigned>(blocks);
    for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x)
      emulated::machine.run(dense::kDenseThreads, none, sizeof(none), emulated::CopiesLand::kLate,
                            body);
  };
  launch((bits.shown.size() + 3) / 4, [&] { dense::classify_groups(params); });

  const DensePlan plan = dense_plan(p, mask, bits, config);
  const DevicePlan device = build_device_plan(
      p, {whole_batch(p, plan.plan, static_cast<std::int32_t>(plan.tiles.size()))}, config,
      num_blocks);
  const auto words = static_cast<std::size_t>(config.payload_bytes() / 4);
  std::vector<std::uint32_t> payloads(plan.tiles.size() * words, 0xeeeeeeee);
  static_assert(sizeof(dense::Tile) == sizeof(DenseTile));
  params.tiles = reinterpret_cast<const dense::Tile*>(plan.tiles.data());
  params.payloads = payloads.data();
  params.slabs = config.query_rows() / 64;
  params.query_tiles = static_cast<int>(plan.plan.num_q_tiles());
  params.tile_kv = config.tile_kv;
  params.payload_words = static_cast<int>(words) / (128 * params.slabs);
  launch(plan.tiles.size(), [&] { dense::fill_payloads(params); });
  payloads.insert(payloads.end(), device.payloads.begin(), device.payloads.end());
  return seen_plan(device.records, device.partial.data(), device.runs.data(), payloads, config);
}

SeenPlan host_plan(const AttentionProblem& p, const mask::Mask& mask,
                   const codegen::AttentionConfig& config, int num_blocks) {
  const auto blocks =
      build_block_mask(mask, {p.batch, p.num_heads_q, p.seq_q, p.seq_kv}, p.alignment);
  const DevicePlan plan =
      build_device_plan(p, build_mask_plan(blocks, plan_config(config)), config, num_blocks);
  return seen_plan(plan.records, plan.partial.data(), plan.runs.data(), plan.payloads, config);
}

void check(const AttentionProblem& p, const mask::Mask& mask, const Dims& shape, Layout layout,
           const codegen::AttentionConfig& config) {
  SCOPED_TRACE(mask.describe() + " " + config.name() + " layout " +
               std::to_string(static_cast<int>(layout)));
  const mask::Mask bound = mask.bind({p.batch, p.num_heads_q, p.seq_q, p.seq_kv}, p.alignment);
  const BoolTensor tensor(shape, layout, bound);
  constexpr int kBlocks = 2;
  expect_equal(emulated_plan(p, tensor.view(), config, kBlocks),
               host_plan(p, mask::dense(BoolTensor(shape, layout, bound).view()), config, kBlocks));
}

TEST(DenseMaskEmulated, EqualsTheHostsPlanForEveryTileAndLayout) {
  const AttentionProblem p = problem_of(1, 1, 64 * 3 + 7, 64 * 9 + 21);
  const Dims shape{1, 1, p.seq_q, p.seq_kv};
  const mask::Mask mixed = mask::causal() | mask::random_blocks_rate(64, 0.5, 7);
  for (const auto& [rows, tile_kv] : {std::pair{64, 64}, {128, 128}, {64, 96}, {128, 32}, {64, 16}})
    check(p, mixed, shape, Layout::kAligned, small_config(rows, tile_kv));
  for (const mask::Mask& mask : {mask::window(100, 30) | mask::global(5, 70),
                                 mask::random_elements(0.5, 3), mask::none(), mask::all()})
    check(p, mask, shape, Layout::kAligned, small_config(128, 64));
  for (const Layout layout : {Layout::kOddPitch, Layout::kTransposed})
    check(p, mask::causal() & mask::strided(20, 8), shape, layout, small_config(128, 64));
}

TEST(DenseMaskEmulated, WideTilesOfTheHopperKernelAndPackedHeads) {
  codegen::AttentionConfig config;
  config.tile_kv = 160;
  AttentionProblem p = problem_of(1, 2, 300, 700);
  p.num_heads_kv = 1;
  p.head_dim_qk = p.head_dim_v = 128;
  const mask::Mask mask = mask::causal() | mask::random_elements(0.1, 5);
  check(p, mask, {1, 1, p.seq_q, p.seq_kv}, Layout::kAligned, config);
  config.tile_kv = 64;
  config.pack_heads = true;
  check(p, mask, {1, 1, p.seq_q, p.seq_kv}, Layout::kAligned, config);
}

TEST(DenseMaskEmulated, SharedBatchesHeadsAndRows) {
  const AttentionProblem p = problem_of(2, 3, 130, 200);
  const auto config = small_config(64, 64);
  const mask::Mask heads = mask::per_head({mask::causal(), mask::window(9, 9), mask::all()});
  check(p, heads, {1, 3, p.seq_q, p.seq_kv}, Layout::kOddPitch, config);
  check(p, mask::key_lengths({130, 77}), {2, 1, p.seq_q, p.seq_kv}, Layout::kAligned, config);
  check(p, mask::key_lengths({130, 77}), {2, 1, 1, p.seq_kv}, Layout::kAligned, config);
  check(p, mask::per_batch({heads, mask::causal()}), {2, 3, p.seq_q, p.seq_kv}, Layout::kAligned,
        config);
}

TEST(DenseMask, CandidatesAreThoseOfTheSameMaskWithTheSamePredictions) {
  AttentionProblem p = problem_of(1, 4, 1000, 1100);
  const mask::Mask mask = mask::causal() & mask::window(300, 0);
  for (const std::int64_t head_dim : {64, 128}) {
    p.head_dim_qk = p.head_dim_v = head_dim;
    p.num_heads_kv = 2;
    GroupBits bits = GroupBits::of(p, dense_mask(p, {&p, DType::kBool, {1000, 1100}}));
    const mask::Mask bound = mask.bind({1, 4, 1000, 1100});
    for (std::int64_t q = 0; q < 1000; ++q)
      for (std::int64_t k = 0; k < 1100; ++k) {
        const std::int64_t group = k / 16;
        auto& words = bound.visible(0, 0, q, k) ? bits.shown : bits.hidden;
        words[static_cast<std::size_t>(q / 64 * bits.words + group / 32)] |= 1u << (group % 32);
      }
    const KernelTarget target{90, 132, 16};
    std::map<std::string, double> expected;
    for (const Candidate& candidate : enumerate_candidates(p, mask, target, false))
      if (candidate.passes.size() == 1 && candidate.passes[0].step == 1)
        expected[candidate.name()] = candidate.predicted_us();
    std::map<std::string, double> seen;
    for (const ConfigCandidate& candidate :
         dense_candidates(p, dense_mask(p, {&p, DType::kBool, {1000, 1100}}), bits, target))
      seen[candidate.config.name()] = candidate.predicted_us;
    EXPECT_EQ(seen, expected);
  }
}

TEST(DenseMask, RefusesOtherShapesNamingExpectedAndGot) {
  const AttentionProblem p = problem_of(2, 2, 10, 20);
  const std::vector<std::uint8_t> bytes(4000, 1);
  const auto message = [&](const TensorView& view) -> std::string {
    try {
      dense_mask(p, view);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  for (const Dims& shape : {Dims{10, 15}, Dims{10, 25}, Dims{5, 20}, Dims{20, 10},
                            Dims{3, 1, 10, 20}, Dims{2, 2, 10, 1}, Dims{2, 10, 20}}) {
    const std::string text = message({bytes.data(), DType::kBool, shape});
    EXPECT_NE(text.find("expected bool[10, 20] or bool[2|1, 2|1, 10|1, 20], got bool"),
              std::string::npos)
        << text;
  }
  EXPECT_NE(message({bytes.data(), DType::kUInt8, {10, 20}}).find("got uint8"), std::string::npos);
  EXPECT_EQ(message({bytes.data(), DType::kBool, {10, 20}}), "accepted");
  EXPECT_EQ(message({bytes.data(), DType::kBool, {1, 2, 1, 20}}), "accepted");
}

}  // namespace
}  // namespace stof::cuda
