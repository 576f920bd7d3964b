// Times whole forward passes of a BERT-base shaped encoder (random weights, 12 layers of 768, 12
// heads, erf GELU, bfloat16) under the BigBird mask: milliseconds of a CUDA graph's replay, from
// token ids to the last hidden states.
//   bench_gpu_encoder_e2e [--json FILE] [--replays N]          all shapes, all variants
//   bench_gpu_encoder_e2e --serve on                            a line in, a line out:
//     time B S N [VARIANT]      N times in ms, separated by spaces
//     describe B S [VARIANT]    the plan as JSON
// so that a script can time short bursts of this and of other programs in turn. Variants, the rows
// of an ablation: library (an operator a kernel, cuBLASLt, attention over all keys), attention (the
// same with the mask's tiles only), fusion (fused segments, attention over all keys), both.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <iostream>
#include <list>
#include <random>
#include <sstream>

#include "bench/gpu/arguments.h"
#include "exec/cuda_session.h"
#include "model/bert_graph.h"
#include "stof/error.h"

namespace {

using namespace stof;

constexpr const char* kVariants[] = {"library", "attention", "fusion", "both"};

struct Shape {
  std::int64_t batch, seq;
};
constexpr Shape kShapes[] = {{1, 128}, {8, 512}, {16, 2048}, {1, 4096}};

model::BertConfig bert_base() {
  model::BertConfig config;
  config.hidden_size = 768;
  config.num_layers = 12;
  config.num_heads = 12;
  config.intermediate_size = 3072;
  config.vocab_size = 30522;
  config.max_positions = 4096;
  config.num_segments = 2;
  config.layer_norm_eps = 1e-12f;
  return config;
}

graph::Graph bert_base_graph(std::int64_t rows) {
  return model::build_bert_graph(bert_base(), rows, DType::kBFloat16);
}

/// As BERT is initialised: normal with deviation 0.02, norms near one.
struct Weights {
  std::list<Tensor> tensors;
  exec::WeightViews views;

  explicit Weights(const graph::Graph& graph) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0, 0.02f);
    for (const graph::ValueId id : graph.of_kind(graph::ValueKind::kWeight)) {
      const graph::Value& value = graph.value(id);
      Tensor& tensor = tensors.emplace_back(value.dtype, value.shape);
      const float middle = value.name.ends_with("gamma") ? 1 : 0;
      if (value.dtype == DType::kFloat32)
        for (float& x : tensor.as<float>()) x = middle + normal(random);
      else
        for (BFloat16& x : tensor.as<BFloat16>()) x = BFloat16(middle + normal(random));
      views[id] = std::as_const(tensor).view();
    }
  }
};

struct Timing {
  std::vector<float> ms;
  bool good = true;
};

class Bench {
 public:
  Bench()
      : device_(cuda::Device::open()),
        weights_(std::make_shared<const exec::CudaWeights>(device_, bert_base_graph(8),
                                                           Weights(bert_base_graph(8)).views)) {}

  const std::string& gpu() const { return device_.facts().name; }

  Timing time(const Shape& shape, int replays, const std::string& variant) {
    const Texts texts(shape, masks(variant));
    Timing timing;
    session(variant).replay(texts.batch, [&](const auto& launch, const exec::CudaResult& result) {
      const cuda::Driver& driver = cuda::Driver::instance();
      cuda::CUevent begin = nullptr, end = nullptr;
      driver.check(driver.cuEventCreate(&begin, 0), "creating an event");
      driver.check(driver.cuEventCreate(&end, 0), "creating an event");
      for (int i = 0; i < replays; ++i) {
        driver.check(driver.cuEventRecord(begin, result.stream), "recording");
        launch();
        driver.check(driver.cuEventRecord(end, result.stream), "recording");
        driver.check(driver.cuEventSynchronize(end), "waiting");
        driver.check(driver.cuEventElapsedTime(&timing.ms.emplace_back(), begin, end), "timing");
      }
      Tensor states(result.dtype, {result.rows, result.columns});
      driver.check(
          driver.cuMemcpyDtoHAsync(states.data(), result.address, states.bytes(), result.stream),
          "downloading");
      driver.check(driver.cuStreamSynchronize(result.stream), "downloading");
      for (const BFloat16 x : states.as<BFloat16>())
        timing.good &= std::isfinite(static_cast<float>(x));
      driver.cuEventDestroy(begin);
      driver.cuEventDestroy(end);
    });
    return timing;
  }

  exec::ExecutionPlan plan(const Shape& shape, const std::string& variant) {
    return session(variant).plan(shape.batch * shape.seq);
  }

 private:
  struct Texts {
    std::vector<std::int32_t> ids, positions;
    exec::Batch batch;

