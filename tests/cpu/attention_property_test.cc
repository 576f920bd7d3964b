// Random problems: reference, interpreter and every kernel agree.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "cpu/attention_support.h"
#include "plan/plan_support.h"

namespace stof::cpu {
namespace {

template <class T>
T pick(std::vector<T> values) {
  return *rc::gen::elementOf(values);
}

std::int64_t any_int(std::int64_t low, std::int64_t high) {
  return *rc::gen::inRange<std::int64_t>(low, high + 1);
}

AttentionProblem any_problem() {
  AttentionProblem p;
  p.batch = any_int(1, 2);
  p.num_heads_kv = any_int(1, 2);
  p.num_heads_q = p.num_heads_kv * any_int(1, 3);
  p.seq_q = pick<std::int64_t>({1, 2, 7, 33, 64, 97, 129, 200});
  p.seq_kv = pick<std::int64_t>({1, 3, 40, 64, 65, 137, 193});
  p.head_dim_qk = pick<std::int64_t>({1, 7, 8, 16, 33, 64, 96});
  p.head_dim_v = pick<std::int64_t>({1, 5, 8, 24, 64});
  p.dtype = pick<DType>({DType::kFloat32, DType::kFloat32, DType::kFloat16, DType::kBFloat16});
  p.alignment = pick<mask::Alignment>({mask::Alignment::kTopLeft, mask::Alignment::kBottomRight});
  if (any_int(0, 2) == 0) p.scale = pick<float>({-0.3f, 0.0f, 0.05f, 1.0f});
  if (any_int(0, 2) == 0) p.softcap = pick<float>({0.5f, 5.0f, 50.0f});
  p.alibi = any_int(0, 2) == 0;
  p.bias = any_int(0, 2) == 0;
  p.sink = any_int(0, 2) == 0;
  p.return_lse = any_int(0, 1) == 0;
  return p;
}

Layouts any_layouts() {
  const std::vector<Layout> written = {Layout::kContiguous, Layout::kRowsFirst, Layout::kSliced};
  std::vector<Layout> read = written;
  read.push_back(Layout::kExpandedRows);
  read.push_back(Layout::kExpandedBatch);
  return {pick(written), pick(read), pick(read), pick(written)};
}

mask::Mask any_batch_mask(const AttentionProblem& p) {
  mask::Mask mask = *plan::any_mask();
  if (any_int(0, 2) == 0) {
    std::vector<std::int64_t> lengths;
    for (std::int64_t b = 0; b < p.batch; ++b) lengths.push_back(any_int(0, p.seq_kv));
    mask = mask & mask::key_lengths(lengths);
  }
  if (any_int(0, 2) == 0) {
    std::vector<mask::Mask> heads;
    for (std::int64_t h = 0; h < p.num_heads_q; ++h)
      heads.push_back(h % 2 ? mask : *plan::any_mask());
    mask = mask::per_head(heads);
  }
  return mask;
}

Dims any_bias_shape(const AttentionProblem& p) {
  Dims shape{p.batch, p.num_heads_q, p.seq_q, p.seq_kv};
  for (int i = 0; i < 4; ++i)
    if (any_int(0, 2) == 0) shape[i] = 1;
  return shape;
}

RC_GTEST_PROP(Attention, AgreesWithTheReferenceOnAnyProblem, ()) {
  const AttentionProblem problem = any_problem();
  const mask::Mask mask = any_batch_mask(problem);
  plan::PlanConfig config = choose_config(problem);
  if (any_int(0, 1) == 0) std::tie(config.tile_q, config.tile_kv) = *plan::any_tile();
  config.max_tiles_per_split = pick<std::int64_t>({0, 0, 1, 2});
  Operands operands(problem, *rc::gen::arbitrary<std::uint64_t>(), any_layouts(),
                    any_bias_shape(problem));
  RC_LOG() << problem.describe() << "; " << mask.describe() << "; tiles " << config.tile_q << "x"
           << config.tile_kv << " splits of " << config.max_tiles_per_split;
  expect_right_everywhere(mask, operands, config);
  RC_ASSERT(!testing::Test::HasFailure());
}

}  // namespace
}  // namespace stof::cpu
