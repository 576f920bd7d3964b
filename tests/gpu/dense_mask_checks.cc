#include <cstdio>
#include <iterator>
#include <map>

#include "backend/cuda/attention/config_choice.h"
#include "cpu/score_mods.h"
#include "gpu/compile_ahead.h"
#include "gpu/device_operands.h"
#include "gpu/plan_checks.h"
#include "gpu/random_attention.h"
#include "stof/cuda_attention.h"
#include "stof/error.h"

namespace stof::check {
namespace {

const cuda::Driver& driver() { return cuda::Driver::instance(); }

/// A boolean tensor, every byte around whose elements is nonzero.
struct DenseTensor {
  Dims shape, strides;
  std::size_t base = 0;
  std::vector<std::uint8_t> bytes;

  TensorView view(const void* data) const {
    return {static_cast<const std::uint8_t*>(data) + base, DType::kBool, shape, strides};
  }
};

/// The mask's elements [batch|1, heads|1, seq_q|1, seq_kv], laid out in one of several ways.
DenseTensor draw_tensor(Draw& draw, const AttentionProblem& p, const mask::Mask& bound) {
  const auto extent = [&](std::int64_t full) { return draw.chance(3) ? 1 : full; };
  DenseTensor tensor;
  tensor.shape = {extent(p.batch), extent(p.num_heads_q), draw.chance(6) ? 1 : p.seq_q, p.seq_kv};
  const Dims& s = tensor.shape;
  const std::int64_t aligned = (s[3] + 15) / 16 * 16;
  switch (draw.between(0, 3)) {
    case 0:
      tensor.strides = contiguous_strides(s);
      break;
    case 1:
      tensor.strides = {s[1] * s[2] * aligned, s[2] * aligned, aligned, 1};
      break;
    case 2:  // cut out of a wider one, at an odd address
      tensor.strides = {s[1] * s[2] * (s[3] + 5), s[2] * (s[3] + 5), s[3] + 5, 1};
      tensor.base = 3;
      break;
    default:  // by keys
      tensor.strides = {s[1] * s[2] * s[3], s[2] * s[3], 1, s[2]};
  }
  tensor.bytes.assign(tensor.base + static_cast<std::size_t>(s[0] * s[1] * s[2] * (aligned + 5)),
                      0xff);
  for (std::int64_t b = 0; b < s[0]; ++b)
    for (std::int64_t h = 0; h < s[1]; ++h)
      for (std::int64_t q = 0; q < s[2]; ++q)
        for (std::int64_t k = 0; k < s[3]; ++k)
          tensor.bytes[tensor.base +
                       static_cast<std::size_t>(b * tensor.strides[0] + h * tensor.strides[1] +
                                                q * tensor.strides[2] + k * tensor.strides[3])] =
              bound.visible(b, h, q, k);
  return tensor;
}

struct DenseCase {
  std::uint64_t seed;
  AttentionProblem problem;
  DenseTensor tensor;
};

DenseCase make_case(std::uint64_t seed) {
  Draw draw(seed);
  DenseCase c;
  c.seed = seed;
  c.problem = small_problem(draw);
  c.problem.alibi = draw.chance(3);
  c.problem.bias = draw.chance(4);
  c.problem.sink = draw.chance(4);
  if (seed % 3 == 0)
    cpu::set_score_mod(&c.problem, static_cast<int>(seed / 3) % cpu::kNumScoreMods);
  const mask::Mask expression = random_mask(draw, c.problem);
  const AttentionProblem& p = c.problem;
  c.tensor = draw_tensor(draw, p,
                         expression.bind({p.batch, p.num_heads_q, p.seq_q, p.seq_kv}, p.alignment));
  return c;
}

/// Up to four of the configurations that the problem's shape offers, whatever the mask.
std::map<std::string, std::string> texts_of(const cuda::Device& device, const DenseCase& c,
                                            const std::string& part) {
  const AttentionProblem& p = c.problem;
  const bool shared_heads = c.tensor.shape[1] == 1;
  const cuda::KernelTarget target{device.facts().major * 10 + device.facts().minor,
                                  device.facts().num_sms, 16};
  std::map<std::string, std::string> texts;
  for (const auto& config : cuda::blockwise_configs(p, shared_heads, target, "boolean tensors"))
    if (config.name().find(part) != std::string::npos)
      texts.emplace(config.name(), codegen::emit_attention(config));
  Draw draw(c.seed + 1000);
  while (texts.size() > 4)
    texts.erase(
        std::next(texts.begin(), draw.between(0, static_cast<std::int64_t>(texts.size()) - 1)));
  return texts;
}

std::string run_case(const DenseCase& c, const std::string& kernel, cpu::Operands& operands,
                     const DeviceOperands& on_device, const cpu::Result& expected) try {
  const cuda::DeviceBuffer memory(c.tensor.bytes.size(), "a mask");
  driver().check(driver().cuMemcpyHtoDAsync(memory.address(), c.tensor.bytes.data(),
                                            c.tensor.bytes.size(), nullptr),
                 "upload");
  const auto plan = cuda::AttentionPlan::build_dense(
      c.problem, c.tensor.view(cuda::device_pointer(memory.address())), nullptr, kernel);
  return run_twice(c.problem, operands, on_device, expected,
                   [&] { plan.run(on_device.tensors(), nullptr); });
} catch (const Error& error) {
  return error.what();
}

bool check_case(const cuda::Device& device, std::uint64_t seed, const std::string& kernel_part) {
  const DenseCase c = make_case(seed);
  cpu::Operands operands(c.problem, seed);
  const cpu::Result expected =
      cpu::reference_of(mask::dense(c.tensor.view(c.tensor.bytes.data())), operands);
  const DeviceOperands on_device(operands);
  const auto texts = texts_of(device, c, kernel_part);
  bool right = !texts.empty();
  if (!right) std::printf("no kernel's name contains \"%s\"\n", kernel_part.c_str());
  for (const auto& [kernel, text] : texts) {
    const std::string wrong = run_case(c, kernel, operands, on_device, expected);
    if (wrong.empty()) continue;
    right = false;
    std::printf("BAD densemask seed %lu: %s mask %s strides %s kernel %s: %s\n", seed,
                c.problem.describe().c_str(), c.tensor.shape.to_string().c_str(),
                c.tensor.strides.to_string().c_str(), kernel.c_str(), wrong.c_str());
  }
  return right;
}

}  // namespace

std::vector<bool> check_dense_masks(const cuda::Device& device, std::uint64_t first_seed, int cases,
                                    const std::string& kernel_part) {
  std::map<std::string, std::string> texts;
  for (int i = 0; i < cases; ++i)
    texts.merge(
        texts_of(device, make_case(first_seed + static_cast<std::uint64_t>(i)), kernel_part));
  compile_ahead(texts, device.facts().target());
  std::vector<bool> right;
  for (int i = 0; i < cases; ++i)
    right.push_back(check_case(device, first_seed + static_cast<std::uint64_t>(i), kernel_part));
  return right;
}

}  // namespace stof::check
