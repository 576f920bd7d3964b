#include "model/cuda/seq2seq_place.h"

#include <utility>

#include "backend/cuda/driver.h"
#include "core/check.h"
#include "exec/cuda_session.h"
#include "model/cuda/download.h"
#include "model/cuda/generator_check.h"
#include "model/layer_masks.h"

namespace stof::model {
namespace {

Seq2SeqGraphOptions options_of(const Seq2SeqSizes& sizes) {
  Seq2SeqGraphOptions options;
  options.cross_cache_size = sizes.cross_cache;
  options.cache_size = sizes.cache;
  options.joined_gate = true;
  options.head_rows = sizes.head_rows;
  options.pad_vocabulary = true;
  return options;
}

exec::GraphOf encoder_of(const Seq2SeqModel& model, DType dtype, const Seq2SeqSizes& sizes) {
  return [&model, dtype, options = options_of(sizes)](std::int64_t rows) {
    return with_layer_masks(model.encoder_graph(rows, dtype, options));
  };
}

exec::GraphOf decoder_of(const Seq2SeqModel& model, DType dtype, const Seq2SeqSizes& sizes) {
  return [&model, dtype, options = options_of(sizes)](std::int64_t rows) {
    return model.decoder_graph(rows, dtype, options);
  };
}

/// Weights in device memory.
struct CudaStacks {
  std::shared_ptr<const exec::CudaWeights> encoder, decoder;
};

class CudaSeq2SeqSession final : public Seq2SeqSession, private DecoderSession {
 public:
  CudaSeq2SeqSession(const cuda::Device& device, const Seq2SeqModel& model, DType dtype,
                     const Seq2SeqSizes& sizes, const CudaStacks& weights)
      : facts_(model.facts()),
        states_(std::make_shared<exec::CudaStates>()),
        encoder_(device, encoder_of(model, dtype, sizes), weights.encoder, {}, states_),
        decoder_(device, decoder_of(model, dtype, sizes), weights.decoder, {}, states_) {}

  Tensor encode(const exec::Batch& batch, bool wanted, exec::RunTiming* timing) override {
    Tensor states;
    encoder_.run(
        batch,
        [&](const exec::CudaResult& result) {
          if (wanted) {
            states = download_float32(result, facts_.hidden_size);
            return;
          }
          // The decoder has a stream of its own, and reads what this one stores.
          const cuda::Driver& driver = cuda::Driver::instance();
          driver.check(driver.cuStreamSynchronize(result.stream), "running the encoder");
        },
        timing);
    return states;
  }
  DecoderSession& decoder() override { return *this; }

  void prepare() {
    encoder_.prepare(1);
    decoder_.prepare(1);
  }

 private:
  Tensor run(const exec::Batch& batch, exec::RunTiming* timing) override {
    Tensor logits;
    decoder_.run(
        batch,
        [&](const exec::CudaResult& result) {
          logits = download_float32(result, facts_.vocab_size);
        },
        timing);
    return logits;
  }
  void move_rows(std::int64_t, std::int64_t, std::int64_t) override { refuse_to_move_rows(); }

  const Seq2SeqFacts& facts_;
  std::shared_ptr<exec::CudaStates> states_;
  exec::CudaSession encoder_, decoder_;
};

class CudaSeq2SeqPlace final : public Seq2SeqPlace {
 public:
  CudaSeq2SeqPlace(const Seq2SeqModel& model, DType dtype) : model_(model), dtype_(dtype) {
    constexpr Seq2SeqSizes kSmallest = {kCachePage, kCachePage, 1};
    const DType checked = dtype == DType::kFloat32 ? DType::kFloat16 : dtype;
    check_generator(encoder_of(model, checked, kSmallest)(1), dtype);
    check_generator(decoder_of(model, checked, kSmallest)(1), dtype);
    device_ = cuda::Device::open();
    const graph::Graph encoder = encoder_of(model, dtype, kSmallest)(1);
    weights_.encoder = std::make_shared<const exec::CudaWeights>(
        device_, encoder, model.encoder_weights(encoder).values);
    const graph::Graph decoder = decoder_of(model, dtype, kSmallest)(1);
    weights_.decoder = std::make_shared<const exec::CudaWeights>(
        device_, decoder, model.decoder_weights(decoder).values);
    // Now, so that a missing compiler is known before the first text.
    session(kSmallest)->prepare();
  }
  ~CudaSeq2SeqPlace() override {
    try {
      device_.use();  // memory is freed in the current context, and threads begin without one
    } catch (const Error&) {
      // The driver is gone at the end of a process, and the memory with it.
    }
  }

  std::string describe() const override {
    return fmt::format("{}, {}", device_.facts().name, to_string(dtype_));
  }
  std::unique_ptr<Seq2SeqSession> open(const Seq2SeqSizes& sizes) const override {
    return session(sizes);
  }

 private:
  std::unique_ptr<CudaSeq2SeqSession> session(const Seq2SeqSizes& sizes) const {
    return std::make_unique<CudaSeq2SeqSession>(device_, model_, dtype_, sizes, weights_);
  }

  const Seq2SeqModel& model_;
  DType dtype_;
  cuda::Device device_;
  CudaStacks weights_;
};

}  // namespace

std::unique_ptr<const Seq2SeqPlace> place_seq2seq_on_gpu(const Seq2SeqModel& model, DType dtype) {
  return std::make_unique<CudaSeq2SeqPlace>(model, dtype);
}

}  // namespace stof::model
