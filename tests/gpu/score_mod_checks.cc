#include "gpu/score_mod_checks.h"

#include <cstdio>
#include <map>

#include "backend/cuda/attention/candidates.h"
#include "cpu/score_mods.h"
#include "gpu/compile_ahead.h"
#include "gpu/device_operands.h"
#include "gpu/random_attention.h"
#include "gpu/replay.h"
#include "gpu/varlen_checks.h"
#include "stof/cuda_attention.h"
#include "stof/error.h"

namespace stof::check {
namespace {

struct Case {
  AttentionProblem problem;
  mask::Mask mask;
  cpu::Layouts layouts;
  int alignment;  ///< bytes, that the plan is for
};

bool is_packed(std::uint64_t seed) { return seed % 7 == 6; }
int function_of(std::uint64_t seed) { return static_cast<int>(seed % cpu::kNumScoreMods); }

Case make_case(std::uint64_t seed) {
  Draw draw(seed);
  AttentionProblem p = small_problem(draw);
  mask::Mask mask = random_mask(draw, p);
  if (draw.chance(4)) {  // residues as long as key tiles: runs in residue order, too
    p.batch = 1;
    p.seq_q = p.seq_kv = 1024;
    mask = mask::dilated(160, 8);
  }
  p.alibi = draw.chance(4);
  p.sink = draw.chance(4);
  if (draw.chance(4)) p.softcap = 20;
  if (draw.chance(5)) p.position_bias = random_buckets(draw);
  p.bias = p.position_bias.num_buckets == 0 && draw.chance(5);
  cpu::set_score_mod(&p, function_of(seed));
  return {p, mask, random_layouts(draw), draw.chance(3) ? 4 : 16};
}

std::vector<cuda::Candidate> candidates_of(const cuda::Device& device, const Case& c,
                                           const std::string& part) {
  const cuda::KernelTarget target{device.facts().major * 10 + device.facts().minor,
                                  device.facts().num_sms, c.alignment};
  auto candidates = cuda::enumerate_candidates(c.problem, c.mask, target);
  std::erase_if(candidates, [&](const cuda::Candidate& candidate) {
    return candidate.name().find(part) == std::string::npos;
  });
  return candidates;
}

void compile(const cuda::Device& device, std::uint64_t first, int cases, const std::string& part) {
  std::map<std::string, std::string> texts;
  for (int i = 0; i < cases; ++i) {
    const std::uint64_t seed = first + static_cast<std::uint64_t>(i);
    if (is_packed(seed)) continue;
    for (const cuda::Candidate& candidate : candidates_of(device, make_case(seed), part))
      for (const cuda::Pass& pass : candidate.passes)
        texts.emplace(pass.config.name(), codegen::emit_attention(pass.config));
  }
  compile_ahead(texts, device.facts().target(), /*may_spill=*/true);
}

/// One candidate on the tables as they are, then captured and replayed on others, which the host
/// has at the end. "" or what is wrong.
std::string check_kernel(const Case& c, const std::string& kernel, cpu::Operands& operands,
                         const DeviceOperands& on_device, const cpu::Result& expected,
                         const cpu::Result& expected_of_others,
                         const std::function<void(bool)>& set_tables) {
  const AttentionProblem& p = c.problem;
  set_tables(false);
  on_device.upload();
  const auto plan = cuda::AttentionPlan::build(p, c.mask, kernel, 0, c.alignment);
  const AttentionTensors tensors = on_device.tensors();
  std::string wrong =
      run_twice(p, operands, on_device, expected, [&] { plan.run(tensors, nullptr); });
  if (!wrong.empty()) return wrong;
  const Replay replay([&](cuda::CUstream stream) { plan.run(tensors, stream); });
  set_tables(true);
  on_device.upload();
  wrong = run_twice(p, operands, on_device, expected_of_others, [&] { replay.run(); });
  return wrong.empty() ? "" : "replayed on other tables: " + wrong;
}

bool check_case(const cuda::Device& device, std::uint64_t seed, const std::string& part) {
  if (is_packed(seed)) return check_varlen(device, seed, part, function_of(seed));
  const Case c = make_case(seed);
  cpu::Operands operands(c.problem, seed, c.layouts);
  std::vector<std::vector<double>> values;
  for (cpu::GuardedTensor& table : operands.score_tables) values.push_back(table.values());
  const auto set_tables = [&](bool others) {  // the same values, or backwards
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::size_t next = 0;
      operands.score_tables[i].fill([&] {
        const std::size_t at = next++;
        return values[i][others ? values[i].size() - 1 - at : at];
      });
    }
  };
  set_tables(true);
  const cpu::Result expected_of_others = cpu::reference_of(c.mask, operands);
  set_tables(false);
  const cpu::Result expected = cpu::reference_of(c.mask, operands);
  const DeviceOperands on_device(operands);
  const auto candidates = candidates_of(device, c, part);
  bool right = !candidates.empty();
  if (!right) std::printf("no kernel's name contains \"%s\"\n", part.c_str());
  for (const cuda::Candidate& candidate : candidates) {
    std::string wrong;
    try {
      wrong = check_kernel(c, candidate.name(), operands, on_device, expected, expected_of_others,
                           set_tables);
    } catch (const Error& error) {
      wrong = error.what();
    }
    if (wrong.empty()) continue;
    right = false;
    std::printf("BAD score_mod seed %lu: %s mask %s kernel %s: %s\n", seed,
                c.problem.describe().c_str(), c.mask.describe().c_str(), candidate.name().c_str(),
                wrong.c_str());
  }
  return right;
}

}  // namespace

std::vector<bool> check_score_mods(const cuda::Device& device, std::uint64_t first_seed, int cases,
                                   const std::string& kernel_part) {
  compile(device, first_seed, cases, kernel_part);
  std::vector<bool> right;
  for (int i = 0; i < cases; ++i)
    right.push_back(check_case(device, first_seed + static_cast<std::uint64_t>(i), kernel_part));
  return right;
}

}  // namespace stof::check
