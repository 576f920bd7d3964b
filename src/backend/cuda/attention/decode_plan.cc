#include <chrono>
#include <cmath>

#include "backend/cpu/attention/check.h"
#include "backend/cuda/attention/decode_check.h"
#include "backend/cuda/attention/decode_config.h"
#include "backend/cuda/attention/decode_lists.h"
#include "backend/cuda/attention/device_plan.h"
#include "backend/cuda/kernel_cache.h"
#include "backend/cuda/upload.h"
#include "core/check.h"
#include "stof/cuda_decode.h"

namespace stof::cuda {
namespace {

/// Mirrors DecodeParams in kernels/attention/decode/config.cuh.
struct KernelParams {
  const void *q, *k, *v;
  void *out, *lse;
  CUdeviceptr partial_out, partial_sums, arrivals;
  const void *lengths, *page_table;
  CUdeviceptr tiles, payloads, sequence_begin, list_begin;
  const void *sink, *alibi_slopes, *position_table;
  CUdeviceptr position_buckets;
  std::int64_t q_strides[3], k_strides[3], v_strides[3], out_strides[3], page_table_stride;
  std::int32_t batch, num_heads_kv, group, seq_q, num_rows, row_blocks, slot_rows, seq_kv;
  std::int32_t window_left, window_right, sink_tokens, resident_blocks, max_waves;
  float scale, softcap;
  std::int32_t position_reach;
};
static_assert(sizeof(KernelParams) == 312, "config.cuh asserts the same");

void copy_strides(const TensorView& tensor, std::int64_t (&strides)[3]) {
  for (int i = 0; i < 3; ++i) strides[i] = tensor.strides[i];
}

}  // namespace

struct DecodePlan::Impl {
  DecodeProblem problem;
  Device device;
  DecodeFacts facts;
  codegen::DecodeConfig config;
  DecodeGrid grid;
  const Kernel* kernel = nullptr;
  const Kernel* combine = nullptr;  ///< null where the kernel merges parts itself
  DeviceBuffer partial_out, partial_sums, arrivals;
  DeviceBuffer tiles, payloads, sequence_begin, list_begin;
  DeviceBuffer position_buckets;  ///< of distances -position_reach .. position_reach
  std::int64_t position_reach = 0;

