#include "backend/cuda/attention/blockwise_pass.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "backend/cpu/attention/check.h"
#include "backend/cuda/attention/grid_lists.h"
#include "backend/cuda/attention/problem_check.h"
#include "backend/cuda/attention/score_mod.h"
#include "backend/cuda/attention/tensor_maps.h"
#include "backend/cuda/kernel_cache.h"
#include "backend/cuda/upload.h"
#include "core/check.h"

namespace stof::cuda {
namespace {

/// Mirrors AttentionParams in kernels/attention/records.cuh.
struct KernelParams {
  CUdeviceptr records, partial, runs, payloads, queue, parts, workspace, arrivals, out, lse;
  std::int64_t out_batch_stride, out_head_stride, out_row_stride;
  std::int32_t num_records, num_runs, num_heads_q, heads_per_group, seq_q, step, residue_rows_q,
      residue_rows_kv;
  float scale_log2, softcap, scale;
  CUdeviceptr sequences = 0, alibi_slopes = 0, sink = 0, bias = 0;
  std::int64_t alibi_stride = 0, sink_stride = 0, bias_strides[4] = {0, 0, 0, 0};
  CUdeviceptr position_table = 0, position_buckets = 0;
  std::int64_t position_head_stride = 0;
  std::int32_t position_bucket_stride = 0, position_reach = 0;
  std::int32_t seq_kv = 0, bottom_right = 0, bias_pairs = 0, zero = 0;
  std::int32_t grid[3] = {0, 0, 0};
  GridCut grid_q{}, grid_kv{};
};
static_assert(sizeof(KernelParams) == 320, "records.cuh asserts the same");

/// With a score modification: mirrors the emitted ScoreMod::Params, which ends with the last word
/// that its tables need.
struct ScoreModParams : KernelParams {
  std::uint64_t table_words[kMaxTableWords];
};

/// Mirrors Operand and Operands in kernels/attention/sm80_blockwise/loader.cuh; strides in bytes.
struct KernelOperand {
  const void* data;
  std::int64_t batch_stride, head_stride, row_stride;
};
struct KernelOperands {
  KernelOperand q, k, v;
};

KernelOperand make_operand(const TensorView& tensor, const char* name, int alignment) {
  check_alignment(tensor, name, alignment);
  return {tensor.data, tensor.strides[0] * 2, tensor.strides[1] * 2, tensor.strides[2] * 2};
}

CUdeviceptr address_of(const TensorView& tensor) {
  return reinterpret_cast<CUdeviceptr>(tensor.data);
}

/// The operands of ALiBi, bias and sink.
void set_score_operands(const AttentionProblem& p, const AttentionTensors& t, std::int64_t step,
                        KernelParams* params) {
  params->seq_kv = static_cast<std::int32_t>(p.seq_kv);
  params->bottom_right = p.alignment == mask::Alignment::kBottomRight;
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

void set_position_operands(const AttentionTensors& t, const DeviceBuffer& buckets,
                           KernelParams* params) {
  params->position_table = address_of(t.position_bias);
  params->position_head_stride = t.position_bias.strides[1];
  params->position_bucket_stride = static_cast<std::int32_t>(t.position_bias.strides[0]);
  STOF_CHECK(params->position_bucket_stride == t.position_bias.strides[0], kUnsupported,
             "position_bias: the GPU kernels take strides up to 2^31 elements, got {}; make it "
             "contiguous",
             t.position_bias.describe());
  params->position_reach = static_cast<std::int32_t>(buckets.bytes() / 4 / 2);
  params->position_buckets =
      buckets.address() + 4 * static_cast<std::size_t>(params->position_reach);
}

constexpr std::size_t kQueueBytes = 8;

std::size_t arrival_bytes(const codegen::AttentionConfig& config, std::size_t parts) {
  const int warps = 4 * config.warpgroups;
  return parts * static_cast<std::size_t>(warps) * sizeof(std::uint32_t);
}

DeviceLists upload_lists(const DevicePlan& plan, DeviceBuffer payloads) {
  DeviceLists lists;
  lists.records = upload(plan.records, "the plan's records");
  lists.partial = upload(plan.partial, "the plan's partial tiles");
  lists.runs = upload(plan.runs, "the plan's runs");
  lists.payloads = std::move(payloads);
  lists.position_buckets = upload(plan.position_buckets, "the plan's position buckets");
  lists.num_records = static_cast<int>(plan.records.size());
  return lists;
}

}  // namespace

DeviceBlockwise::DeviceBlockwise(const codegen::AttentionConfig& config, std::int64_t step,
                                 DeviceLists lists, const std::vector<SplitPart>& parts,
                                 const Device& device, PlanFacts* facts)
    : config_(config),
      step_(step),
      kernel_(&loaded_kernel({config.name(), codegen::emit_attention(config), "attention",
                              config.shared_bytes(), /*early_start=*/device.facts().major >= 9,
                              /*may_spill=*/config.score_mod != nullptr},
                             device)),
      lists_(std::move(lists)),
      queue_(zeros(kQueueBytes, "the plan's queue")),
      parts_(upload(parts, "the plan's parts")),
      workspace_(parts.size() * part_bytes(config), "the plan's workspace"),
      arrivals_(zeros(arrival_bytes(config, parts.size()), "the plan's arrival counts")),
      most_blocks_(num_blocks(config, device)),
      num_blocks_(std::max(1, std::min(most_blocks_, lists_.num_records))) {
  const Driver& driver = Driver::instance();
  driver.check(driver.cuStreamSynchronize(nullptr), "uploading the plan");
  for (const DeviceBuffer* held :
       {&lists_.records, &lists_.partial, &lists_.runs, &lists_.payloads, &lists_.position_buckets,
        &queue_, &parts_, &workspace_, &arrivals_})
    facts->device_bytes += held->bytes();
}

DeviceBlockwise::DeviceBlockwise(const codegen::AttentionConfig& config, std::int64_t step,
                                 const DevicePlan& plan, DeviceBuffer payloads,
                                 const Device& device, PlanFacts* facts)
    : DeviceBlockwise(config, step, upload_lists(plan, std::move(payloads)), plan.parts, device,
                      facts) {
  for (const WorkRecord& record : plan.records)
    facts->tiles += (record.num_partial + record.num_full) * config.heads_per_record();
}

DeviceBlockwise::DeviceBlockwise(const codegen::AttentionConfig& config, std::int64_t step,
                                 const DevicePlan& plan, const Device& device, PlanFacts* facts)
    : DeviceBlockwise(config, step, plan, upload(plan.payloads, "the plan's payloads"), device,
                      facts) {}

DeviceBlockwise::DeviceBlockwise(const codegen::AttentionConfig& config,
                                 const plan::GridOrder& grid, std::int64_t batch,
                                 const DevicePlan& plan, const Device& device, PlanFacts* facts)
    : DeviceBlockwise(config, 1, plan, device, facts) {
  grid_ = grid;
  for (const WorkRecord& record : plan.records)  // each entry runs the records counted once
    facts->tiles +=
        (batch - 1) * (record.num_partial + record.num_full) * config.heads_per_record();
}

void DeviceBlockwise::replace(const DevicePlan& plan, CUstream stream) {
  STOF_CHECK(plan.parts.empty(), kInternal, "{}: expected whole query tiles, got {} parts",
             config_.name(), plan.parts.size());
  refill(&lists_.records, plan.records, "the plan's records", stream);
  refill(&lists_.partial, plan.partial, "the plan's partial tiles", stream);
  refill(&lists_.runs, plan.runs, "the plan's runs", stream);
  refill(&lists_.payloads, plan.payloads, "the plan's payloads", stream);
  lists_.num_records = static_cast<int>(plan.records.size());
  num_blocks_ = std::max(1, std::min(most_blocks_, lists_.num_records));
}

int DeviceBlockwise::num_blocks(const codegen::AttentionConfig& config, const Device& device) {
  return device.facts().num_sms * config.blocks_per_sm;
}

void DeviceBlockwise::launch(const AttentionProblem& p, const AttentionTensors& t, CUdeviceptr lse,
                             CUdeviceptr sequences, CUstream stream) const {
  if (lists_.num_records == 0) return;
  const float scale = p.scale.value_or(1.0f / std::sqrt(static_cast<float>(p.head_dim_qk)));
  ScoreModParams params{{lists_.records.address(),
                         lists_.partial.address(),
                         lists_.runs.address(),
                         lists_.payloads.address(),
                         queue_.address(),
                         parts_.address(),
                         workspace_.address(),
                         arrivals_.address(),
                         reinterpret_cast<CUdeviceptr>(t.out.data),
                         lse,
                         t.out.strides[0],
                         t.out.strides[1],
                         t.out.strides[2],
                         lists_.num_records,
                         static_cast<std::int32_t>(lists_.runs.bytes() / sizeof(plan::TileRun)),
                         static_cast<std::int32_t>(p.num_heads_q),
                         static_cast<std::int32_t>(p.num_heads_q / p.num_heads_kv),
                         static_cast<std::int32_t>(p.seq_q),
                         static_cast<std::int32_t>(step_),
                         static_cast<std::int32_t>(p.seq_q / step_),
                         static_cast<std::int32_t>(p.seq_kv / step_),
                         scale * std::numbers::log2e_v<float>,
                         p.softcap,
                         scale},
                        {}};
  params.sequences = sequences;
  set_score_operands(p, t, step_, &params);
  set_table_words(t.score_tables, params.table_words);
  if (lists_.position_buckets.bytes() > 0)
    set_position_operands(t, lists_.position_buckets, &params);
  const auto blocks = static_cast<unsigned>(num_blocks_);
  const auto threads = static_cast<unsigned>(config_.threads());
  if (config_.family == codegen::KernelFamily::kSm80) {
    KernelOperands operands{make_operand(t.q, "q", config_.load_bytes),
                            make_operand(t.k, "k", config_.load_bytes),
                            make_operand(t.v, "v", config_.load_bytes)};
    void* arguments[] = {&params, &operands};
    kernel_->launch(blocks, threads, stream, arguments, lists_.change);
    return;
  }
  if (grid_) {
    for (int d = 0; d < 3; ++d) params.grid[d] = static_cast<std::int32_t>(grid_->q.extent[d]);
    params.grid_q = grid_cut(grid_->q);
    params.grid_kv = grid_cut(grid_->kv);
    // The map's dimensions are spent on the grid: a launch for each batch entry.
    for (std::int64_t b = 0; b < p.batch; ++b) {
      CUtensorMap q = make_grid_map(t.q, "q", 64, grid_->q, b);
      CUtensorMap k = make_grid_map(t.k, "k", config_.tile_kv, grid_->kv, b);
      CUtensorMap v = make_grid_map(t.v, "v", config_.tile_kv, grid_->kv, b);
      void* arguments[] = {&params, &q, &k, &v};
      kernel_->launch(blocks, threads, stream, arguments, lists_.change);
      params.out += static_cast<CUdeviceptr>(t.out.strides[0] * 2);
      if (lse != 0) params.lse += static_cast<CUdeviceptr>(p.num_heads_q * p.seq_q * 4);
    }
    return;
  }
  CUtensorMap q = make_tensor_map(t.q, "q", 64, step_);
  CUtensorMap k = make_tensor_map(t.k, "k", config_.tile_kv, step_);
  CUtensorMap v = make_tensor_map(t.v, "v", config_.tile_kv, step_);
  void* arguments[] = {&params, &q, &k, &v};
  kernel_->launch(blocks, threads, stream, arguments, lists_.change);
}

}  // namespace stof::cuda
