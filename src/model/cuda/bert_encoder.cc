#include "model/cuda/bert_encoder.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>

#include "backend/cuda/rows/row_kernels.h"
#include "core/check.h"
#include "model/cuda/batch_plans.h"
#include "model/cuda/device_weights.h"

namespace stof::model {
namespace {

using Clock = std::chrono::steady_clock;

/// A stream of the encoder's own.
class Stream {
 public:
  Stream() {
    constexpr unsigned kNonBlocking = 1;  // does not wait for the default stream
    const cuda::Driver& driver = cuda::Driver::instance();
    driver.check(driver.cuStreamCreate(&handle_, kNonBlocking), "creating a stream");
  }
  ~Stream() { cuda::Driver::instance().cuStreamDestroy(handle_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cuda::CUstream handle() const { return handle_; }

 private:
  cuda::CUstream handle_ = nullptr;
};

/// Activations of a batch of up to `rows` rows and `texts` texts.
struct Activations {
  std::int64_t rows = 0, texts = 0;
  cuda::DeviceBuffer states;          ///< [rows, hidden]: the residual stream
  cuda::DeviceBuffer context;         ///< [rows, hidden]: attention's output
  cuda::DeviceBuffer product;         ///< [rows, hidden]: what joins the residual stream
  cuda::DeviceBuffer wide;            ///< [rows, 3 hidden] q, k, v; then [rows, inner]
  cuda::DeviceBuffer ids, positions;  ///< int32 [rows]
  cuda::DeviceBuffer offsets;         ///< int64 [texts + 1]
  cuda::DeviceBuffer vectors;         ///< float32 [texts, hidden]
};

const BertConfig& checked(const BertConfig& config, DType dtype) {
  STOF_CHECK(dtype == DType::kFloat16 || dtype == DType::kBFloat16, kUnsupported,
             "dtype: on a GPU encoders compute in float16 or bfloat16, got {}", to_string(dtype));
  STOF_CHECK(config.intermediate_size % 8 == 0, kUnsupported,
             "intermediate_size: GPU encoders take multiples of 8, got {}; use the CPU",
             config.intermediate_size);
  return config;
}

codegen::RowOperator pooling_operator(cpu::Pooling pooling) {
  switch (pooling) {
    case cpu::Pooling::kMean:
      return codegen::RowOperator::kPoolMean;
    case cpu::Pooling::kCls:
      return codegen::RowOperator::kPoolCls;
    case cpu::Pooling::kMax:
      return codegen::RowOperator::kPoolMax;
  }
  throw_error(ErrorCode::kInternal, "pooling {} has no kernel", static_cast<int>(pooling));
}

}  // namespace

struct CudaBertEncoder::Impl {
  Impl(const BertWeights& checkpoint, const BertConfig& c, DType type, int ordinal)
      : config(checked(c, type)),
        dtype(type),
        device(cuda::Device::open(ordinal)),
        kernels(device, dtype, c.hidden_size),
        weights(upload_weights(checkpoint, c, dtype)),
        plans(device, weights, config, dtype),
        workspace(cuda::GemmPlanner::kWorkspaceBytes, "cuBLASLt's workspace") {
    // Now, so that a missing compiler is known before the first text.
    BatchPlans::compile_ahead(device, config, dtype);
    PackedTexts text;
    text.add(std::vector<std::int32_t>(
        static_cast<std::size_t>(std::min<std::int64_t>(64, config.max_positions))));
    plans.attention(text, mask::all(), stream.handle());
  }

  BertConfig config;
  DType dtype;
  cuda::Device device;
  cuda::RowKernels kernels;
  DeviceWeights weights;
  BatchPlans plans;
  cuda::DeviceBuffer workspace;
  Stream stream;
  Activations memory;
  std::mutex mutex;

