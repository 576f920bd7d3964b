#include "backend/cpu/gemm.h"

#include <omp.h>

#include <algorithm>
#include <list>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <utility>

#include "core/check.h"
#include "core/optional_libraries.h"

namespace stof::cpu {
namespace {

using Tag = dnnl::memory::format_tag;
constexpr auto kF32 = dnnl::memory::data_type::f32;

/// The weights' layout is asked for at this many rows, a usual batch; oneDNN's choice hardly
/// depends on it.
constexpr std::int64_t kPackingRows = 512;
/// Primitives kept per layer. A corpus has a few hundred distinct batch sizes; each primitive is
/// made in 0.1-0.3 ms, so forgetting one costs little.
constexpr std::size_t kMaxPrimitives = 64;

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

[[noreturn]] void rethrow(const dnnl::error& error, std::int64_t rows) {
  if (error.status == dnnl_out_of_memory)
    throw_error(ErrorCode::kOutOfMemory,
                "dense layer on {} rows: out of memory; use a smaller batch", rows);
  throw_error(ErrorCode::kInternal, "dense layer on {} rows: oneDNN failed: {}", rows,
              error.what());
}

bool reads_operand(PostOp op) { return op == PostOp::kAdd || op == PostOp::kMultiply; }

/// Values from which on threads share a pass over them.
constexpr std::int64_t kSharedValues = 1 << 15;

/// y = y + operand, or y * operand.
void combine(PostOp op, float* y, const float* operand, std::int64_t count) {
  if (op == PostOp::kAdd) {
#pragma omp parallel for simd schedule(static) if (count >= kSharedValues)
    for (std::int64_t i = 0; i < count; ++i) y[i] += operand[i];
  } else {
#pragma omp parallel for simd schedule(static) if (count >= kSharedValues)
    for (std::int64_t i = 0; i < count; ++i) y[i] *= operand[i];
  }
}

dnnl::primitive_attr make_attributes(const std::vector<PostOp>& post_ops, std::int64_t rows,
                                     std::int64_t out) {
  dnnl::post_ops ops;
  const auto eltwise = [&](dnnl::algorithm algorithm, float alpha = 0) {
#if DNNL_VERSION_MAJOR >= 3
    ops.append_eltwise(algorithm, alpha, 0.f);
#else
    ops.append_eltwise(1.f, algorithm, alpha, 0.f);
#endif
  };
  const dnnl::memory::desc operand({rows, out}, kF32, Tag::ab);
  for (const PostOp op : post_ops) switch (op) {
      case PostOp::kRelu:
        eltwise(dnnl::algorithm::eltwise_relu);
        break;
      case PostOp::kGeluErf:
        eltwise(dnnl::algorithm::eltwise_gelu_erf);
        break;
      case PostOp::kGeluTanh:
        eltwise(dnnl::algorithm::eltwise_gelu_tanh);
        break;
      case PostOp::kSilu:
        eltwise(dnnl::algorithm::eltwise_swish, 1);
        break;
      case PostOp::kAdd:
        ops.append_binary(dnnl::algorithm::binary_add, operand);
        break;
      case PostOp::kMultiply:
        ops.append_binary(dnnl::algorithm::binary_mul, operand);
        break;
    }
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(ops);
  // oneDNN's own scratch memory is shared by the threads of the process.
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

dnnl::inner_product_forward::primitive_desc describe(std::int64_t rows, std::int64_t in,
                                                     std::int64_t out,
                                                     const dnnl::memory::desc& weights,
                                                     bool has_bias,
                                                     const std::vector<PostOp>& post_ops) {
  const dnnl::memory::desc source({rows, in}, kF32, Tag::ab), result({rows, out}, kF32, Tag::ab);
  const dnnl::memory::desc bias =
      has_bias ? dnnl::memory::desc({out}, kF32, Tag::a) : dnnl::memory::desc();
  const dnnl::primitive_attr attributes = make_attributes(post_ops, rows, out);
  constexpr auto kKind = dnnl::prop_kind::forward_inference;
#if DNNL_VERSION_MAJOR >= 3
  return {engine(), kKind, source, weights, bias, result, attributes};
#else
  return {{kKind, source, weights, bias, result}, attributes, engine()};
#endif
}

/// A primitive for one number of rows and threads.
struct Prepared {
  std::int64_t rows;
  int num_threads;
  dnnl::inner_product_forward primitive;
  dnnl::memory::desc source, result, scratch;
};

/// Scratch memory of the calling thread; grows, never shrinks.
void* thread_scratch(std::size_t bytes) {
  thread_local Tensor scratch;
  if (scratch.bytes() < bytes) scratch = Tensor(DType::kUInt8, {static_cast<std::int64_t>(bytes)});
  return scratch.data();
}

}  // namespace

struct PackedWeight::Impl {
  std::int64_t in = 0, out = 0;
  dnnl::memory memory;
};

PackedWeight::PackedWeight(const TensorView& weight, Layout layout)
    : impl_(std::make_unique<Impl>()) {
  open_onednn();  // all else here has such a weight
  STOF_CHECK(weight.dtype == DType::kFloat32 && weight.shape.rank() == 2 && weight.is_contiguous(),
             kInvalidArgument, "weight: expected a contiguous float32 [out, in], got {}",
             weight.describe());
  const std::int64_t out = impl_->out = weight.shape[0], in = impl_->in = weight.shape[1];
  try {
    const dnnl::memory::desc plain({out, in}, kF32, Tag::ab);
    dnnl::memory from(plain, engine(), const_cast<void*>(weight.data));
    if (layout == Layout::kPlain) {
      impl_->memory = from;
      return;
    }
    const dnnl::memory::desc any({out, in}, kF32, Tag::any);
    const auto chosen = describe(kPackingRows, in, out, any, true, {}).weights_desc();
    dnnl::stream stream(engine());
    impl_->memory = dnnl::memory(chosen, engine());
    dnnl::reorder(from, impl_->memory).execute(stream, from, impl_->memory);
    stream.wait();
  } catch (const dnnl::error& error) {
    rethrow(error, kPackingRows);
  }
}

PackedWeight::~PackedWeight() = default;
std::int64_t PackedWeight::in_features() const { return impl_->in; }
std::int64_t PackedWeight::out_features() const { return impl_->out; }

struct Linear::Impl {
  std::shared_ptr<const PackedWeight> weight;
  std::vector<PostOp> post_ops;  ///< of oneDNN's primitive
  /// Done after it, each with an operand: oneDNN 2.6 multiplies more than one row by its reference
  /// loops, a thousand times slower, where AVX-512 is there and a post-op reads a tensor.
  std::vector<PostOp> last_ops;
  Tensor bias;  ///< empty: none

