#include "gpu/grid_checks.h"

#include <cstdio>
#include <map>

#include "backend/cuda/attention/candidates.h"
#include "gpu/compile_ahead.h"
#include "gpu/device_operands.h"
#include "gpu/random_attention.h"
#include "stof/cuda_attention.h"
#include "stof/error.h"

namespace stof::check {
namespace {

struct GridCase {
  AttentionProblem problem;
  mask::Mask mask;
  cpu::Layouts layouts;
  std::vector<std::string> kernels;          ///< names of candidates
  std::map<std::string, std::string> texts;  ///< their source by configuration
};

mask::Neighbourhood random_neighbourhood(Draw& draw) {
  mask::Neighbourhood n;
  const std::int64_t rank = draw.between(2, 3);
  const bool plain = !draw.chance(3);
  for (std::int64_t d = 0; d < rank; ++d) {
    n.grid.push_back(draw.between(d == 0 ? 2 : 1, rank == 2 ? 40 : 12));
    n.kernel.push_back(draw.between(1, draw.one_of<std::int64_t>({3, 9, 45})));
    if (plain) continue;
    n.dilation.push_back(draw.between(1, 3));
    n.tile.push_back(draw.between(1, 4));
    n.shift.push_back(draw.between(-3, 3));
  }
  return n;
}

GridCase make_case(const cuda::Device& device, std::uint64_t seed, const std::string& part) {
  Draw draw(seed);
  GridCase c;
  AttentionProblem& p = c.problem;
  p = small_problem(draw);
  if (p.head_dim_qk > 128) p.head_dim_qk = p.head_dim_v = 256;  // with tiles of 96 keys no box fits
  const mask::Neighbourhood n = random_neighbourhood(draw);
  c.mask = mask::neighbourhood(n);
  if (draw.chance(3)) c.mask = c.mask & mask::all();
  p.seq_q = 1;
  for (const std::int64_t extent : n.grid) p.seq_q *= extent;
  p.seq_kv = p.seq_q;
  p.sink = draw.chance(4);
  if (draw.chance(4)) p.softcap = 20;
  c.layouts = random_layouts(draw);
  const cuda::KernelTarget target{device.facts().major * 10 + device.facts().minor,
                                  device.facts().num_sms, 16};
  std::vector<cuda::Candidate> found;
  for (cuda::Candidate& candidate : cuda::enumerate_candidates(p, c.mask, target))
    if (candidate.passes.size() == 1 && candidate.passes[0].grid &&
        candidate.name().find(part) != std::string::npos)
      found.push_back(std::move(candidate));
  while (found.size() > 4)
    found.erase(found.begin() + draw.between(0, static_cast<std::int64_t>(found.size()) - 1));
  for (const cuda::Candidate& candidate : found) {
    const codegen::AttentionConfig& config = candidate.passes[0].config;
    c.kernels.push_back(candidate.name());
    c.texts.emplace(config.name(), codegen::emit_attention(config));
  }
  return c;
}

std::string run_case(const GridCase& c, const std::string& kernel, cpu::Operands& operands,
                     const DeviceOperands& on_device, const cpu::Result& expected) try {
  const auto plan = cuda::AttentionPlan::build(c.problem, c.mask, kernel);
  return run_twice(c.problem, operands, on_device, expected,
                   [&] { plan.run(on_device.tensors(), nullptr); });
} catch (const Error& error) {
  return error.what();
}

bool check_case(const GridCase& c, std::uint64_t seed, const std::string& kernel_part) {
  const AttentionProblem& p = c.problem;
  bool right = !c.kernels.empty();
  if (!right)
    std::printf("BAD grid seed %lu: %s mask %s has no candidate in grid order named \"%s\"\n", seed,
                p.describe().c_str(), c.mask.describe().c_str(), kernel_part.c_str());
  cpu::Operands operands(p, seed, c.layouts);
  const cpu::Result expected = cpu::reference_of(c.mask, operands);
  const DeviceOperands on_device(operands);
  for (const std::string& kernel : c.kernels) {
    const std::string wrong = run_case(c, kernel, operands, on_device, expected);
    if (wrong.empty()) continue;
    right = false;
    std::printf("BAD grid seed %lu: %s mask %s kernel %s q %s k %s v %s out %s: %s\n", seed,
                p.describe().c_str(), c.mask.describe().c_str(), kernel.c_str(),
                operands.q.view().strides.to_string().c_str(),
                operands.k.view().strides.to_string().c_str(),
                operands.v.view().strides.to_string().c_str(),
                operands.out.view().strides.to_string().c_str(), wrong.c_str());
  }
  return right;
}

}  // namespace

std::vector<bool> check_grids(const cuda::Device& device, std::uint64_t first_seed, int cases,
                              const std::string& kernel_part) {
  if (device.facts().major != 9) return {};
  std::vector<GridCase> all;
  std::map<std::string, std::string> texts;
  for (int i = 0; i < cases; ++i) {
    all.push_back(make_case(device, first_seed + static_cast<std::uint64_t>(i), kernel_part));
    texts.insert(all.back().texts.begin(), all.back().texts.end());
  }
  compile_ahead(texts, device.facts().target());
  std::vector<bool> right;
  for (std::size_t i = 0; i < all.size(); ++i)
    right.push_back(check_case(all[i], first_seed + i, kernel_part));
  return right;
}

}  // namespace stof::check
