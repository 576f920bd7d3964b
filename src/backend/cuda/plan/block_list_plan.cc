#include <chrono>
#include <optional>

#include "backend/cpu/attention/check.h"
#include "backend/cuda/attention/blockwise_pass.h"
#include "backend/cuda/attention/problem_check.h"
#include "backend/cuda/kernel_cache.h"
#include "backend/cuda/plan/block_list_geometry.h"
#include "backend/cuda/upload.h"
#include "codegen/plan.h"
#include "core/check.h"
#include "stof/cuda_block_lists.h"

namespace stof::cuda {
namespace {

void check_request(const AttentionProblem& problem, const BlockListShape& shape) {
  check_dense(problem);
  shape.validate(problem);
}

/// Strides of a view whose batch and head extents may be 1. Throws InvalidArgument unless the other
/// extents are as expected.
void list_strides(const char* name, const TensorView& view, const Dims& expected, int fixed,
                  std::int64_t* strides) {
  bool right =
      view.defined() && view.dtype == DType::kInt32 && view.shape.rank() == expected.rank();
  for (int i = 0; right && i < fixed; ++i)
    right = view.shape[i] == expected[i] || (i < 2 && view.shape[i] == 1);
  STOF_CHECK(right, kInvalidArgument, "{}: expected int32{} (batch and heads may be 1{}), got {}",
             name, expected.to_string(), fixed < expected.rank() ? ", the last extent less" : "",
             view.defined() ? view.describe() : "nothing");
  STOF_CHECK(view.is_aligned(), kInvalidArgument, "{}: expected an address divisible by 4", name);
  for (int i = 0; i < expected.rank(); ++i) strides[i] = view.shape[i] == 1 ? 0 : view.strides[i];
}

}  // namespace

struct BlockListPlan::Impl {
  AttentionProblem problem;
  BlockListShape shape;
  Device device;
  PlanFacts facts;
  const Kernel* list_kernel = nullptr;
  const Kernel* order_kernel = nullptr;
  BlockListGeometry geometry;  ///< with the addresses of what follows
  DeviceBuffer full_tiles, partial_tiles, tile_payloads, row_tiles, error;
  std::optional<DeviceBlockwise> pass;

