// Times a LLaMA model's passes through sessions on the GPU: random weights of LLaMA 3.2 1B's shape
// in bfloat16, prompts that fill the caches, and steps of one token over caches of several lengths.
//   bench_gpu_llama [prefill] [deferred] [decode] [text] [--scheme SCHEME] [--json FILE]
// deferred: prompts again, with the norms behind the products that read them.
// text: wall time as TextGenerator has it, logits downloaded and the likeliest token taken.
// --scheme: of the sessions' layers, in place of what runs untuned: "13:09e0", or bit by bit.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <list>
#include <random>

#include <fmt/core.h>

#include "backend/cuda/device.h"
#include "bench/gpu/arguments.h"
#include "exec/cuda_session.h"
#include "graph/deferred_norm.h"
#include "model/decoder.h"
#include "model/llama_graph.h"

namespace {

using namespace stof;
using graph::Graph;
using graph::ValueId;

constexpr std::int64_t kPage = 64, kCacheRows = 8 * 4096;

model::LlamaConfig config_of(std::int64_t vocabulary) {
  model::LlamaConfig config;
  config.hidden_size = 2048;
  config.num_layers = 16;
  config.num_heads = 32;
  config.num_kv_heads = 8;
  config.head_dim = 64;
  config.intermediate_size = 8192;
  config.vocab_size = vocabulary;
  config.max_positions = 131072;
  config.rms_norm_eps = 1e-5f;
  config.tied_head = true;
  config.windows.assign(16, 0);
  return config;
}

/// Random weights, a million numbers over and over, so that products keep the size of what they
/// read.
struct Weights {
  std::list<Tensor> tensors;
  exec::WeightViews views;
  double bytes = 0;

  explicit Weights(const Graph& graph) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0, 1);
    std::vector<BFloat16> pool(1 << 20);
    for (BFloat16& x : pool) x = BFloat16(normal(random) / 45);  // 1 / sqrt(2048)
    for (const ValueId id : graph.of_kind(graph::ValueKind::kWeight)) {
      const graph::Value& value = graph.value(id);
      Tensor& tensor = tensors.emplace_back(value.dtype, value.shape);
      if (value.dtype == DType::kFloat32) {
        std::ranges::fill(tensor.as<float>(), 1.f);
      } else {
        std::size_t at = 0;
        for (BFloat16& x : tensor.as<BFloat16>()) x = pool[at++ % (pool.size() - 1)];
      }
      views[id] = std::as_const(tensor).view();
      bytes += static_cast<double>(tensor.bytes());
    }
  }
};

model::DecoderFacts bench_facts() {
  model::DecoderFacts facts;
  facts.num_layers = 16;
  facts.num_heads = 32;
  facts.vocab_size = 128256;
  facts.max_positions = 131072;
  facts.description = "random";
  return facts;
}

/// For Decoder, with 1B's vocabulary.
class RandomLlama final : public model::DecoderModel {
 public:
  RandomLlama() : DecoderModel(bench_facts()) {}

  Graph graph(std::int64_t rows, DType dtype,
              const model::DecoderGraphOptions& options) const override {
    return build_llama_graph(config_, rows, dtype, options);
  }
  model::GraphWeights weights(const Graph& graph) const override {
    Weights random(graph);
    model::GraphWeights weights;
    for (Tensor& tensor : random.tensors) weights.owned.push_back(std::move(tensor));
    weights.values = std::move(random.views);
    return weights;
  }
  std::vector<mask::Mask> masks(const mask::Mask& also) const override {
    return llama_masks(config_, also);
  }

 private:
  model::LlamaConfig config_ = config_of(128256);
};

/// `rows` new tokens of each of `sequences`, whose caches then hold `keys`.
struct Step {
  exec::Batch batch;
  std::vector<std::int32_t> ids, positions, slots;

  Step(std::int64_t sequences, std::int64_t rows, std::int64_t keys) {
    batch.mask = mask::causal();
    batch.cache.page_size = kPage;
    batch.offsets = {0};
    std::int32_t page = 0;
    for (std::int64_t i = 0; i < sequences; ++i) {
      batch.offsets.push_back(batch.offsets.back() + rows);
      batch.cache.lengths.push_back(keys);
      auto& pages = batch.cache.pages.emplace_back();
      for (std::int64_t key = 0; key < keys; key += kPage) pages.push_back(page++);
    }
    for (std::int64_t i = 0; i < batch.rows(); ++i)
      ids.push_back(static_cast<std::int32_t>(i * 37 % 200));
    positions = batch.cache.positions(batch.offsets);
    slots = batch.cache.slots(batch.offsets);
    batch.inputs = {{"ids", {ids.data(), DType::kInt32, {batch.rows()}}},
                    {"positions", {positions.data(), DType::kInt32, {batch.rows()}}},
                    {"slots", {slots.data(), DType::kInt32, {batch.rows()}}}};
  }
};

