#include "model/cuda/device_weights.h"

#include <cmath>

#include "core/check.h"

namespace stof::model {
namespace {

constexpr std::size_t kAlignment = 256;  // what cuMemAlloc gives, and all that cuBLASLt likes

/// Some tensors, one behind the other, that go to one place.
struct Piece {
  std::string name;
  std::vector<TensorView> parts;
  DType dtype;
  cuda::CUdeviceptr* address;

  std::size_t bytes() const {
    std::size_t sum = 0;
    for (const TensorView& part : parts)
      sum += static_cast<std::size_t>(num_elements(part.shape)) * dtype_bytes(dtype);
    return (sum + kAlignment - 1) / kAlignment * kAlignment;
  }
};

/// float16 ends at 65504; bfloat16 goes as far as float32.
void check_range(const Tensor& converted, const std::string& name) {
  if (converted.dtype() != DType::kFloat16) return;
  for (const Float16 value : converted.as<Float16>())
    STOF_CHECK(std::isfinite(static_cast<float>(value)), kUnsupported,
               "{}: has a value that float16 cannot hold; compute in bfloat16", name);
}

class Collector {
 public:
  explicit Collector(DType dtype) : dtype_(dtype) {}

  void elements(const std::string& name, std::vector<TensorView> parts,
                cuda::CUdeviceptr* address) {
    pieces_.push_back({name, std::move(parts), dtype_, address});
  }
  void floats(const std::string& name, const TensorView& part, cuda::CUdeviceptr* address) {
    pieces_.push_back({name, {part}, DType::kFloat32, address});
  }
  void norm(const std::string& name, const BertWeights::Norm& norm, float epsilon,
            cuda::NormParameters* out) {
    floats(name + " scale", norm.gamma, &out->gamma);
    floats(name + " shift", norm.beta, &out->beta);
    out->epsilon = epsilon;
  }

  cuda::DeviceBuffer upload() const {
    std::size_t total = 0;
    for (const Piece& piece : pieces_) total += piece.bytes();
    cuda::DeviceBuffer memory(total, "the weights");
    const cuda::Driver& driver = cuda::Driver::instance();
    cuda::CUdeviceptr next = memory.address();
    for (const Piece& piece : pieces_) {
      *piece.address = next;
      cuda::CUdeviceptr at = next;
      for (const TensorView& part : piece.parts) {
        const Tensor converted = Tensor::converted(part, piece.dtype);
        check_range(converted, piece.name);
        driver.check(driver.cuMemcpyHtoDAsync(at, converted.data(), converted.bytes(), nullptr),
                     "uploading " + piece.name);
        driver.check(driver.cuStreamSynchronize(nullptr), "uploading " + piece.name);
        at += converted.bytes();
      }
      next += piece.bytes();
    }
    return memory;
  }

 private:
  DType dtype_;
  std::vector<Piece> pieces_;
};

}  // namespace

DeviceWeights upload_weights(const BertWeights& weights, const BertConfig& config, DType dtype) {
  DeviceWeights out;
  Collector collect(dtype);
  const float epsilon = config.layer_norm_eps;
  TensorView segment = weights.segment_embeddings;  // single texts use the first row only
  segment.shape[0] = 1;
  collect.elements("word embeddings", {weights.word_embeddings}, &out.embeddings.words);
  collect.elements("position embeddings", {weights.position_embeddings}, &out.embeddings.positions);
  collect.elements("segment embeddings", {segment}, &out.embeddings.segment);
  collect.norm("embedding norm", weights.embedding_norm, epsilon, &out.embeddings.norm);
  out.layers.resize(weights.layers.size());
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    const BertWeights::Layer& w = weights.layers[i];
    DeviceWeights::Layer& layer = out.layers[i];
    const std::string name = fmt::format("layer {}: ", i);
    collect.elements(name + "query, key, value", {w.query.weight, w.key.weight, w.value.weight},
                     &layer.query_key_value);
    collect.elements(name + "query, key, value bias", {w.query.bias, w.key.bias, w.value.bias},
                     &layer.query_key_value_bias);
    collect.elements(name + "attention output", {w.attention_output.weight},
                     &layer.attention_output);
    collect.floats(name + "attention output bias", w.attention_output.bias,
                   &layer.attention_output_bias);
    collect.norm(name + "attention norm", w.attention_norm, epsilon, &layer.attention_norm);
    collect.elements(name + "intermediate", {w.intermediate.weight}, &layer.intermediate);
    collect.elements(name + "intermediate bias", {w.intermediate.bias}, &layer.intermediate_bias);
    collect.elements(name + "output", {w.output.weight}, &layer.output);
    collect.floats(name + "output bias", w.output.bias, &layer.output_bias);
    collect.norm(name + "output norm", w.output_norm, epsilon, &layer.output_norm);
  }
  out.memory = collect.upload();
  return out;
}

}  // namespace stof::model
