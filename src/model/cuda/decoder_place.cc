#include "model/cuda/decoder_place.h"

#include <utility>

#include "core/check.h"
#include "exec/cuda_session.h"
#include "model/cuda/download.h"
#include "model/cuda/generator_check.h"

namespace stof::model {
namespace {

exec::GraphOf graph_of(const DecoderModel& model, DType dtype, std::int64_t cache_size,
                       std::int64_t head_rows) {
  return [&model, dtype, cache_size, head_rows](std::int64_t rows) {
    return with_layer_masks(model.graph(rows, dtype,
                                        {.cache_size = cache_size,
                                         .reads_cache = true,
                                         .joined_gate = true,
                                         .head_rows = head_rows,
                                         .pad_vocabulary = true}));
  };
}

class CudaDecoderSession final : public DecoderSession {
 public:
  CudaDecoderSession(const cuda::Device& device, exec::GraphOf graph,
                     std::shared_ptr<const exec::CudaWeights> weights, std::int64_t vocab_size)
      : session_(device, std::move(graph), std::move(weights)), vocab_size_(vocab_size) {}

  Tensor run(const exec::Batch& batch, exec::RunTiming* timing) override {
    Tensor logits;
    session_.run(
        batch,
        [&](const exec::CudaResult& result) {
          // What fills the vocabulary up is no token.
          logits = download_float32(result, vocab_size_);
        },
        timing);
    return logits;
  }

  void move_rows(std::int64_t to, std::int64_t from, std::int64_t count) override {
    session_.move_state_rows(to, from, count);
  }

  void prepare(std::int64_t rows) { session_.prepare(rows); }

 private:
  exec::CudaSession session_;
  std::int64_t vocab_size_;
};

class CudaDecoderPlace final : public DecoderPlace {
 public:
  CudaDecoderPlace(const DecoderModel& model, DType dtype) : model_(model), dtype_(dtype) {
    check_generator(
        graph_of(model, dtype == DType::kFloat32 ? DType::kFloat16 : dtype, kCachePage, 1)(1),
        dtype);
    device_ = cuda::Device::open();
    const graph::Graph graph = graph_of(model, dtype, kCachePage, 1)(1);
    weights_ =
        std::make_shared<const exec::CudaWeights>(device_, graph, model.weights(graph).values);
    // Now, so that a missing compiler is known before the first text.
    session(kCachePage, 1)->prepare(1);
  }
  ~CudaDecoderPlace() override {
    try {
      device_.use();  // memory is freed in the current context, and threads begin without one
    } catch (const Error&) {
      // The driver is gone at the end of a process, and the memory with it.
    }
  }

  std::string describe() const override {
    return fmt::format("{}, {}", device_.facts().name, to_string(dtype_));
  }
  std::unique_ptr<DecoderSession> open(std::int64_t cache_size,
                                       std::int64_t head_rows) const override {
    return session(cache_size, head_rows);
  }

 private:
  std::unique_ptr<CudaDecoderSession> session(std::int64_t cache_size,
                                              std::int64_t head_rows) const {
    return std::make_unique<CudaDecoderSession>(device_,
                                                graph_of(model_, dtype_, cache_size, head_rows),
                                                weights_, model_.facts().vocab_size);
  }

  const DecoderModel& model_;
  DType dtype_;
  cuda::Device device_;
  std::shared_ptr<const exec::CudaWeights> weights_;
};

}  // namespace

std::unique_ptr<const DecoderPlace> place_decoder_on_gpu(const DecoderModel& model, DType dtype) {
  return std::make_unique<CudaDecoderPlace>(model, dtype);
}

}  // namespace stof::model
