#include <chrono>

#include "backend/cpu/attention/check.h"
#include "backend/cuda/attention/blockwise_pass.h"
#include "backend/cuda/attention/candidates.h"
#include "backend/cuda/attention/grid_lists.h"
#include "backend/cuda/attention/problem_check.h"
#include "backend/cuda/attention/two_of_four.h"
#include "backend/cuda/plan/dense_pass.h"
#include "core/check.h"
#include "stof/cuda_attention.h"

namespace stof::cuda {
namespace {

DeviceBlockwise make_pass(const AttentionProblem& problem, const Pass& pass, const Device& device,
                          PlanFacts* facts) {
  const int num_blocks = DeviceBlockwise::num_blocks(pass.config, device);
  if (pass.grid)
    return {pass.config,   *pass.grid,
            problem.batch, build_grid_device_plan(problem, *pass.grid, pass.config, num_blocks),
            device,        facts};
  const plan::MaskPlan plan = build_mask_plan(*pass.blocks, plan_config(pass.config));
  return {pass.config, pass.step, build_device_plan(problem, plan, pass.config, num_blocks), device,
          facts};
}

std::string reasons(const std::vector<InfeasibleFamily>& families) {
  std::string text;
  for (const InfeasibleFamily& family : families)
    text += fmt::format("\n  {}: {}", family.name, family.reason);
  return text;
}

}  // namespace

struct AttentionPlan::Impl {
  AttentionProblem problem;
  Device device;
  PlanFacts facts;
  std::vector<DeviceBlockwise> passes;
  std::optional<DeviceRowwise> rowwise;  ///< in place of passes
  DeviceBuffer lse;                      ///< for merging, where the caller wants none
};

std::vector<CandidateFacts> AttentionPlan::candidates(const AttentionProblem& problem,
                                                      const mask::Mask& mask, const GpuModel& gpu) {
  check_dense(problem);
  const KernelTarget target{gpu.compute_capability, gpu.num_sms, gpu.alignment};
  std::vector<CandidateFacts> facts;
  for (const Candidate& candidate : enumerate_candidates(problem, mask, target))
    facts.push_back({candidate.name(), candidate.predicted_us(), true, candidate.by_name_only});
  for (const InfeasibleFamily& family : infeasible_families(problem, mask, target))
    facts.push_back({family.name, 0, false, family.reason});
  return facts;
}

AttentionPlan AttentionPlan::build(const AttentionProblem& problem, const mask::Mask& mask,
                                   const std::string& kernel, int device_ordinal,
                                   int alignment) try {
  check_dense(problem);
  const auto start = std::chrono::steady_clock::now();
  const Device device = Device::open(device_ordinal);
  const KernelTarget target{device.facts().major * 10 + device.facts().minor,
                            device.facts().num_sms, alignment, device.facts().name};
  const auto candidates = enumerate_candidates(problem, mask, target, !kernel.empty());
  STOF_CHECK(!candidates.empty(), kUnsupported, "{}: no kernel can run {}{}", device.facts().name,
             problem.describe(), reasons(infeasible_families(problem, mask, target)));
  const Candidate* chosen = &candidates.front();
  if (!kernel.empty()) {
    chosen = nullptr;
    std::string known;
    for (const Candidate& candidate : candidates) {
      known.append("\n  ").append(candidate.name());
      if (candidate.name() == kernel) chosen = &candidate;
    }
    STOF_CHECK(chosen != nullptr, kInvalidArgument, "kernel: expected one of{}\ngot {}", known,
               kernel);
  }
  auto impl = std::make_shared<Impl>();
  impl->problem = problem;
  impl->device = device;
  impl->facts.kernel = chosen->name();
  impl->facts.predicted_us = chosen->predicted_us();
  for (const Pass& pass : chosen->passes)
    impl->passes.push_back(make_pass(problem, pass, device, &impl->facts));
  if (chosen->rowwise) impl->rowwise.emplace(*chosen->rowwise, device, &impl->facts);
  if (impl->passes.size() > 1 && !problem.return_lse) {
    impl->lse = DeviceBuffer(
        static_cast<std::size_t>(problem.batch * problem.num_heads_q * problem.seq_q) * 4,
        "the log-sum-exp between passes");
    impl->facts.device_bytes += impl->lse.bytes();
  }
  impl->facts.build_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return AttentionPlan(impl);
} catch (const Error& error) {
  add_context(error, "planning " + problem.describe());
}

AttentionPlan AttentionPlan::build_dense(const AttentionProblem& problem, const TensorView& visible,
                                         void* stream, const std::string& kernel,
                                         int device_ordinal, int alignment) try {
  check_dense(problem);
  const auto start = std::chrono::steady_clock::now();
  auto impl = std::make_shared<Impl>();
  impl->problem = problem;
  impl->device = Device::open(device_ordinal);
  impl->passes.push_back(dense_pass(problem, visible, kernel, alignment, impl->device,
                                    static_cast<CUstream>(stream), &impl->facts));
  impl->facts.build_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return AttentionPlan(impl);
} catch (const Error& error) {
  add_context(error, "planning a boolean tensor, " + problem.describe());
}

AttentionPlan AttentionPlan::build_two_of_four(const AttentionProblem& problem,
                                               const mask::Mask& mask, const std::string& kernel,
                                               int device_ordinal, int alignment) try {
  check_dense(problem);
  const auto start = std::chrono::steady_clock::now();
  auto impl = std::make_shared<Impl>();
  impl->problem = problem;
  impl->device = Device::open(device_ordinal);
  impl->passes.push_back(
      two_of_four_pass(problem, mask, kernel, alignment, impl->device, &impl->facts));
  impl->facts.build_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return AttentionPlan(impl);
} catch (const Error& error) {
  add_context(error, "planning two of four keys, " + problem.describe());
}

void AttentionPlan::run(const AttentionTensors& t, void* stream) const try {
  const Impl& impl = *impl_;
  const AttentionProblem& p = impl.problem;
  cpu::check_tensors(p, cpu::dense_shapes(p), t);
  check_outputs(t, impl.rowwise ? 16 : impl.passes.front().alignment());
  impl.device.use();  // the caller may be a thread that never touched the GPU
  if (impl.rowwise) return impl.rowwise->launch(p, t, static_cast<CUstream>(stream));
  const CUdeviceptr lse =
      t.lse.defined() ? reinterpret_cast<CUdeviceptr>(t.lse.data) : impl.lse.address();
  for (const DeviceBlockwise& pass : impl.passes)
    pass.launch(p, t, lse, 0, static_cast<CUstream>(stream));
} catch (const Error& error) {
  add_context(error, impl_->problem.describe() + ", " + impl_->facts.kernel);
}

const AttentionProblem& AttentionPlan::problem() const { return impl_->problem; }
const PlanFacts& AttentionPlan::facts() const { return impl_->facts; }

}  // namespace stof::cuda