  std::mutex mutex;
  std::list<std::shared_ptr<const Prepared>> recent;  // guarded by mutex; most recent first

  const PackedWeight::Impl& packed() const { return weight->impl(); }

  std::shared_ptr<const Prepared> prepare(std::int64_t rows) {
    const int num_threads = omp_get_max_threads();
    const std::lock_guard lock(mutex);
    for (auto it = recent.begin(); it != recent.end(); ++it)
      if ((*it)->rows == rows && (*it)->num_threads == num_threads) {
        recent.splice(recent.begin(), recent, it);
        return recent.front();
      }
    const auto description = describe(rows, packed().in, packed().out, packed().memory.get_desc(),
                                      !bias.empty(), post_ops);
    recent.push_front(std::make_shared<const Prepared>(
        Prepared{rows, num_threads, dnnl::inner_product_forward(description),
                 description.src_desc(), description.dst_desc(), description.scratchpad_desc()}));
    if (recent.size() > kMaxPrimitives) recent.pop_back();
    return recent.front();
  }
};

Linear::Linear(std::shared_ptr<const PackedWeight> weight, const TensorView& bias,
               std::vector<PostOp> post_ops)
    : impl_(std::make_unique<Impl>()) {
  const std::int64_t out = weight->out_features();
  STOF_CHECK(
      !bias.defined() ||
          (bias.dtype == DType::kFloat32 && bias.shape == Dims({out}) && bias.is_contiguous()),
      kInvalidArgument, "bias: expected a contiguous float32[{}], got {}", out, bias.describe());
  impl_->weight = std::move(weight);
  impl_->post_ops = std::move(post_ops);
  std::vector<PostOp>& fused = impl_->post_ops;
  while (!fused.empty() && reads_operand(fused.back())) {
    impl_->last_ops.insert(impl_->last_ops.begin(), fused.back());
    fused.pop_back();
  }
  if (bias.defined()) impl_->bias = Tensor::copy_of(bias);
}

Linear::Linear(const TensorView& weight, const TensorView& bias, std::vector<PostOp> post_ops)
    : Linear(std::make_shared<const PackedWeight>(weight), bias, std::move(post_ops)) {}

Linear::~Linear() = default;
Linear::Linear(Linear&&) noexcept = default;

std::int64_t Linear::in_features() const { return impl_->packed().in; }
std::int64_t Linear::out_features() const { return impl_->packed().out; }

void Linear::run(const float* x, std::int64_t rows, float* y,
                 std::span<const float* const> operands) const {
  const auto fused = static_cast<std::size_t>(
      std::count_if(impl_->post_ops.begin(), impl_->post_ops.end(), reads_operand));
  const std::size_t wanted = fused + impl_->last_ops.size();
  STOF_CHECK(operands.size() == wanted, kInvalidArgument,
             "operands: expected one for each of {} post-ops that read one, got {}", wanted,
             operands.size());
  if (rows == 0) return;
  try {
    const auto prepared = impl_->prepare(rows);
    dnnl::stream stream(engine());
    const auto memory = [](const dnnl::memory::desc& layout, const void* data) {
      return dnnl::memory(layout, engine(), const_cast<void*>(data));
    };
    std::unordered_map<int, dnnl::memory> arguments = {
        {DNNL_ARG_SRC, memory(prepared->source, x)},
        {DNNL_ARG_WEIGHTS, impl_->packed().memory},
        {DNNL_ARG_DST, memory(prepared->result, y)},
        {DNNL_ARG_SCRATCHPAD,
         memory(prepared->scratch, thread_scratch(prepared->scratch.get_size()))}};
    if (!impl_->bias.empty())
      arguments.emplace(DNNL_ARG_BIAS, memory({{impl_->packed().out}, kF32, Tag::a},
                                              std::as_const(impl_->bias).data()));
    std::size_t next = 0;
    for (std::size_t i = 0; i < impl_->post_ops.size(); ++i)
      if (reads_operand(impl_->post_ops[i]))
        arguments.emplace(DNNL_ARG_ATTR_MULTIPLE_POST_OP(static_cast<int>(i)) | DNNL_ARG_SRC_1,
                          memory(prepared->result, operands[next++]));
    prepared->primitive.execute(stream, arguments);
    stream.wait();
  } catch (const dnnl::error& error) {
    rethrow(error, rows);
  }
  for (std::size_t i = 0; i < impl_->last_ops.size(); ++i)
    combine(impl_->last_ops[i], y, operands[fused + i], rows * out_features());
}

}  // namespace stof::cpu
