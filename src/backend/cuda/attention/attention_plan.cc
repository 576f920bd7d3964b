#include <algorithm>
#include <chrono>
#include <cmath>
#include <numbers>

#include "backend/cpu/attention/check.h"
#include "backend/cpu/attention/problem.h"
#include "backend/cuda/attention/candidates.h"
#include "backend/cuda/attention/device_plan.h"
#include "backend/cuda/device.h"
#include "backend/cuda/kernel_cache.h"
#include "backend/cuda/upload.h"
#include "core/check.h"
#include "stof/block_mask.h"
#include "stof/cuda_attention.h"

namespace stof::cuda {
namespace {

/// Mirrors AttentionParams in kernels/attention/records.cuh.
struct KernelParams {
  CUdeviceptr records, partial, runs, payloads, queue, parts, workspace, arrivals, out, lse;
  std::int64_t out_batch_stride, out_head_stride, out_row_stride;
  std::int32_t num_records, num_heads_q, heads_per_group, seq_q, step, residue_rows_q,
      residue_rows_kv;
  float scale_log2, softcap, scale;
  CUdeviceptr sequences = 0, alibi_slopes = 0, sink = 0, bias = 0;
  std::int64_t alibi_stride = 0, sink_stride = 0, bias_strides[4] = {0, 0, 0, 0};
  std::int32_t seq_kv = 0, position_offset = 0, bias_pairs = 0, zero = 0;
};
static_assert(sizeof(KernelParams) == 240, "records.cuh asserts the same");

/// {head_dim, row in residue, residue, heads, batch} in boxes of 64 columns x `box_rows` rows,
/// swizzled by 128 bytes.
CUtensorMap make_tensor_map(const TensorView& tensor, const char* name, std::int64_t box_rows,
                            std::int64_t step) {
  constexpr int kFloat16 = 6, kBFloat16 = 9, kNoInterleave = 0, kSwizzle128 = 3, kPromote256 = 3,
                kZeroFill = 0;
  const std::int64_t residue_rows = tensor.shape[2] / step;
  const std::int64_t extents[5] = {tensor.shape[3], residue_rows, step, tensor.shape[1],
                                   tensor.shape[0]};
  const std::int64_t strides[5] = {1, tensor.strides[2] * step, tensor.strides[2],
                                   tensor.strides[1], tensor.strides[0]};
  std::uint64_t map_extents[5], map_strides[4];
  for (int i = 0; i < 5; ++i) {
    map_extents[i] = static_cast<std::uint64_t>(extents[i]);
    if (i == 0) continue;
    const std::int64_t bytes = strides[i] * 2;
    STOF_CHECK(extents[i] == 1 || (bytes % 16 == 0 && bytes >= 0), kUnsupported,
               "{}: the GPU kernels take strides in multiples of 8 elements, got {}; make it "
               "contiguous",
               name, tensor.describe());
    map_strides[i - 1] = extents[i] == 1 ? 16 : static_cast<std::uint64_t>(bytes);
  }
  STOF_CHECK(reinterpret_cast<std::uintptr_t>(tensor.data) % 16 == 0, kUnsupported,
             "{}: expected an address divisible by 16 bytes", name);
  const std::int64_t in_residue = step == 1 ? box_rows : std::min(box_rows, residue_rows);
  const std::uint32_t box[5] = {64, static_cast<std::uint32_t>(in_residue),
                                static_cast<std::uint32_t>(box_rows / in_residue), 1, 1};
  const std::uint32_t steps[5] = {1, 1, 1, 1, 1};
  CUtensorMap map;
  const Driver& driver = Driver::instance();
  const CUresult result =
      driver.cuTensorMapEncodeTiled(&map, tensor.dtype == DType::kBFloat16 ? kBFloat16 : kFloat16,
                                    5, const_cast<void*>(tensor.data), map_extents, map_strides,
                                    box, steps, kNoInterleave, kSwizzle128, kPromote256, kZeroFill);
  if (result != 0)
    driver.check(result,
                 fmt::format("describing {} = {} to the copy engine", name, tensor.describe()));
  return map;
}

void check_problem(const AttentionProblem& problem) {
  problem.validate();
  STOF_CHECK(problem.dtype == DType::kBFloat16 || problem.dtype == DType::kFloat16, kUnsupported,
             "dtype: the GPU kernels take bfloat16 and float16, got {}", to_string(problem.dtype));
  for (const auto& [field, length] :
       {std::pair{"seq_q", problem.seq_q}, std::pair{"seq_kv", problem.seq_kv}})
    STOF_CHECK(length >= 1, kUnsupported,
               "{}: the GPU kernels take lengths of 1 and more, got {}; use the CPU", field,
               length);
  for (const auto& [field, head_dim] :
       {std::pair{"head_dim_qk", problem.head_dim_qk}, std::pair{"head_dim_v", problem.head_dim_v}})
    STOF_CHECK(head_dim >= 8 && head_dim <= 512 && head_dim % 8 == 0, kUnsupported,
               "{}: the GPU kernels take multiples of 8 from 8 to 512, got {}; use the CPU", field,
               head_dim);
  STOF_CHECK(!problem.scale || *problem.scale > 0, kUnsupported,
             "scale: the GPU kernels take positive scales, got {}", *problem.scale);
}

/// Mirrors Operand and Operands in kernels/attention/sm80_blockwise/loader.cuh; strides in bytes.
struct KernelOperand {
  const void* data;
  std::int64_t batch_stride, head_stride, row_stride;
};
struct KernelOperands {
  KernelOperand q, k, v;
};

/// Throws Unsupported unless a [b, h, s, d] tensor's address and strides are divisible by
/// `alignment` bytes.
void check_alignment(const TensorView& tensor, const char* name, int alignment) {
  bool aligned = reinterpret_cast<std::uintptr_t>(tensor.data) % alignment == 0;
  for (int i = 0; i < 3; ++i)
    aligned &= tensor.shape[i] == 1 || tensor.strides[i] * 2 % alignment == 0;
  STOF_CHECK(aligned, kUnsupported,
             "{}: the plan is for addresses and strides divisible by {} bytes, got {}; make it "
             "contiguous or plan for a smaller alignment",
             name, alignment, tensor.describe());
}

KernelOperand make_operand(const TensorView& tensor, const char* name, int alignment) {
  check_alignment(tensor, name, alignment);
  return {tensor.data, tensor.strides[0] * 2, tensor.strides[1] * 2, tensor.strides[2] * 2};
}

/// What the kernel takes of the tensors it writes, beyond what every backend checks.
void check_outputs(const AttentionTensors& t, int alignment) {
  check_alignment(t.out, "out", alignment);
  if (!t.lse.defined()) return;
  STOF_CHECK(TensorView(t.lse).is_contiguous(), kUnsupported,
             "lse: the GPU kernels write a contiguous tensor, got {}; make it contiguous",
             TensorView(t.lse).describe());
}

CUdeviceptr address_of(const TensorView& tensor) {
  return reinterpret_cast<CUdeviceptr>(tensor.data);
}

/// The operands of ALiBi, bias and sink.
void set_score_operands(const AttentionProblem& p, const AttentionTensors& t, std::int64_t step,
                        KernelParams* params) {
  params->seq_kv = static_cast<std::int32_t>(p.seq_kv);
  params->position_offset = static_cast<std::int32_t>(cpu::position_offset(p));
  if (p.alibi) {
    params->alibi_slopes = address_of(t.alibi_slopes);
    params->alibi_stride = t.alibi_slopes.strides[0];
  }
  if (p.sink) {
    params->sink = address_of(t.sink);
    params->sink_stride = t.sink.strides[0];
  }
  if (!p.bias) return;
  const TensorView bias = cpu::expand_bias(p, t.bias);
  params->bias = address_of(bias);
  bool even = params->bias % 8 == 0;
  for (int i = 0; i < 4; ++i) {
    params->bias_strides[i] = bias.strides[i];
    if (i < 3) even &= bias.strides[i] % 2 == 0;
  }
  params->bias_pairs = even && bias.strides[3] == 1 && step == 1;
}

/// One launch, ready: kernel and lists in device memory.
struct DevicePass {
  codegen::AttentionConfig config;
  std::int64_t step = 1;
  const Kernel* kernel = nullptr;
  DeviceBuffer records, partial, runs, payloads, queue, parts, workspace, arrivals;
  int num_records = 0, num_blocks = 0;
};

/// Adds to `facts` what the pass computes and holds.
DevicePass make_pass(const AttentionProblem& problem, const Pass& pass, const Device& device,
                     PlanFacts* facts) {
  DevicePass out;
  out.config = pass.config;
  out.step = pass.step;
  out.num_blocks = device.facts().num_sms * pass.config.blocks_per_sm;
  const plan::MaskPlan mask_plan = build_mask_plan(*pass.blocks, plan_config(pass.config));
  const DevicePlan host = build_device_plan(problem, mask_plan, pass.config, out.num_blocks);
  out.num_records = static_cast<int>(host.records.size());
  out.num_blocks = std::max(1, std::min(out.num_blocks, out.num_records));
  out.records = upload(host.records, "the plan's records");
  out.partial = upload(host.partial, "the plan's partial tiles");
  out.runs = upload(host.runs, "the plan's runs");
  out.payloads = upload(host.payloads, "the plan's payloads");
  constexpr std::size_t kQueueBytes = 8;
  out.queue = DeviceBuffer(kQueueBytes, "the plan's queue");
  out.parts = upload(host.parts, "the plan's parts");
  out.workspace = DeviceBuffer(host.parts.size() * part_bytes(pass.config), "the plan's workspace");
  out.arrivals = DeviceBuffer(host.parts.size() * static_cast<std::size_t>(pass.config.warpgroups) *
                                  4 * sizeof(std::uint32_t),
                              "the plan's arrival counts");
  const Driver& driver = Driver::instance();
  for (const DeviceBuffer* zero : {&out.queue, &out.arrivals})
    if (zero->bytes() > 0)
      driver.check(driver.cuMemsetD8Async(zero->address(), 0, zero->bytes(), nullptr),
                   "clearing the queue");
  driver.check(driver.cuStreamSynchronize(nullptr), "uploading the plan");
  out.kernel = &loaded_kernel({pass.config.name(), codegen::emit_attention(pass.config),
                               "attention", pass.config.shared_bytes(),
                               /*early_start=*/device.facts().major >= 9},
                              device);
  facts->device_bytes += host.bytes() + kQueueBytes + out.workspace.bytes() + out.arrivals.bytes();
  for (const WorkRecord& record : host.records)
    facts->tiles += (record.num_partial + record.num_full) * pass.config.heads_per_record();
  return out;
}

void launch(const DevicePass& pass, KernelParams params, const AttentionTensors& t,
            CUstream stream) {
  const auto blocks = static_cast<unsigned>(pass.num_blocks);
  const auto threads = static_cast<unsigned>(pass.config.threads());
  if (pass.config.family == codegen::KernelFamily::kSm80) {
    KernelOperands operands{make_operand(t.q, "q", pass.config.load_bytes),
                            make_operand(t.k, "k", pass.config.load_bytes),
                            make_operand(t.v, "v", pass.config.load_bytes)};
    void* arguments[] = {&params, &operands};
    pass.kernel->launch(blocks, threads, stream, arguments);
    return;
  }
  CUtensorMap q = make_tensor_map(t.q, "q", 64, pass.step);
  CUtensorMap k = make_tensor_map(t.k, "k", pass.config.tile_kv, pass.step);
  CUtensorMap v = make_tensor_map(t.v, "v", pass.config.tile_kv, pass.step);
  void* arguments[] = {&params, &q, &k, &v};
  pass.kernel->launch(blocks, threads, stream, arguments);
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
  std::vector<DevicePass> passes;
  std::optional<DeviceRowwise> rowwise;  ///< in place of passes
  DeviceBuffer lse;                      ///< for merging, where the caller wants none
};

std::vector<CandidateFacts> AttentionPlan::candidates(const AttentionProblem& problem,
                                                      const mask::Mask& mask, const GpuModel& gpu) {
  check_problem(problem);
  const KernelTarget target{gpu.compute_capability, gpu.num_sms, gpu.alignment};
  std::vector<CandidateFacts> facts;
  for (const Candidate& candidate : enumerate_candidates(problem, mask, target))
    facts.push_back({candidate.name(), candidate.predicted_us(), true, candidate.by_name_only});
  for (const InfeasibleFamily& family : infeasible_families(problem, target))
    facts.push_back({family.name, 0, false, family.reason});
  return facts;
}

AttentionPlan AttentionPlan::build(const AttentionProblem& problem, const mask::Mask& mask,
                                   const std::string& kernel, int device_ordinal,
                                   int alignment) try {
  check_problem(problem);
  const auto start = std::chrono::steady_clock::now();
  const Device device = Device::open(device_ordinal);
  const KernelTarget target{device.facts().major * 10 + device.facts().minor,
                            device.facts().num_sms, alignment, device.facts().name};
  const auto candidates = enumerate_candidates(problem, mask, target, !kernel.empty());
  STOF_CHECK(!candidates.empty(), kUnsupported, "{}: no kernel can run {}{}", device.facts().name,
             problem.describe(), reasons(infeasible_families(problem, target)));
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

void AttentionPlan::run(const AttentionTensors& t, void* stream) const try {
  const Impl& impl = *impl_;
  const AttentionProblem& p = impl.problem;
  cpu::check_tensors(p, cpu::dense_shapes(p), t);
  check_outputs(t, impl.rowwise ? 16 : impl.passes.front().config.load_bytes);
  impl.device.use();  // the caller may be a thread that never touched the GPU
  if (impl.rowwise) return impl.rowwise->launch(p, t, static_cast<CUstream>(stream));
  const float scale = p.scale.value_or(1.0f / std::sqrt(static_cast<float>(p.head_dim_qk)));
  const CUdeviceptr lse =
      t.lse.defined() ? reinterpret_cast<CUdeviceptr>(t.lse.data) : impl.lse.address();
  for (const DevicePass& pass : impl.passes) {
    if (pass.num_records == 0) continue;
    KernelParams params{pass.records.address(),
                        pass.partial.address(),
                        pass.runs.address(),
                        pass.payloads.address(),
                        pass.queue.address(),
                        pass.parts.address(),
                        pass.workspace.address(),
                        pass.arrivals.address(),
                        reinterpret_cast<CUdeviceptr>(t.out.data),
                        lse,
                        t.out.strides[0],
                        t.out.strides[1],
                        t.out.strides[2],
                        pass.num_records,
                        static_cast<std::int32_t>(p.num_heads_q),
                        static_cast<std::int32_t>(p.num_heads_q / p.num_heads_kv),
                        static_cast<std::int32_t>(p.seq_q),
                        static_cast<std::int32_t>(pass.step),
                        static_cast<std::int32_t>(p.seq_q / pass.step),
                        static_cast<std::int32_t>(p.seq_kv / pass.step),
                        scale * std::numbers::log2e_v<float>,
                        p.softcap,
                        scale};
    set_score_operands(p, t, pass.step, &params);
    launch(pass, params, t, static_cast<CUstream>(stream));
  }
} catch (const Error& error) {
  add_context(error, impl_->problem.describe() + ", " + impl_->facts.kernel);
}

const AttentionProblem& AttentionPlan::problem() const { return impl_->problem; }
const PlanFacts& AttentionPlan::facts() const { return impl_->facts; }

}  // namespace stof::cuda
