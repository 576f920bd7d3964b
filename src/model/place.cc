#include "model/place.h"

#include "model/bert_encoder.h"
#include "model/bert_graph.h"
#include "model/cuda/bert_encoder.h"
#include "model/place_choice.h"
#include "model/tuned.h"
#include "tune/cpu_device.h"
#include "tune/cuda_device.h"

namespace stof::model {
namespace {

BertWeights load_weights(const std::string& folder, const BertConfig& config) {
  return load_bert_weights(Checkpoint::open(folder), config);
}

exec::SessionOptions session_options(const BertConfig& config, DType dtype, Tuning tuning,
                                     bool gpu) {
  exec::SessionOptions options;
  if (tuning == Tuning::kCached)
    options.tuned = tuned_segments(
        [config, dtype](std::int64_t rows) { return build_bert_graph(config, rows, dtype); },
        [gpu] { return gpu ? tune::make_cuda_device() : tune::make_cpu_device(0); });
  return options;
}

std::unique_ptr<const Encoder> cuda_encoder(const std::string& folder, const BertConfig& config,
                                            DType dtype, Tuning tuning) {
  return std::make_unique<CudaBertEncoder>(load_weights(folder, config), config, dtype, 0,
                                           session_options(config, dtype, tuning, true));
}

}  // namespace

PlacedEncoder place_encoder(const std::string& folder, const BertConfig& config,
                            const LoadOptions& options) {
  PlacedEncoder placed;
  placed.note = place_by(
      options, "encoders", DType::kFloat16,
      [&](DType dtype) { placed.encoder = cuda_encoder(folder, config, dtype, options.tuning); },
      [&] {
        placed.encoder = std::make_unique<BertEncoder>(
            load_weights(folder, config), config,
            session_options(config, DType::kFloat32, options.tuning, false));
      });
  return placed;
}

}  // namespace stof::model
