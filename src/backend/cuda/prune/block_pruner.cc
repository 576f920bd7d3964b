#include <algorithm>
#include <cmath>

#include "backend/cuda/attention/configs.h"
#include "backend/cuda/kernel_cache.h"
#include "backend/cuda/prune/block_params.h"
#include "backend/cuda/prune/block_plan.h"
#include "backend/cuda/upload.h"
#include "codegen/prune.h"
#include "core/bits.h"
#include "core/check.h"
#include "stof/cuda_prune.h"

namespace stof::cuda {
namespace {

/// Addresses and strides of q or k.
void set_operand(const char* name, const TensorView& view, DType dtype, const Dims& shape,
                 CUdeviceptr* address, std::int64_t* strides) {
  STOF_CHECK(view.defined() && view.dtype == dtype && view.shape == shape, kInvalidArgument,
             "{}: expected {}{}, got {}", name, to_string(dtype), shape.to_string(),
             view.defined() ? view.describe() : "nothing");
  *address = reinterpret_cast<CUdeviceptr>(view.data);
  bool aligned = *address % 16 == 0 && (view.strides[3] == 1 || shape[3] == 1);
  for (int i = 0; i < 3; ++i) {
    strides[i] = view.strides[i];
    aligned = aligned && (shape[i] == 1 || view.strides[i] % 8 == 0);
  }
  STOF_CHECK(aligned, kInvalidArgument,
             "{}: expected rows at multiples of 16 bytes with a last stride of 1, got {}; make it "
             "contiguous",
             name, view.describe());
}

}  // namespace

struct BlockPruner::Impl {
  AttentionProblem problem;
  mask::PruneSettings settings;
  Device device;
  codegen::BlockPruneConfig config;
  const Kernel* pool = nullptr;
  const Kernel* choose = nullptr;
  DeviceBuffer pooled_q, pooled_k, used_q, used_k, states, kept, ids;
  BlockPruneParams params;
  double kept_fraction = 1;
  bool causal = false;