/// Milliseconds of a replayed pass, the median of seven bursts.
double replay_ms(exec::CudaSession& session, const exec::Batch& batch, int calls) {
  std::vector<double> times;
  session.replay(batch, [&](const auto& launch, const exec::CudaResult& result) {
    const cuda::Driver& driver = cuda::Driver::instance();
    const auto burst = [&] {
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < calls; ++i) launch();
      driver.check(driver.cuStreamSynchronize(result.stream), "running passes");
      return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
                 .count() /
             calls;
    };
    burst();
    for (int i = 0; i < 7; ++i) times.push_back(burst());
  });
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void run(const cuda::Device& device, const std::string& pass, const exec::SessionOptions& options,
         std::FILE* json) {
  const bool decodes = pass == "decode";
  // A prompt needs the logits of its last token alone, so its head is left out; a step reads all of
  // the head's weights.
  const model::LlamaConfig config = config_of(decodes ? 128256 : 256);
  const exec::GraphOf plain_graph_of = [&](std::int64_t rows) {
    return build_llama_graph(
        config, rows, DType::kBFloat16,
        {.cache_size = kCacheRows, .reads_cache = decodes, .joined_gate = true});
  };
  const Graph plain = plain_graph_of(1);
  const Weights weights(plain);
  const graph::DeferredNorms deferred = defer_norms(plain);
  const exec::GraphOf deferred_graph_of = [&](std::int64_t rows) {
    return defer_norms(plain_graph_of(rows)).graph;
  };
  const auto on_device =
      pass == "deferred" ? std::make_shared<const exec::CudaWeights>(
                               device, deferred.graph,
                               graph::DeferredWeights(plain, deferred, weights.views).views)
                         : std::make_shared<const exec::CudaWeights>(device, plain, weights.views);
  exec::CudaSession session(device, pass == "deferred" ? deferred_graph_of : plain_graph_of,
                            on_device, options);
  struct Case {
    std::int64_t sequences, rows, keys;
  };
  const std::vector<Case> cases =
      decodes ? std::vector<Case>{{1, 1, 512}, {1, 1, 4096}, {8, 1, 512}, {8, 1, 4096}}
              : std::vector<Case>{{1, 128, 128}, {1, 2048, 2048}, {8, 512, 512}};
  for (const Case& c : cases) {
    const Step step(c.sequences, c.rows, c.keys);
    const double ms = replay_ms(session, step.batch, decodes ? 20 : 5);
    const double key_bytes = static_cast<double>(c.sequences * c.keys * 16 * 2 * 8 * 64 * 2);
    const double gb_s = (weights.bytes + key_bytes) / ms * 1e-6;
    const double tflops =
        2 * (weights.bytes / 2) * static_cast<double>(step.batch.rows()) / ms * 1e-9;
    std::printf("%-8s (%ld, %ld) over %ld keys: %8.3f ms, %s\n", pass.c_str(),
                static_cast<long>(c.sequences), static_cast<long>(c.rows),
                static_cast<long>(c.keys), ms,
                decodes ? fmt::format("{:.0f} GB/s of weights and keys", gb_s).c_str()
                        : fmt::format("{:.0f} TFLOP/s of its products", tflops).c_str());
    std::printf("    %s\n", session.plan(step.batch.rows()).describe().c_str());
    if (json != nullptr)
      std::fprintf(json,
                   "{\"model\":\"llama-1b\",\"pass\":\"%s\",\"sequences\":%ld,\"rows\":%ld,"
                   "\"keys\":%ld,\"ms\":%.4f,\"gb_s\":%.0f,\"tflops\":%.0f}\n",
                   pass.c_str(), static_cast<long>(c.sequences), static_cast<long>(c.rows),
                   static_cast<long>(c.keys), ms, gb_s, tflops);
  }
}

void write_text(std::FILE* json) {
  const model::Decoder decoder(std::make_unique<RandomLlama>(),
                               {Place::kCuda, DType::kBFloat16, Tuning::kOff});
  using Clock = std::chrono::steady_clock;
  const auto ms_since = [](Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  };
  constexpr std::size_t kPrompt = 2048, kChunk = 512;
  constexpr int kSteps = 300, kWarm = 20;
  exec::RunTiming timing;
  std::vector<std::int32_t> prompt;
  for (std::size_t i = 0; i < kPrompt; ++i)
    prompt.push_back(static_cast<std::int32_t>(i * 37 % 128000));
  double prefill = 0, step = 0;
  for (int round = 0; round < 2; ++round) {  // the first compiles
    auto sequence = decoder.start({.tokens = kPrompt + kSteps + kWarm});
    auto start = Clock::now();
    Tensor logits;
    for (std::size_t at = 0; at < kPrompt; at += kChunk)
      logits = sequence->forward({{0, std::span(prompt).subspan(at, kChunk)}}, timing);
    prefill = ms_since(start);
    for (int i = 0; i < kSteps + kWarm; ++i) {
      if (i == kWarm) start = Clock::now();
      const auto row = logits.as<float>();
      const auto id = static_cast<std::int32_t>(std::ranges::max_element(row) - row.begin());
      logits = sequence->forward({{0, {&id, 1}}}, timing);
    }
    step = ms_since(start) / kSteps;
  }
  std::printf(
      "text: %zu tokens read in chunks of %zu: %.1f ms; a token written: %.3f ms, %.0f a second\n",
      kPrompt, kChunk, prefill, step, 1e3 / step);
  if (json != nullptr)
    std::fprintf(json,
                 "{\"model\":\"llama-1b\",\"pass\":\"text\",\"prompt\":%zu,\"chunk\":%zu,"
                 "\"prompt_ms\":%.2f,\"token_ms\":%.4f}\n",
                 kPrompt, kChunk, prefill, step);
}

}  // namespace

int main(int argc, char** argv) try {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  std::string scheme;
  const bench::Arguments arguments(argc, argv, {{"--scheme", &scheme}});
  const std::vector<std::string> passes = {"prefill", "deferred", "decode"};
  arguments.expect_names({"prefill", "deferred", "decode", "text"});
  exec::SessionOptions options;
  if (!scheme.empty()) options.scheme = fusion::Scheme::from_text(scheme);
  const cuda::Device device = cuda::Device::open();
  std::printf("%s\n", device.facts().name.c_str());
  for (const std::string& pass : passes)
    if (arguments.wants(pass)) run(device, pass, options, arguments.json());
  if (arguments.wants("text")) write_text(arguments.json());
  return 0;
} catch (const std::exception& error) {
  return stof::bench::give_up(error);
}