  void reserve(std::int64_t rows, std::int64_t texts);
  void upload(const PackedTexts& texts);
  void attend(const cuda::PackedAttention& attention, std::int64_t rows) const;
  /// Leaves the last hidden states in memory.states.
  void run_layers(const PackedTexts& texts, const mask::Mask& mask, EncoderTiming& timing);
  void wait() const;
};

void CudaBertEncoder::Impl::reserve(std::int64_t rows, std::int64_t texts) {
  if (rows <= memory.rows && texts <= memory.texts) return;
  rows = std::max(rows, memory.rows);
  texts = std::max(texts, memory.texts);
  memory = {};  // first, so that old and new need not fit side by side
  const auto buffer = [](std::int64_t count, std::size_t size, const char* what) {
    return cuda::DeviceBuffer(static_cast<std::size_t>(count) * size, what);
  };
  const std::int64_t hidden = config.hidden_size;
  Activations fresh;
  fresh.states = buffer(rows * hidden, 2, "hidden states");
  fresh.context = buffer(rows * hidden, 2, "attention's output");
  fresh.product = buffer(rows * hidden, 2, "a product");
  fresh.wide = buffer(rows * std::max(3 * hidden, config.intermediate_size), 2, "q, k and v");
  fresh.ids = buffer(rows, 4, "token ids");
  fresh.positions = buffer(rows, 4, "positions");
  fresh.offsets = buffer(texts + 1, 8, "offsets of texts");
  fresh.vectors = buffer(texts * hidden, 4, "text vectors");
  fresh.rows = rows;
  fresh.texts = texts;
  // Padding rows take part in products; what they hold goes nowhere, but should be numbers.
  const cuda::Driver& driver = cuda::Driver::instance();
  for (const cuda::DeviceBuffer* padded : {&fresh.states, &fresh.context, &fresh.wide})
    driver.check(driver.cuMemsetD8Async(padded->address(), 0, padded->bytes(), stream.handle()),
                 "clearing activations");
  memory = std::move(fresh);
}

void CudaBertEncoder::Impl::upload(const PackedTexts& texts) {
  const cuda::Driver& driver = cuda::Driver::instance();
  const auto copy = [&](const cuda::DeviceBuffer& to, const auto& values) {
    driver.check(driver.cuMemcpyHtoDAsync(to.address(), values.data(),
                                          values.size() * sizeof(values[0]), stream.handle()),
                 "uploading a batch");
  };
  copy(memory.ids, texts.ids);
  copy(memory.positions, texts.positions);
  copy(memory.offsets, texts.offsets);
}

void CudaBertEncoder::Impl::attend(const cuda::PackedAttention& attention,
                                   std::int64_t rows) const {
  const std::int64_t hidden = config.hidden_size, head_dim = config.head_dim();
  const auto at = [](const cuda::DeviceBuffer& buffer, std::int64_t element) {
    return cuda::device_pointer(buffer.address() + static_cast<std::uint64_t>(element) * 2);
  };
  const Dims shape = {rows, config.num_heads, head_dim}, wide = {3 * hidden, head_dim, 1};
  AttentionTensors tensors;
  tensors.q = {at(memory.wide, 0), dtype, shape, wide};
  tensors.k = {at(memory.wide, hidden), dtype, shape, wide};
  tensors.v = {at(memory.wide, 2 * hidden), dtype, shape, wide};
  tensors.out = {at(memory.context, 0), dtype, shape, {hidden, head_dim, 1}};
  attention.run(tensors, stream.handle());
}

void CudaBertEncoder::Impl::run_layers(const PackedTexts& texts, const mask::Mask& mask,
                                       EncoderTiming& timing) {
  texts.validate(config);
  device.use();
  const std::int64_t rows = texts.num_tokens();
  const auto plan_start = Clock::now();
  const cuda::PackedAttention& attention = plans.attention(texts, mask, stream.handle());
  const std::vector<LayerProducts>& products = plans.products(rows);
  timing.plan += std::chrono::duration<double>(Clock::now() - plan_start).count();
  reserve(BatchPlans::padded_rows(rows), texts.num_texts());
  upload(texts);

  const auto states = memory.states.address(), context = memory.context.address(),
             product = memory.product.address(), wide = memory.wide.address();
  const auto multiply = [&](const cuda::Gemm& gemm, cuda::CUdeviceptr x, cuda::CUdeviceptr weight,
                            cuda::CUdeviceptr y) {
    gemm.run(x, weight, y, workspace.address(), stream.handle());
  };
  kernels.embedding_norm(weights.embeddings, memory.ids.address(), memory.positions.address(),
                         states, rows, stream.handle());
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    const DeviceWeights::Layer& layer = weights.layers[i];
    multiply(products[i].query_key_value, states, layer.query_key_value, wide);
    attend(attention, rows);
    multiply(products[i].attention_output, context, layer.attention_output, product);
    kernels.residual_norm(states, product, layer.attention_output_bias, layer.attention_norm, rows,
                          stream.handle());
    multiply(products[i].intermediate, states, layer.intermediate, wide);
    if (config.activation == cpu::Activation::kGeluErf)
      kernels.gelu_erf(wide, rows * config.intermediate_size, stream.handle());
    multiply(products[i].output, wide, layer.output, product);
    kernels.residual_norm(states, product, layer.output_bias, layer.output_norm, rows,
                          stream.handle());
  }
}

void CudaBertEncoder::Impl::wait() const {
  const cuda::Driver& driver = cuda::Driver::instance();
  driver.check(driver.cuStreamSynchronize(stream.handle()), "running the encoder");
}

namespace {

void download(void* to, const cuda::DeviceBuffer& from, std::size_t bytes, cuda::CUstream stream) {
  const cuda::Driver& driver = cuda::Driver::instance();
  driver.check(driver.cuMemcpyDtoHAsync(to, from.address(), bytes, stream),
               "downloading the encoder's result");
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
                                 int device)
    : impl_(std::make_unique<Impl>(weights, config, dtype, device)) {}

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

Tensor CudaBertEncoder::forward(const PackedTexts& texts, const mask::Mask& mask,
                                EncoderTiming& timing) const {
  const Dims shape = {texts.num_tokens(), impl_->config.hidden_size};
  if (texts.num_tokens() == 0) return Tensor(DType::kFloat32, shape);
  const std::lock_guard lock(impl_->mutex);
  impl_->run_layers(texts, mask, timing);
  Tensor states(impl_->dtype, shape);
  download(states.data(), impl_->memory.states, states.bytes(), impl_->stream.handle());
  impl_->wait();
  Tensor result = Tensor::converted(std::as_const(states).view(), DType::kFloat32);
  check_finite(result, impl_->dtype);
  return result;
}

Tensor CudaBertEncoder::pooled(const PackedTexts& texts, const mask::Mask& mask,
                               cpu::Pooling pooling, EncoderTiming& timing) const {
  Tensor result(DType::kFloat32, {texts.num_texts(), impl_->config.hidden_size});
  if (texts.num_texts() == 0) return result;
  const std::lock_guard lock(impl_->mutex);
  impl_->run_layers(texts, mask, timing);
  impl_->kernels.pool(pooling_operator(pooling), impl_->memory.states.address(),
                      impl_->memory.offsets.address(), texts.num_texts(),
                      impl_->memory.vectors.address(), impl_->stream.handle());
  download(result.data(), impl_->memory.vectors, result.bytes(), impl_->stream.handle());
  impl_->wait();
  check_finite(result, impl_->dtype);
  return result;
}

}  // namespace stof::model