    Texts(const Shape& shape, const mask::Mask& mask) {
      for (std::int64_t b = 0; b < shape.batch; ++b)
        for (std::int64_t s = 0; s < shape.seq; ++s) {
          ids.push_back(static_cast<std::int32_t>((b * 7919 + s * 31) % bert_base().vocab_size));
          positions.push_back(static_cast<std::int32_t>(s));
        }
      for (std::int64_t b = 0; b <= shape.batch; ++b) batch.offsets.push_back(b * shape.seq);
      const Dims rows = {shape.batch * shape.seq};
      batch.inputs = {{"ids", {ids.data(), DType::kInt32, rows}},
                      {"positions", {positions.data(), DType::kInt32, rows}}};
      batch.mask = mask;
    }
  };

  static mask::Mask masks(const std::string& variant) {
    const bool sparse = variant == "attention" || variant == "both";
    return sparse ? mask::bigbird(64, 1, 2, 3, 1234) : mask::all();
  }

  exec::CudaSession& session(const std::string& variant) {
    const bool known =
        std::find(std::begin(kVariants), std::end(kVariants), variant) != std::end(kVariants);
    if (!known)
      throw std::runtime_error("variant " + variant +
                               ": expected library, attention, fusion or both");
    auto& session = sessions_[variant];
    if (session == nullptr) {
      exec::SessionOptions options;
      if (variant == "library" || variant == "attention") {
        options.switches.fuse = false;
        options.switches.disabled.insert("gemm_sm90");
      }
      session = std::make_unique<exec::CudaSession>(device_, bert_base_graph, weights_, options);
    }
    return *session;
  }

  cuda::Device device_;
  std::shared_ptr<const exec::CudaWeights> weights_;
  std::map<std::string, std::unique_ptr<exec::CudaSession>> sessions_;
};

float median(std::vector<float> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void run_all(Bench& bench, int replays, std::FILE* json) {
  for (const Shape& shape : kShapes)
    for (const char* variant : kVariants) {
      const auto start = std::chrono::steady_clock::now();
      bench.time(shape, 3, variant);
      const double prepared =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      const Timing timing = bench.time(shape, replays, variant);
      std::printf(
          "BERT-base (%2ld, %4ld) bigbird %-9s %9.4f ms, best %9.4f; prepared in %5.2f s%s\n",
          shape.batch, shape.seq, variant, median(timing.ms),
          *std::min_element(timing.ms.begin(), timing.ms.end()), prepared,
          timing.good ? "" : " BAD: not finite");
      std::printf("    %s\n", bench.plan(shape, variant).describe().c_str());
      if (json != nullptr)
        std::fprintf(json,
                     "{\"gpu\":\"%s\",\"model\":\"bert-base\",\"B\":%ld,\"S\":%ld,\"mask\":"
                     "\"bigbird\",\"impl\":\"stof\",\"variant\":\"%s\",\"ms\":%.4f,\"protocol\":"
                     "\"median of %d replays\",\"good\":%s}\n",
                     bench.gpu().c_str(), shape.batch, shape.seq, variant, median(timing.ms),
                     replays, timing.good ? "true" : "false");
      std::fflush(stdout);
    }
}

/// What went wrong with one line is its answer; the next one may go well.
void serve(Bench& bench) {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string verb, variant = "both";
    Shape shape{};
    words >> verb >> shape.batch >> shape.seq;
    int count = 0;
    if (verb == "time") words >> count;
    const bool good =
        !words.fail() && shape.batch > 0 && shape.seq > 0 && shape.seq <= bert_base().max_positions;
    words >> variant;
    try {
      if (good && verb == "time" && count > 0) {
        const Timing timing = bench.time(shape, count, variant);
        if (!timing.good) throw std::runtime_error("the result is not finite");
        for (const float ms : timing.ms) std::printf("%.5f ", ms);
        std::printf("\n");
      } else if (good && verb == "describe") {
        std::printf("%s\n", bench.plan(shape, variant).to_json().c_str());
      } else {
        throw std::runtime_error("expected \"time B S N [VARIANT]\" or \"describe B S [VARIANT]\"");
      }
    } catch (const std::exception& error) {
      std::printf("error: %s\n", error.what());
    }
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  std::string serve_text, replays = "15";
  const bench::Arguments arguments(argc, argv, {{"--serve", &serve_text}, {"--replays", &replays}});
  arguments.expect_names({});
  Bench bench;
  if (serve_text.empty()) {
    std::printf("%s\n", bench.gpu().c_str());
    run_all(bench, std::stoi(replays), arguments.json());
  } else {
    serve(bench);
  }
  return 0;
} catch (const std::exception& error) {
  return stof::bench::give_up(error);
}
