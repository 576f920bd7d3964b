#include "gpu/varlen_checks.h"

#include <algorithm>
#include <cstdio>

#include "cpu/score_mods.h"
#include "gpu/device_operands.h"
#include "gpu/random_attention.h"
#include "stof/cuda_attention.h"
#include "stof/error.h"

namespace stof::check {
namespace {

using cpu::set_score_mod;

/// Rows [first, first + rows) of a [1, heads, rows, dim] or [1, heads, rows] view.
template <class View>
View rows_of(View view, std::int64_t first, std::int64_t rows) {
  const auto bytes = static_cast<std::int64_t>(dtype_bytes(view.dtype));
  view.data = reinterpret_cast<decltype(view.data)>(reinterpret_cast<std::intptr_t>(view.data) +
                                                    first * view.strides[2] * bytes);
  view.shape[2] = rows;
  return view;
}

/// [1, heads, rows, dim] as [rows, heads, dim].
template <class View>
View packed(View view) {
  view.shape = {view.shape[2], view.shape[1], view.shape[3]};
  view.strides = {view.strides[2], view.strides[1], view.strides[3]};
  return view;
}

AttentionTensors packed_tensors(AttentionTensors t) {
  t.q = packed(t.q);
  t.k = packed(t.k);
  t.v = packed(t.v);
  t.out = packed(t.out);
  t.lse.shape = {t.lse.shape[1], t.lse.shape[2]};
  t.lse.strides = {t.lse.strides[1], t.lse.strides[2]};
  return t;
}

/// Every sequence by itself.
cpu::Result reference_of_sequences(const AttentionProblem& p, const mask::Mask& mask,
                                   const std::vector<std::int64_t>& cu_q,
                                   const std::vector<std::int64_t>& cu_kv, int score_mod,
                                   cpu::Operands& operands) {
  operands.out.poison();
  operands.lse.poison();
  for (std::size_t i = 0; i + 1 < cu_q.size(); ++i) {
    AttentionProblem one = p;
    one.batch = 1;
    one.seq_q = cu_q[i + 1] - cu_q[i];
    one.seq_kv = cu_kv[i + 1] - cu_kv[i];
    if (score_mod >= 0) {
      set_score_mod(&one, score_mod, "(b + " + std::to_string(i) + ")");
      one.score_tables = p.score_tables;
    }
    AttentionTensors t = operands.tensors();
    t.q = rows_of(t.q, cu_q[i], one.seq_q);
    t.k = rows_of(t.k, cu_kv[i], one.seq_kv);
    t.v = rows_of(t.v, cu_kv[i], one.seq_kv);
    t.out = rows_of(t.out, cu_q[i], one.seq_q);
    t.lse = rows_of(t.lse, cu_q[i], one.seq_q);
    attention_reference(one, mask::batch_entry(mask, static_cast<std::int64_t>(i)), t);
  }
  return {operands.out.values(), operands.lse.values()};
}

struct NamedKernel {
  std::string name;
  int alignment;
};

/// Cheapest and dearest of those whose names contain `part`, for either alignment.
std::vector<NamedKernel> some_kernels(const cuda::Device& device, const AttentionProblem& p,
                                      const mask::Mask& mask, const std::vector<std::int64_t>& cu_q,
                                      const std::vector<std::int64_t>& cu_kv,
                                      const std::string& part) {
  std::vector<NamedKernel> kernels;
  for (const int alignment : {16, 4}) {
    const cuda::GpuModel gpu{device.facts().major * 10 + device.facts().minor,
                             device.facts().num_sms, alignment};
    auto all = cuda::VarlenPlan::candidates(p, mask, cu_q, cu_kv, gpu);
    std::erase_if(all, [&](const auto& one) { return one.name.find(part) == std::string::npos; });
    if (all.empty()) continue;
    kernels.push_back({all.front().name, alignment});
    if (all.size() > 1) kernels.push_back({all.back().name, alignment});
  }
  return kernels;
}

}  // namespace

bool check_varlen(const cuda::Device& device, std::uint64_t seed, const std::string& kernel_part,
                  int score_mod) {
  Draw draw(seed);
  AttentionProblem p = small_problem(draw);
  p.alibi = draw.between(0, 1) == 1;
  p.sink = draw.between(0, 1) == 1;
  if (draw.between(0, 1)) p.position_bias = random_buckets(draw);
  p.batch = draw.between(1, 5);
  std::vector<std::int64_t> cu_q = {0}, cu_kv = {0};
  p.seq_q = p.seq_kv = 0;
  for (std::int64_t i = 0; i < p.batch; ++i) {
    std::int64_t rows = draw.one_of<std::int64_t>({0, 1, 63, 64, 130, 200, 257});
    std::int64_t keys = draw.between(0, 2) ? rows : draw.one_of<std::int64_t>({0, 5, 128, 300});
    if (i == 0) rows = std::max<std::int64_t>(rows, 1), keys = std::max<std::int64_t>(keys, 1);
    p.seq_q = std::max(p.seq_q, rows);
    p.seq_kv = std::max(p.seq_kv, keys);
    cu_q.push_back(cu_q.back() + rows);
    cu_kv.push_back(cu_kv.back() + keys);
  }
  const mask::Mask expression = random_mask(draw, p);
  if (score_mod >= 0) set_score_mod(&p, score_mod);
  AttentionProblem all = p;
  all.batch = 1;
  all.seq_q = cu_q.back();
  all.seq_kv = cu_kv.back();
  const auto layout = [&] {
    return draw.one_of({cpu::Layout::kRowsFirst, cpu::Layout::kContiguous, cpu::Layout::kPadded});
  };
  cpu::Operands operands(all, seed, {layout(), layout(), layout(), layout()});
  const cpu::Result expected =
      reference_of_sequences(p, expression, cu_q, cu_kv, score_mod, operands);
  const DeviceOperands on_device(operands);
  const auto kernels = some_kernels(device, p, expression, cu_q, cu_kv, kernel_part);
  bool right = !kernels.empty();
  if (!right) std::printf("no kernel's name contains \"%s\"\n", kernel_part.c_str());
  for (const NamedKernel& kernel : kernels) {
    std::string wrong;
    try {
      const auto plan = cuda::VarlenPlan::build(p, expression, cu_q, cu_kv, kernel.name,
                                                device.facts().ordinal, kernel.alignment);
      wrong = run_twice(p, operands, on_device, expected,
                        [&] { plan.run(packed_tensors(on_device.tensors()), nullptr); });
    } catch (const Error& error) {
      wrong = error.what();
    }
    if (wrong.empty()) continue;
    right = false;
    std::printf("BAD varlen seed %lu: %s mask %s kernel %s: %s\n", seed, p.describe().c_str(),
                expression.describe().c_str(), kernel.name.c_str(), wrong.c_str());
  }
  return right;
}

}  // namespace stof::check
