#include "model/cuda/bert_encoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "backend/cuda/attention/packed_plan.h"
#include "backend/cuda/attention/problem_check.h"
#include "backend/cuda/rows/pooling.h"
#include "backend/cuda/upload.h"
#include "core/check.h"
#include "exec/cuda_session.h"
#include "jit/compile.h"
#include "model/bert_graph.h"

namespace stof::model {
namespace {

const BertConfig& checked(const BertConfig& config, DType dtype) {
  STOF_CHECK(dtype == DType::kFloat16 || dtype == DType::kBFloat16, kUnsupported,
             "dtype: on a GPU encoders compute in float16 or bfloat16, got {}", to_string(dtype));
  STOF_CHECK(config.hidden_size % 8 == 0 && config.intermediate_size % 8 == 0, kUnsupported,
             "hidden_size and intermediate_size: GPU encoders take multiples of 8, got {} and {}; "
             "use the CPU",
             config.hidden_size, config.intermediate_size);
  return config;
}

codegen::PoolingKind pooling_kind(cpu::Pooling pooling) {
  switch (pooling) {
    case cpu::Pooling::kMean:
      return codegen::PoolingKind::kMean;
    case cpu::Pooling::kCls:
      return codegen::PoolingKind::kCls;
    case cpu::Pooling::kMax:
      return codegen::PoolingKind::kMax;
  }
  throw_error(ErrorCode::kInternal, "pooling {} has no kernel", static_cast<int>(pooling));
}

/// Compiles every attention kernel that texts of any length may pick under any mask, unless it is
/// cached, all at once.
void compile_ahead(const cuda::Device& device, const AttentionProblem& problem) {
  const cuda::KernelTarget target{device.facts().major * 10 + device.facts().minor,
                                  device.facts().num_sms};
  cuda::check_problem(problem);
  std::vector<jit::CubinRequest> requests;
  constexpr bool kSharedHeads = true;  // no head shares keys with another: masks change nothing
  for (const auto& kernel : cuda::packed_configs(problem, kSharedHeads, target))
    requests.push_back({kernel.name(), codegen::emit_attention(kernel), device.facts().target()});
  jit::cubins_for(requests);
}

}  // namespace

struct CudaBertEncoder::Impl {
  Impl(const BertWeights& checkpoint, const BertConfig& c, DType type, int ordinal,
       const exec::SessionOptions& options)
      : config(checked(c, type)),
        dtype(type),
        device(cuda::Device::open(ordinal)),
        pooling(device, dtype, c.hidden_size),
        session(device, graph_of(c, type), upload(device, graph_of(c, type)(1), checkpoint),
                options) {
    // Now, so that a missing compiler is known before the first text.
    compile_ahead(device, *exec::attention_problem(graph_of(config, dtype)(1)));
    session.prepare(std::min<std::int64_t>(64, config.max_positions));
  }

  static exec::GraphOf graph_of(const BertConfig& config, DType dtype) {
    return [config, dtype](std::int64_t rows) { return bert_session_graph(config, rows, dtype); };
  }

  static std::shared_ptr<const exec::CudaWeights> upload(const cuda::Device& device,
                                                         const graph::Graph& graph,
                                                         const BertWeights& checkpoint) {
    return std::make_shared<const exec::CudaWeights>(device, graph,
                                                     bind_bert_weights(graph, checkpoint).values);
  }

  BertConfig config;
  DType dtype;
  cuda::Device device;
  cuda::PoolingKernels pooling;
  exec::CudaSession session;
  cuda::DeviceBuffer offsets;  ///< int64 [texts + 1]; used while the session is
  cuda::DeviceBuffer vectors;  ///< float32 [texts, hidden]; likewise

  void run(const PackedTexts& texts, const mask::MaskSet& mask, EncoderTiming& timing,
           const std::function<void(const exec::CudaResult&)>& finish) {
    texts.validate(config);
    exec::RunTiming spent;
    session.run(texts.batch(mask, config), finish, &spent);
    timing.plan += spent.plan;
  }
};

namespace {

void download(void* to, cuda::CUdeviceptr from, std::size_t bytes, cuda::CUstream stream) {
  const cuda::Driver& driver = cuda::Driver::instance();
  driver.check(driver.cuMemcpyDtoHAsync(to, from, bytes, stream),
               "downloading the encoder's result");
  driver.check(driver.cuStreamSynchronize(stream), "running the encoder");
}

/// float16 that overflowed inside shows as NaN or infinity after the last normalisation.
void check_finite(const Tensor& result, DType dtype) {
  for (const float value : result.as<float>())
    STOF_CHECK(std::isfinite(value), kUnsupported,
               "{}: this model's values overflowed on these texts; compute in {}", to_string(dtype),
               dtype == DType::kFloat16 ? "bfloat16" : "float32, on the CPU");
}

}  // namespace

CudaBertEncoder::CudaBertEncoder(const BertWeights& weights, const BertConfig& config, DType dtype,
                                 int device, const exec::SessionOptions& options)
    : impl_(std::make_unique<Impl>(weights, config, dtype, device, options)) {}

CudaBertEncoder::~CudaBertEncoder() {
  try {
    impl_->device.use();  // memory is freed in the current context, and threads begin without one
  } catch (const Error&) {
    // The driver is gone at the end of a process, and the memory with it.
  }
}

const BertConfig& CudaBertEncoder::config() const { return impl_->config; }

std::string CudaBertEncoder::place() const {
  return fmt::format("{}, {}", impl_->device.facts().name, to_string(impl_->dtype));
}

Tensor CudaBertEncoder::forward(const PackedTexts& texts, const mask::MaskSet& mask,
                                EncoderTiming& timing) const {
  const Dims shape = {texts.num_tokens(), impl_->config.hidden_size};
  if (texts.num_tokens() == 0) return Tensor(DType::kFloat32, shape);
  Tensor states(impl_->dtype, shape);
  impl_->run(texts, mask, timing, [&](const exec::CudaResult& result) {
    download(states.data(), result.address, states.bytes(), result.stream);
  });
  Tensor result = Tensor::converted(std::as_const(states).view(), DType::kFloat32);
  check_finite(result, impl_->dtype);
  return result;
}

Tensor CudaBertEncoder::pooled(const PackedTexts& texts, const mask::MaskSet& mask,
                               cpu::Pooling pooling, EncoderTiming& timing) const {
  Tensor vectors(DType::kFloat32, {texts.num_texts(), impl_->config.hidden_size});
  if (texts.num_texts() == 0) return vectors;
  impl_->run(texts, mask, timing, [&](const exec::CudaResult& result) {
    refill(&impl_->offsets, texts.offsets, "offsets of texts", result.stream);
    if (vectors.bytes() > impl_->vectors.bytes())
      impl_->vectors = cuda::DeviceBuffer(vectors.bytes(), "text vectors");
    impl_->pooling.run(pooling_kind(pooling), result.address, impl_->offsets.address(),
                       texts.num_texts(), impl_->vectors.address(), result.stream);
    download(vectors.data(), impl_->vectors.address(), vectors.bytes(), result.stream);
  });
  check_finite(vectors, impl_->dtype);
  return vectors;
}

}  // namespace stof::model
