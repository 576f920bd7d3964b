#include "backend/cpu/gemm.h"

#include <omp.h>

#include <cstring>
#include <list>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <utility>

#include "core/check.h"

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

dnnl::primitive_attr make_attributes(Activation activation, Store store) {
  dnnl::post_ops ops;
  const auto append = [&](dnnl::algorithm algorithm) {
#if DNNL_VERSION_MAJOR >= 3
    ops.append_eltwise(algorithm, 0.f, 0.f);
#else
    ops.append_eltwise(1.f, algorithm, 0.f, 0.f);
#endif
  };
  if (store == Store::kAdd) ops.append_sum(1.f);
  if (activation == Activation::kRelu) append(dnnl::algorithm::eltwise_relu);
  if (activation == Activation::kGeluErf) append(dnnl::algorithm::eltwise_gelu_erf);
  if (activation == Activation::kGeluTanh) append(dnnl::algorithm::eltwise_gelu_tanh);
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(ops);
  // oneDNN's own scratch memory is shared by the threads of the process.
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
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

struct Linear::Impl {
  std::int64_t in = 0, out = 0;
  dnnl::primitive_attr attributes;
  dnnl::memory weights, bias;

  std::mutex mutex;
  std::list<std::shared_ptr<const Prepared>> recent;  // guarded by mutex; most recent first

  dnnl::inner_product_forward::primitive_desc describe(
      std::int64_t rows, const dnnl::memory::desc& weights_desc) const {
    const dnnl::memory::desc source({rows, in}, kF32, Tag::ab), result({rows, out}, kF32, Tag::ab),
        bias_desc({out}, kF32, Tag::a);
    constexpr auto kKind = dnnl::prop_kind::forward_inference;
#if DNNL_VERSION_MAJOR >= 3
    return {engine(), kKind, source, weights_desc, bias_desc, result, attributes};
#else
    return {{kKind, source, weights_desc, bias_desc, result}, attributes, engine()};
#endif
  }

  void pack(const TensorView& weight, const TensorView& bias_view) {
    const dnnl::memory::desc plain({out, in}, kF32, Tag::ab);
    const auto chosen =
        describe(kPackingRows, dnnl::memory::desc({out, in}, kF32, Tag::any)).weights_desc();
    dnnl::stream stream(engine());
    dnnl::memory from(plain, engine(), const_cast<void*>(weight.data));
    weights = dnnl::memory(chosen, engine());
    dnnl::reorder(from, weights).execute(stream, from, weights);
    stream.wait();
    bias = dnnl::memory({{out}, kF32, Tag::a}, engine());
    std::memcpy(bias.get_data_handle(), bias_view.data,
                static_cast<std::size_t>(out) * sizeof(float));
  }

  std::shared_ptr<const Prepared> prepare(std::int64_t rows) {
    const int num_threads = omp_get_max_threads();
    const std::lock_guard lock(mutex);
    for (auto it = recent.begin(); it != recent.end(); ++it)
      if ((*it)->rows == rows && (*it)->num_threads == num_threads) {
        recent.splice(recent.begin(), recent, it);
        return recent.front();
      }
    const auto description = describe(rows, weights.get_desc());
    recent.push_front(std::make_shared<const Prepared>(
        Prepared{rows, num_threads, dnnl::inner_product_forward(description),
                 description.src_desc(), description.dst_desc(), description.scratchpad_desc()}));
    if (recent.size() > kMaxPrimitives) recent.pop_back();
    return recent.front();
  }
};

Linear::Linear(const TensorView& weight, const TensorView& bias, Activation activation, Store store)
    : impl_(std::make_unique<Impl>()) {
  STOF_CHECK(weight.dtype == DType::kFloat32 && weight.shape.rank() == 2 && weight.is_contiguous(),
             kInvalidArgument, "weight: expected a contiguous float32 [out, in], got {}",
             weight.describe());
  STOF_CHECK(bias.dtype == DType::kFloat32 && bias.shape == Dims({weight.shape[0]}) &&
                 bias.is_contiguous(),
             kInvalidArgument, "bias: expected a contiguous float32[{}], got {}", weight.shape[0],
             bias.describe());
  STOF_CHECK(store == Store::kReplace || activation == Activation::kNone, kInvalidArgument,
             "activation: expected none for a layer that adds to its output");
  impl_->out = weight.shape[0];
  impl_->in = weight.shape[1];
  try {
    impl_->attributes = make_attributes(activation, store);
    impl_->pack(weight, bias);
  } catch (const dnnl::error& error) {
    rethrow(error, kPackingRows);
  }
}

Linear::~Linear() = default;
Linear::Linear(Linear&&) noexcept = default;

std::int64_t Linear::in_features() const { return impl_->in; }
std::int64_t Linear::out_features() const { return impl_->out; }

void Linear::run(const float* x, std::int64_t rows, float* y) const {
  if (rows == 0) return;
  try {
    const auto prepared = impl_->prepare(rows);
    dnnl::stream stream(engine());
    const dnnl::memory source(prepared->source, engine(), const_cast<float*>(x));
    const dnnl::memory result(prepared->result, engine(), y);
    const dnnl::memory scratch(prepared->scratch, engine(),
                               thread_scratch(prepared->scratch.get_size()));
    prepared->primitive.execute(stream, {{DNNL_ARG_SRC, source},
                                         {DNNL_ARG_WEIGHTS, impl_->weights},
                                         {DNNL_ARG_BIAS, impl_->bias},
                                         {DNNL_ARG_DST, result},
                                         {DNNL_ARG_SCRATCHPAD, scratch}});
    stream.wait();
  } catch (const dnnl::error& error) {
    rethrow(error, rows);
  }
}

}  // namespace stof::cpu