  void allocate(const codegen::AttentionConfig& config);
  /// `params`: with the lists' addresses and strides.
  void launch(BlockListParams params, CUstream stream) const;
};

void BlockListPlan::Impl::allocate(const codegen::AttentionConfig& config) {
  BlockListParams& p = geometry.params;
  const auto buffer = [](std::int64_t entries, std::size_t bytes, const char* what) {
    return DeviceBuffer(static_cast<std::size_t>(entries) * bytes, what);
  };
  DeviceLists lists;
  lists.num_records = p.num_records;
  lists.change = true;
  lists.records = buffer(p.num_records, sizeof(WorkRecord), "the plan's records");
  lists.partial = buffer(std::int64_t{p.num_rows} * p.partial_capacity, sizeof(plan::PartialTile),
                         "the plan's partial tiles");
  lists.runs =
      buffer(std::int64_t{p.num_rows} * p.run_capacity, sizeof(plan::TileRun), "the plan's runs");
  lists.payloads = upload(geometry.payloads, "the plan's payloads");
  const std::vector<std::int32_t> buckets = position_buckets(problem);
  lists.position_buckets = upload(buckets, "the plan's position buckets");
  full_tiles = upload(geometry.full_tiles, "the plan's key tiles");
  partial_tiles = upload(geometry.partial_tiles, "the plan's key tiles");
  tile_payloads = upload(geometry.tile_payloads, "the plan's key tiles");
  row_tiles = buffer(p.num_rows, 8, "the plan's tile counts");
  error = DeviceBuffer(sizeof(ListFault), "the plan's error word");
  const Driver& driver = Driver::instance();
  driver.check(driver.cuMemsetD8Async(error.address(), 0xff, error.bytes(), nullptr),
               "clearing the error word");
  p.full_tiles = full_tiles.address();
  p.partial_tiles = partial_tiles.address();
  p.tile_payloads = tile_payloads.address();
  p.runs = lists.runs.address();
  p.partial = lists.partial.address();
  p.row_tiles = row_tiles.address();
  p.records = lists.records.address();
  p.error = error.address();
  for (const DeviceBuffer* held : {&full_tiles, &partial_tiles, &tile_payloads, &row_tiles, &error})
    facts.device_bytes += held->bytes();
  pass.emplace(config, 1, std::move(lists), std::vector<SplitPart>{}, device, &facts);
}

void BlockListPlan::Impl::launch(BlockListParams params, CUstream stream) const {
  void* arguments[] = {&params};
  list_kernel->launch(static_cast<unsigned>(geometry.list_blocks()), codegen::kListThreads, stream,
                      arguments);
  order_kernel->launch(static_cast<unsigned>(geometry.order_blocks()), codegen::kOrderThreads,
                       stream, arguments);
}

std::vector<CandidateFacts> BlockListPlan::candidates(const AttentionProblem& problem,
                                                      const BlockListShape& shape,
                                                      const GpuModel& gpu) {
  check_request(problem, shape);
  const KernelTarget target{gpu.compute_capability, gpu.num_sms, gpu.alignment};
  std::vector<CandidateFacts> facts;
  for (const ConfigCandidate& candidate : block_list_candidates(problem, shape, target))
    facts.push_back({candidate.config.name(), candidate.predicted_us, true, ""});
  return facts;
}

BlockListPlan BlockListPlan::build(const AttentionProblem& problem, const BlockListShape& shape,
                                   const std::string& kernel, int device_ordinal,
                                   int alignment) try {
  check_request(problem, shape);
  const auto start = std::chrono::steady_clock::now();
  auto impl = std::make_shared<Impl>();
  impl->problem = problem;
  impl->shape = shape;
  impl->device = Device::open(device_ordinal);
  const DeviceFacts& gpu = impl->device.facts();
  const KernelTarget target{gpu.major * 10 + gpu.minor, gpu.num_sms, alignment, gpu.name};
  const auto candidates = block_list_candidates(problem, shape, target);
  const ConfigCandidate& chosen = choose_candidate(candidates, kernel);
  impl->facts.kernel = chosen.config.name();
  impl->facts.predicted_us = chosen.predicted_us;
  impl->list_kernel = &loaded_kernel(
      {"list_blocks", codegen::emit_list_blocks(), "list_blocks", codegen::kListSharedBytes},
      impl->device);
  impl->order_kernel = &loaded_kernel(
      {"order_records", codegen::emit_order_records(), "order_records", codegen::kOrderSharedBytes,
       /*early_start=*/gpu.major >= 9},
      impl->device);
  impl->geometry = block_list_geometry(problem, shape, chosen.config,
                                       DeviceBlockwise::num_blocks(chosen.config, impl->device));
  impl->allocate(chosen.config);

  // Until lists come: none, for all rows alike.
  const DeviceBuffer nothing = upload(std::vector<std::int32_t>{0}, "an empty list");
  BlockListParams params = impl->geometry.params;
  params.counts = params.ids = nothing.address();
  params.max_blocks = 1;
  impl->launch(params, nullptr);
  const Driver& driver = Driver::instance();
  driver.check(driver.cuStreamSynchronize(nullptr), "making the first plan");
  impl->facts.build_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return BlockListPlan(impl);
} catch (const Error& error) {
  add_context(error, "planning block lists, " + problem.describe());
}

void BlockListPlan::update(const BlockLists& lists, void* stream) const try {
  const Impl& impl = *impl_;
  BlockListParams params = impl.geometry.params;
  const AttentionProblem& p = impl.problem;
  const Dims rows{p.batch, impl.shape.num_list_heads(p), params.num_q_blocks};
  list_strides("counts", lists.counts, rows, 3, params.count_strides);
  list_strides("ids", lists.ids,
               {p.batch, impl.shape.num_list_heads(p), params.num_q_blocks, params.max_blocks}, 3,
               params.id_strides);
  const std::int64_t width = lists.ids.shape[3];
  STOF_CHECK(
      width >= 1 && (width <= params.max_blocks), kInvalidArgument,
      "ids: expected a last extent of 1..{}, got {}; build the plan with a larger max_blocks",
      params.max_blocks, width);
  params.max_blocks = static_cast<std::int32_t>(width);
  params.counts = reinterpret_cast<CUdeviceptr>(lists.counts.data);
  params.ids = reinterpret_cast<CUdeviceptr>(lists.ids.data);
  impl.device.use();  // the caller may be a thread that never touched the GPU
  impl.launch(params, static_cast<CUstream>(stream));
} catch (const Error& error) {
  add_context(error, "block lists of " + impl_->problem.describe());
}

void BlockListPlan::run(const AttentionTensors& t, void* stream) const try {
  const Impl& impl = *impl_;
  const AttentionProblem& p = impl.problem;
  cpu::check_tensors(p, cpu::dense_shapes(p), t);
  check_outputs(t, impl.pass->alignment());
  impl.device.use();  // as above
  impl.pass->launch(p, t, reinterpret_cast<CUdeviceptr>(t.lse.data), 0,
                    static_cast<CUstream>(stream));
} catch (const Error& error) {
  add_context(error, impl_->problem.describe() + ", " + impl_->facts.kernel);
}

void BlockListPlan::check(void* stream) const {
  const Impl& impl = *impl_;
  const auto on = static_cast<CUstream>(stream);
  const Driver& driver = Driver::instance();
  impl.device.use();  // as above
  ListFault fault;
  driver.check(driver.cuMemcpyDtoHAsync(&fault, impl.error.address(), sizeof(fault), on),
               "reading the error word of block lists");
  driver.check(driver.cuStreamSynchronize(on), "waiting for block lists");
  if (!fault.any()) return;
  driver.check(driver.cuMemsetD8Async(impl.error.address(), 0xff, sizeof(fault), on),
               "clearing the error word of block lists");
  throw_error(ErrorCode::kInvalidArgument, "{}", describe_fault(fault, impl.problem, impl.shape));
}

const AttentionProblem& BlockListPlan::problem() const { return impl_->problem; }
const BlockListShape& BlockListPlan::shape() const { return impl_->shape; }
const PlanFacts& BlockListPlan::facts() const { return impl_->facts; }

}  // namespace stof::cuda