  void upload_lists(const mask::Mask& mask);
  void upload_buckets();
};

void DecodePlan::Impl::upload_lists(const mask::Mask& mask) {
  const DecodeLists lists = build_decode_lists(problem, mask, config);
  tiles = upload(lists.tiles, "the mask's tiles");
  payloads = upload(lists.payloads, "the mask's payloads");
  sequence_begin = upload(lists.sequence_begin, "the mask's sequences");
  list_begin = upload(lists.list_begin, "the mask's lists");
  const Driver& driver = Driver::instance();
  driver.check(driver.cuStreamSynchronize(nullptr), "uploading the mask");
  facts.device_bytes += lists.bytes();
}

void DecodePlan::Impl::upload_buckets() {
  AttentionProblem distances;
  distances.seq_q = problem.seq_q, distances.seq_kv = problem.max_seq_kv;
  distances.position_bias = problem.position_bias;
  const std::vector<std::int32_t> buckets = cuda::position_buckets(distances);
  if (buckets.empty()) return;
  position_reach = static_cast<std::int64_t>(buckets.size()) / 2;
  position_buckets = upload(buckets, "the position bias's buckets");
  const Driver& driver = Driver::instance();
  driver.check(driver.cuStreamSynchronize(nullptr), "uploading buckets");
  facts.device_bytes += position_buckets.bytes();
}

namespace {

std::shared_ptr<DecodePlan::Impl> build_impl(const DecodeProblem& problem, const mask::Mask* mask,
                                             int device_ordinal) try {
  problem.validate();
  const auto start = std::chrono::steady_clock::now();
  auto impl = std::make_shared<DecodePlan::Impl>();
  impl->problem = problem;
  std::optional<mask::Mask> bound;  // before the GPU is opened: errors in the mask come first
  if (mask != nullptr)
    bound = mask->bind({problem.batch, problem.num_heads_q, problem.seq_q, problem.max_seq_kv},
                       mask::Alignment::kBottomRight);
  impl->device = Device::open(device_ordinal);
  const DeviceFacts& gpu = impl->device.facts();
  STOF_CHECK(gpu.major >= 8, kUnsupported,
             "{} (compute capability {}.{}): the decode kernel needs 8.0", gpu.name, gpu.major,
             gpu.minor);
  impl->config = decode_config(problem, mask != nullptr, gpu.major, gpu.minor, gpu.num_sms);
  impl->grid = decode_grid(problem, impl->config, gpu.num_sms);
  impl->kernel = &loaded_kernel({impl->config.name(), codegen::emit_decode(impl->config), "decode",
                                 impl->config.shared_bytes(), impl->config.early_start},
                                impl->device);
  if (impl->config.merges)
    impl->arrivals = zeros(
        static_cast<std::size_t>(problem.batch * problem.num_heads_kv * impl->grid.row_blocks) * 4,
        "arrivals of the decode kernel's blocks");
  else
    impl->combine =
        &loaded_kernel({impl->config.name(), codegen::emit_decode_combine(impl->config), "combine",
                        impl->config.combine_shared_bytes(), impl->config.early_start},
                       impl->device);
  const auto rows = static_cast<std::size_t>(impl->grid.slots() * impl->grid.slot_rows);
  impl->partial_out = DeviceBuffer(rows * static_cast<std::size_t>(problem.head_dim_v) * 4,
                                   "partial outputs of the decode kernel");
  impl->partial_sums = DeviceBuffer(rows * 8, "partial sums of the decode kernel");
  impl->facts.kernel = impl->config.name();
  impl->facts.blocks = impl->grid.blocks();
  impl->facts.workspace_bytes =
      impl->partial_out.bytes() + impl->partial_sums.bytes() + impl->arrivals.bytes();
  impl->facts.device_bytes = impl->facts.workspace_bytes;
  if (bound) impl->upload_lists(*bound);
  impl->upload_buckets();
  impl->facts.build_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return impl;
} catch (const Error& error) {
  add_context(error, "planning " + problem.describe());
}

}  // namespace

DecodePlan DecodePlan::build(const DecodeProblem& problem, int device) {
  return DecodePlan(build_impl(problem, nullptr, device));
}

DecodePlan DecodePlan::build(const DecodeProblem& problem, const mask::Mask& mask, int device) {
  STOF_CHECK(!problem.window_left && problem.window_right == 0 && problem.sink_tokens == 0,
             kInvalidArgument,
             "window_left, window_right, sink_tokens: expected their defaults beside a mask; say "
             "the window in the mask, or build without one");
  return DecodePlan(build_impl(problem, &mask, device));
}

void DecodePlan::run(const DecodeTensors& t, void* stream) const try {
  const Impl& impl = *impl_;
  const DecodeProblem& p = impl.problem;
  check_decode_tensors(p, t);
  impl.device.use();  // the caller may be a thread that never touched the GPU
  KernelParams params{};
  params.q = t.q.data, params.k = t.k.data, params.v = t.v.data;
  params.out = t.out.data, params.lse = t.lse.data;
  params.partial_out = impl.partial_out.address();
  params.partial_sums = impl.partial_sums.address();
  params.arrivals = impl.arrivals.address();
  params.lengths = t.lengths.data;
  params.page_table = t.page_table.data;
  params.tiles = impl.tiles.address();
  params.payloads = impl.payloads.address();
  params.sequence_begin = impl.sequence_begin.address();
  params.list_begin = impl.list_begin.address();
  params.sink = t.sink.data, params.alibi_slopes = t.alibi_slopes.data;
  params.position_table = t.position_bias.data;
  params.position_buckets =
      impl.position_buckets.address() +
      static_cast<CUdeviceptr>(impl.position_reach) * sizeof(std::int32_t);  // of distance 0
  copy_strides(t.q, params.q_strides);
  copy_strides(t.k, params.k_strides);
  copy_strides(t.v, params.v_strides);
  copy_strides(t.out, params.out_strides);
  if (p.page_size > 0) params.page_table_stride = t.page_table.strides[0];
  const auto narrow = [](std::int64_t value) { return static_cast<std::int32_t>(value); };
  constexpr std::int32_t kUnbounded = 0x7fffffff;  // Window::kUnbounded in schedule.cuh
  params.batch = narrow(p.batch);
  params.num_heads_kv = narrow(p.num_heads_kv);
  params.group = narrow(p.num_heads_q / p.num_heads_kv);
  params.seq_q = narrow(p.seq_q);
  params.num_rows = narrow(packed_rows(p));
  params.row_blocks = impl.grid.row_blocks;
  params.slot_rows = impl.grid.slot_rows;
  params.seq_kv = narrow(p.max_seq_kv);
  params.window_left = p.window_left ? narrow(*p.window_left) : kUnbounded;
  params.window_right = p.window_right ? narrow(*p.window_right) : kUnbounded;
  params.sink_tokens = narrow(p.sink_tokens);
  params.resident_blocks = impl.grid.resident_blocks;
  params.max_waves = impl.grid.max_waves;
  params.scale = p.scale.value_or(1.0f / std::sqrt(static_cast<float>(p.head_dim_qk)));
  params.softcap = p.softcap;
  params.position_reach = narrow(impl.position_reach);
  void* arguments[] = {&params};
  impl.kernel->launch(static_cast<unsigned>(impl.grid.blocks()),
                      static_cast<unsigned>(impl.config.threads()), static_cast<CUstream>(stream),
                      arguments);
  if (impl.combine != nullptr)
    impl.combine->launch(static_cast<unsigned>(p.batch * p.num_heads_q * p.seq_q),
                         codegen::kDecodeCombineThreads, static_cast<CUstream>(stream), arguments);
} catch (const Error& error) {
  add_context(error, impl_->problem.describe() + ", " + impl_->facts.kernel);
}

const DecodeProblem& DecodePlan::problem() const { return impl_->problem; }
const DecodeFacts& DecodePlan::facts() const { return impl_->facts; }

}  // namespace stof::cuda
