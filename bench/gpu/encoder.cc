// Times whole BERT encoders on the GPU: random weights in the sizes of known checkpoints, batches
// of equal and of ever other lengths, wall time of a call with its upload, pooling and download.
//   bench_gpu_encoder [--json FILE]

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <random>

#include "backend/cuda/device.h"
#include "bench/gpu/arguments.h"
#include "model/cuda/bert_encoder.h"
#include "model/tiny_bert.h"

namespace {

using namespace stof;
using namespace stof::model;

struct Model {
  const char* name;
  TinyBert::Sizes sizes;
};
constexpr Model kModels[] = {{"MiniLM-L6", {384, 12, 1536, 6}}, {"BERT-base", {768, 12, 3072, 12}}};

struct Batch {
  std::int64_t texts, tokens;
  bool mixed = false;  ///< lengths of 8 to `tokens`, others in every call
};
constexpr Batch kBatches[] = {{1, 16}, {32, 128}, {256, 128}, {64, 384}, {64, 128, true}};

/// The longest first, as TextEncoder packs them.
PackedTexts texts_of(const Batch& batch, const BertConfig& config, std::mt19937* random) {
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(batch.texts), batch.tokens);
  std::uniform_int_distribution<std::int64_t> any(8, batch.tokens);
  if (batch.mixed)
    for (std::int64_t& length : lengths) length = any(*random);
  std::sort(lengths.rbegin(), lengths.rend());
  PackedTexts texts;
  for (const std::int64_t length : lengths) {
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; i < length; ++i)
      ids.push_back(static_cast<std::int32_t>(i % config.vocab_size));
    texts.add(ids);
  }
  return texts;
}

double median_ms(const CudaBertEncoder& encoder, const Batch& batch, const mask::Mask& mask,
                 bool* good) {
  constexpr int kCalls = 20, kWarmUp = 8;  // plans, products and memory are made in these
  std::mt19937 random(1);
  std::vector<double> times;
  EncoderTiming timing;
  for (int i = 0; i < kCalls; ++i) {
    const PackedTexts texts = texts_of(batch, encoder.config(), &random);
    const auto start = std::chrono::steady_clock::now();
    const Tensor vectors = encoder.pooled(texts, mask, cpu::Pooling::kMean, timing);
    times.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
            .count());
    for (const float value : vectors.as<float>()) *good &= std::isfinite(value);
  }
  times.erase(times.begin(), times.begin() + kWarmUp);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void run_model(const Model& model, std::FILE* json) {
  TinyBert random(3, model.sizes);
  const TemporaryFolder folder;
  random.write(folder);
  const BertConfig config = load_bert_config(folder.path());
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const CudaBertEncoder encoder(load_bert_weights(Checkpoint::open(folder.path()), config),
                                  config, dtype);
    for (const Batch& batch : kBatches) {
      for (const auto& [mask_name, mask] :
           {std::pair{"dense", mask::all()}, std::pair{"sliding", mask::window(32, 32)}}) {
        bool good = true;
        const double ms = median_ms(encoder, batch, mask, &good);
        const double per_second = 1e3 * static_cast<double>(batch.texts) / ms;
        const std::string type(to_string(dtype));
        std::printf("%-10s %-8s %4ld texts of %s%3ld, %-8s %8.2f ms %10.0f texts/s %s\n",
                    model.name, type.c_str(), batch.texts, batch.mixed ? "8 to " : "", batch.tokens,
                    mask_name, ms, per_second, good ? "" : "BAD: not finite");
        if (json != nullptr)
          std::fprintf(
              json,
              "{\"model\":\"%s\",\"dtype\":\"%s\",\"texts\":%ld,\"tokens\":%ld,"
              "\"mixed\":%s,\"mask\":\"%s\",\"ms\":%.3f,\"texts_per_s\":%.1f,\"good\":%s}\n",
              model.name, type.c_str(), batch.texts, batch.tokens, batch.mixed ? "true" : "false",
              mask_name, ms, per_second, good ? "true" : "false");
        std::fflush(stdout);
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) try {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // nothing is lost when a check ends the program
  const bench::Arguments arguments(argc, argv);
  arguments.expect_names({});
  std::printf("%s\n", cuda::Device::open().facts().name.c_str());
  for (const Model& model : kModels) run_model(model, arguments.json());
  return 0;
} catch (const std::exception& error) {
  return stof::bench::give_up(error);
}