  void upload_plan(const BlockPrunePlan& plan);
};

void BlockPruner::Impl::upload_plan(const BlockPrunePlan& plan) {
  kept_fraction = plan.kept_fraction;
  params.q_blocks = static_cast<std::int32_t>(plan.q_blocks);
  params.kv_blocks = static_cast<std::int32_t>(plan.kv_blocks);
  params.max_kept = plan.max_kept;
  states = upload(plan.states, "the base mask's blocks");
  kept = upload(plan.kept, "how many blocks rows keep");
  used_q = upload(plan.used_q, "queries that see something");
  used_k = upload(plan.used_k, "keys that are seen");
  Driver::instance().check(Driver::instance().cuStreamSynchronize(nullptr), "uploading the base");
}

BlockPruner BlockPruner::build(const AttentionProblem& problem, const mask::PruneSettings& settings,
                               const mask::Mask& base, int device_ordinal) try {
  auto impl = std::make_shared<Impl>();
  impl->problem = problem;
  impl->settings = settings;
  codegen::BlockPruneConfig& config = impl->config;
  config.element = problem.dtype;
  config.head_dim = static_cast<int>(problem.head_dim_qk);
  config.max_pooling = settings.pooling == mask::PrunePooling::kMax;
  config.validate();
  const BlockPrunePlan plan = plan_block_prune(problem, settings, base);
  impl->causal = lists_are_causal(problem, settings, base);
  impl->device = Device::open(device_ordinal);
  impl->upload_plan(plan);
  BlockPruneParams& p = impl->params;
  while (config.key_blocks < p.kv_blocks) config.key_blocks *= 2;
  const int room =
      KernelTarget{impl->device.facts().major * 10 + impl->device.facts().minor}.shared_per_block();
  STOF_CHECK(
      config.choose_shared_bytes() <= room, kUnsupported,
      "block: {} key blocks need {} bytes of shared memory, the GPU has {}; use larger blocks",
      p.kv_blocks, config.choose_shared_bytes(), room);
  impl->pool = &loaded_kernel({config.name("pool_blocks"), emit_pool_blocks(config), "pool_blocks"},
                              impl->device);
  impl->choose = &loaded_kernel({config.name("choose_blocks"), emit_choose_blocks(config),
                                 "choose_blocks", config.choose_shared_bytes()},
                                impl->device);
  const std::int64_t heads_q = problem.batch * problem.num_heads_q;
  const auto floats = [&](std::int64_t heads, std::int64_t blocks) {
    return static_cast<std::size_t>(heads * blocks * problem.head_dim_qk) * sizeof(float);
  };
  impl->pooled_q = DeviceBuffer(floats(heads_q, p.q_blocks), "pooled queries");
  impl->pooled_k =
      DeviceBuffer(floats(problem.batch * problem.num_heads_kv, p.kv_blocks), "pooled keys");
  impl->ids = DeviceBuffer(
      static_cast<std::size_t>(heads_q * p.q_blocks * p.max_kept) * sizeof(std::int32_t),
      "the chosen blocks");
  p.pooled_q = impl->pooled_q.address();
  p.pooled_k = impl->pooled_k.address();
  p.used_q = impl->used_q.address();
  p.used_k = impl->used_k.address();
  p.states = impl->states.address();
  p.kept = impl->kept.address();
  p.ids = impl->ids.address();
  p.batch = static_cast<std::int32_t>(problem.batch);
  constexpr std::int64_t kMostBlocks = 0x7fffffff;  // of a launch
  const std::int64_t pool_q = ceil_div(heads_q * p.q_blocks, config.pooled_at_once());
  const std::int64_t pool_k =
      ceil_div(problem.batch * problem.num_heads_kv * p.kv_blocks, config.pooled_at_once());
  const std::int64_t choose_blocks = heads_q * ceil_div(p.q_blocks, config.kChooseRows);
  STOF_CHECK(
      std::max(pool_q + pool_k, choose_blocks) <= kMostBlocks &&
          std::max(problem.seq_q, problem.seq_kv) <= kMostBlocks - settings.block,
      kUnsupported,
      "batch, num_heads_q, seq_q: {} blocks of threads are more than a launch has; split the "
      "batch",
      std::max(pool_q + pool_k, choose_blocks));
  p.pool_blocks_q = static_cast<std::int32_t>(pool_q);
  p.heads_q = static_cast<std::int32_t>(problem.num_heads_q);
  p.heads_kv = static_cast<std::int32_t>(problem.num_heads_kv);
  p.seq_q = static_cast<std::int32_t>(problem.seq_q);
  p.seq_kv = static_cast<std::int32_t>(problem.seq_kv);
  p.block = static_cast<std::int32_t>(settings.block);
  p.scale = problem.scale.value_or(1 / std::sqrt(static_cast<float>(problem.head_dim_qk)));
  return BlockPruner(impl);
} catch (const Error& error) {
  add_context(error, "planning " + settings.to_text() + " of " + problem.describe());
}

BlockLists BlockPruner::run(const TensorView& q, const TensorView& k, void* stream) const try {
  const Impl& impl = *impl_;
  const AttentionProblem& p = impl.problem;
  BlockPruneParams params = impl.params;
  set_operand("q", q, p.dtype, {p.batch, p.num_heads_q, p.seq_q, p.head_dim_qk}, &params.q,
              params.q_strides);
  set_operand("k", k, p.dtype, {p.batch, p.num_heads_kv, p.seq_kv, p.head_dim_qk}, &params.k,
              params.k_strides);
  impl.device.use();  // the caller may be a thread that never touched the GPU
  void* arguments[] = {&params};
  const auto on = static_cast<CUstream>(stream);
  const auto pool_keys =
      ceil_div(p.batch * p.num_heads_kv * params.kv_blocks, impl.config.pooled_at_once());
  impl.pool->launch(static_cast<unsigned>(params.pool_blocks_q + pool_keys),
                    codegen::BlockPruneConfig::kPoolThreads, on, arguments);
  const auto groups = ceil_div(params.q_blocks, codegen::BlockPruneConfig::kChooseRows);
  impl.choose->launch(static_cast<unsigned>(p.batch * p.num_heads_q * groups),
                      codegen::BlockPruneConfig::kChooseThreads, on, arguments);
  return {{device_pointer(impl.kept.address()), DType::kInt32, {1, 1, params.q_blocks}},
          {device_pointer(impl.ids.address()),
           DType::kInt32,
           {p.batch, p.num_heads_q, params.q_blocks, params.max_kept}}};
} catch (const Error& error) {
  add_context(error, impl_->settings.to_text() + " of " + impl_->problem.describe());
}

BlockListShape BlockPruner::shape() const {
  BlockListShape shape;
  shape.block_q = shape.block_kv = impl_->settings.block;
  shape.max_blocks = impl_->params.max_kept;
  shape.causal = impl_->causal;
  shape.expected_share =
      std::clamp(static_cast<double>(impl_->params.max_kept) / impl_->params.kv_blocks, 1e-6, 1.0);
  return shape;
}

const AttentionProblem& BlockPruner::problem() const { return impl_->problem; }
double BlockPruner::kept_fraction() const { return impl_->kept_fraction; }

}  // namespace stof::cuda
