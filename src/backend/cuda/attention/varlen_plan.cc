#include <chrono>

#include "backend/cpu/attention/packed.h"
#include "backend/cuda/attention/blockwise_pass.h"
#include "backend/cuda/attention/packed_plan.h"
#include "backend/cuda/attention/problem_check.h"
#include "backend/cuda/upload.h"
#include "core/check.h"
#include "stof/cuda_attention.h"

namespace stof::cuda {
namespace {

cpu::PackedSequences packed_for_gpu(const AttentionProblem& problem, const mask::Mask& mask,
                                    const std::vector<std::int64_t>& cu_seqlens_q,
                                    const std::vector<std::int64_t>& cu_seqlens_kv) {
  cpu::PackedSequences packed = cpu::pack_sequences(problem, mask, cu_seqlens_q, cu_seqlens_kv);
  check_problem(packed.problem);
  constexpr std::int64_t kMaxRows = 0x7fffffff;
  for (const auto& [name, cumulative] :
       {std::pair{"cu_seqlens_q", &cu_seqlens_q}, std::pair{"cu_seqlens_kv", &cu_seqlens_kv}})
    STOF_CHECK(cumulative->back() >= 1 && cumulative->back() <= kMaxRows, kUnsupported,
               "{}: the GPU kernels take 1 to {} rows in all, got {}; use the CPU", name, kMaxRows,
               cumulative->back());
  return packed;
}

}  // namespace

struct VarlenPlan::Impl {
  AttentionProblem problem;  ///< batch = sequences, seq_q and seq_kv = the longest
  AttentionProblem packed;   ///< one batch entry of all rows
  cpu::ExpectedShapes shapes;
  Device device;
  PlanFacts facts;
  DeviceBuffer sequences;
  std::optional<DeviceBlockwise> pass;
};

std::vector<CandidateFacts> VarlenPlan::candidates(const AttentionProblem& problem,
                                                   const mask::Mask& mask,
                                                   const std::vector<std::int64_t>& cu_seqlens_q,
                                                   const std::vector<std::int64_t>& cu_seqlens_kv,
                                                   const GpuModel& gpu) {
  const auto packed = packed_for_gpu(problem, mask, cu_seqlens_q, cu_seqlens_kv);
  const KernelTarget target{gpu.compute_capability, gpu.num_sms, gpu.alignment};
  std::vector<CandidateFacts> facts;
  for (const ConfigCandidate& candidate :
       packed_candidates(packed, blocks_of_parts(packed), target))
    facts.push_back({candidate.config.name(), candidate.predicted_us, true, ""});
  return facts;
}

VarlenPlan VarlenPlan::build(const AttentionProblem& problem, const mask::Mask& mask,
                             const std::vector<std::int64_t>& cu_seqlens_q,
                             const std::vector<std::int64_t>& cu_seqlens_kv,
                             const std::string& kernel, int device_ordinal, int alignment) try {
  const auto packed = packed_for_gpu(problem, mask, cu_seqlens_q, cu_seqlens_kv);
  const auto start = std::chrono::steady_clock::now();
  auto impl = std::make_shared<Impl>();
  impl->device = Device::open(device_ordinal);
  const DeviceFacts& gpu = impl->device.facts();
  const PackedBlocks blocks = blocks_of_parts(packed);
  const auto candidates = packed_candidates(
      packed, blocks, {gpu.major * 10 + gpu.minor, gpu.num_sms, alignment, gpu.name});
  const ConfigCandidate& chosen = choose_candidate(candidates, kernel);
  impl->problem = impl->packed = packed.problem;
  impl->packed.batch = 1;
  impl->packed.seq_q = cu_seqlens_q.back();
  impl->packed.seq_kv = cu_seqlens_kv.back();
  impl->shapes = packed.shapes();
  impl->facts.kernel = chosen.config.name();
  impl->facts.predicted_us = chosen.predicted_us;
  const std::vector<Sequence> sequences = sequences_of(packed);
  impl->sequences = upload(sequences, "the plan's sequences");
  impl->facts.device_bytes += impl->sequences.bytes();
  impl->pass.emplace(chosen.config, 1,
                     build_packed_plan(packed, blocks, chosen.config,
                                       DeviceBlockwise::num_blocks(chosen.config, impl->device)),
                     impl->device, &impl->facts);
  impl->facts.build_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return VarlenPlan(impl);
} catch (const Error& error) {
  add_context(error, "planning packed sequences, " + problem.describe());
}

void VarlenPlan::run(const AttentionTensors& tensors, void* stream) const try {
  const Impl& impl = *impl_;
  cpu::check_tensors(impl.problem, impl.shapes, tensors);
  AttentionTensors t = tensors;
  t.q = unpacked_rows(t.q);
  t.k = unpacked_rows(t.k);
  t.v = unpacked_rows(t.v);
  t.out = unpacked_rows(t.out);
  check_outputs(t, impl.pass->alignment());
  impl.device.use();  // the caller may be a thread that never touched the GPU
  impl.pass->launch(impl.packed, t, reinterpret_cast<CUdeviceptr>(t.lse.data),
                    impl.sequences.address(), static_cast<CUstream>(stream));
} catch (const Error& error) {
  add_context(error, impl_->problem.describe() + ", " + impl_->facts.kernel);
}

const AttentionProblem& VarlenPlan::problem() const { return impl_->problem; }
const PlanFacts& VarlenPlan::facts() const { return impl_->facts; }

}  // namespace stof::cuda
