#include "model/place.h"

#include "core/check.h"
#include "model/bert_encoder.h"
#include "model/bert_graph.h"
#include "model/cuda/bert_encoder.h"
#include "model/tuned.h"
#include "stof/gpu_info.h"
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
  const bool wants_float32 = options.dtype == DType::kFloat32;
  const DType cuda_dtype = options.dtype.value_or(DType::kFloat16);
  PlacedEncoder placed;
  // A 16-bit type is only to be had on a GPU, so asking for one leaves no choice.
  const bool gpu_only =
      options.place == Place::kCuda ||
      (options.place == Place::kAuto && options.dtype.has_value() && !wants_float32);
  if (gpu_only) {
    placed.encoder = cuda_encoder(folder, config, cuda_dtype, options.tuning);
    return placed;
  }
  STOF_CHECK(!options.dtype || wants_float32, kUnsupported,
             "dtype: on the CPU encoders compute in float32, got {}", to_string(*options.dtype));
  if (options.place == Place::kAuto && !wants_float32 && !gpu_info().devices.empty()) {
    try {
      placed.encoder = cuda_encoder(folder, config, cuda_dtype, options.tuning);
      return placed;
    } catch (const Error& error) {
      // What is wrong with the checkpoint itself the CPU's loader says below.
      placed.note = error.what();
    }
  }
  placed.encoder = std::make_unique<BertEncoder>(
      load_weights(folder, config), config,
      session_options(config, DType::kFloat32, options.tuning, false));
  return placed;
}

}  // namespace stof::model
