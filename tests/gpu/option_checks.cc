#include "gpu/option_checks.h"

#include <cstdio>
#include <limits>

#include "backend/cuda/attention/candidates.h"
#include "gpu/device_operands.h"
#include "gpu/random_attention.h"
#include "gpu/varlen_checks.h"
#include "stof/cuda_attention.h"
#include "stof/error.h"

namespace stof::check {
namespace {

/// Any broadcast of [batch, heads, seq_q, seq_kv], down to missing leading dimensions.
Dims random_bias_shape(Draw& draw, const AttentionProblem& p) {
  const auto extent = [&](std::int64_t full) { return draw.between(0, 1) ? full : 1; };
  switch (draw.between(0, 3)) {
    case 0:
      return {p.batch, p.num_heads_q, p.seq_q, p.seq_kv};
    case 1:
      return {p.seq_q, p.seq_kv};
    case 2:
      return {p.num_heads_q, 1, p.seq_kv};
    default:
      return {extent(p.batch), extent(p.num_heads_q), extent(p.seq_q), extent(p.seq_kv)};
  }
}

/// Hides some pairs by the largest negative number, as masks are often given: rows that see nothing
/// else must still average.
void add_extremes(Draw& draw, cpu::GuardedTensor* bias) {
  const std::vector<double> values = bias->values();
  std::size_t next = 0;
  const bool all = draw.between(0, 3) == 0;
  bias->fill([&] {
    const double value = values[next++];
    return value < -1.2 || (all && value < 1.5) ? -std::numeric_limits<float>::max() : value;
  });
}

/// Query rows of NaN, and some whose first element is infinite, so that scores are infinite both
/// ways: such rows are NaN unless they see nothing, and others don't feel it.
void add_nonfinite(Draw& draw, const AttentionProblem& p, cpu::GuardedTensor* q) {
  const std::vector<double> values = q->values();
  std::size_t next = 0;
  std::int64_t kind = 0;
  q->fill([&] {
    const auto column = static_cast<std::int64_t>(next) % p.head_dim_qk;
    const double value = values[next++];
    if (column == 0) kind = draw.between(0, 7);
    if (kind == 0) return std::numeric_limits<double>::quiet_NaN();
    return kind == 1 && column == 0 ? std::numeric_limits<double>::infinity() : value;
  });
}

/// Cheapest, dearest and one between of those whose names contain `part`.
std::vector<std::string> some_candidates(Draw& draw, const AttentionProblem& p,
                                         const mask::Mask& expression,
                                         const cuda::KernelTarget& target,
                                         const std::string& part) {
  auto all = cuda::enumerate_candidates(p, expression, target);
  std::erase_if(all, [&](const cuda::Candidate& candidate) {
    return candidate.name().find(part) == std::string::npos;
  });
  if (all.empty()) return {};
  std::vector<std::string> names = {all.front().name()};
  if (all.size() > 1) names.push_back(all.back().name());
  if (all.size() > 2)
    names.push_back(
        all[static_cast<std::size_t>(draw.between(1, static_cast<std::int64_t>(all.size()) - 2))]
            .name());
  return names;
}

}  // namespace

const std::vector<std::string>& option_names() {
  static const std::vector<std::string> names = {"strides",  "alibi",   "bias",   "sink",
                                                 "position", "options", "varlen", "nonfinite"};
  return names;
}

bool check_option(const cuda::Device& device, const std::string& option, std::uint64_t seed,
                  const std::string& kernel_part) {
  if (option == "varlen") return check_varlen(device, seed, kernel_part);
  Draw draw(seed);
  AttentionProblem p = small_problem(draw);
  const bool all = option == "options";
  p.alibi = option == "alibi" || (all && draw.between(0, 1));
  p.bias = option == "bias" || (all && draw.between(0, 1));
  p.sink = option == "sink" || (all && draw.between(0, 1));
  if (all && draw.between(0, 1)) p.softcap = 20;
  if (option == "position" || (all && !p.bias && draw.between(0, 1)))
    p.position_bias = random_buckets(draw);
  const mask::Mask expression = random_mask(draw, p);
  const cpu::Layouts layouts = random_layouts(draw);
  cpu::Operands operands(p, seed, layouts, p.bias ? random_bias_shape(draw, p) : Dims{});
  if (p.bias) add_extremes(draw, &operands.bias);
  if (p.sink && draw.between(0, 1))  // far above and below what it joins
    operands.sink.fill([&] { return static_cast<double>(draw.between(-40, 40)); });
  if (option == "nonfinite") add_nonfinite(draw, p, &operands.q);
  const cpu::Result expected = cpu::reference_of(expression, operands);
  const DeviceOperands on_device(operands);
  const cuda::KernelTarget target{device.facts().major * 10 + device.facts().minor,
                                  device.facts().num_sms, 16};
  const auto kernels = some_candidates(draw, p, expression, target, kernel_part);
  bool right = !kernels.empty();
  if (!right) std::printf("no kernel's name contains \"%s\"\n", kernel_part.c_str());
  for (const std::string& kernel : kernels) {
    std::string wrong;
    try {
      const auto plan = cuda::AttentionPlan::build(p, expression, kernel);
      wrong = run_twice(p, operands, on_device, expected,
                        [&] { plan.run(on_device.tensors(), nullptr); });
    } catch (const Error& error) {
      wrong = error.what();
    }
    if (wrong.empty()) continue;
    right = false;
    std::printf("BAD %s seed %lu: %s mask %s kernel %s q %s k %s v %s out %s bias %s: %s\n",
                option.c_str(), seed, p.describe().c_str(), expression.describe().c_str(),
                kernel.c_str(), operands.q.view().strides.to_string().c_str(),
                operands.k.view().strides.to_string().c_str(),
                operands.v.view().strides.to_string().c_str(),
                operands.out.view().strides.to_string().c_str(),
                p.bias ? operands.bias.view().shape.to_string().c_str() : "none", wrong.c_str());
  }
  return right;
}

bool check_refusals() {
  AttentionProblem p;
  p.num_heads_q = p.num_heads_kv = 4;
  p.seq_q = p.seq_kv = 256;
  p.head_dim_qk = p.head_dim_v = 64;
  p.dtype = DType::kFloat16;
  p.return_lse = true;
  const auto plan = cuda::AttentionPlan::build(p, mask::causal());
  cpu::Operands operands(p, 1);
  const DeviceOperands device(operands);
  bool right = true;
  for (const bool bad_lse : {false, true}) {
    AttentionTensors refused = device.tensors();
    if (bad_lse)
      refused.lse.strides = {p.num_heads_q * p.seq_q, 1, p.num_heads_q};
    else
      refused.out.strides = {p.seq_q * 4 * 64, 64, 4 * 64 + 4, 1};
    try {
      plan.run(refused, nullptr);
      std::printf("BAD strides: %s accepted\n", bad_lse ? "lse" : "out");
      right = false;
    } catch (const Error&) {
    }
  }
  return right;
}

}  // namespace stof::check
