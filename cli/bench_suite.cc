#include "bench_suite.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "core/check.h"
#include "demo_texts.h"
#include "model_folder.h"
#include "stof/attention.h"
#include "stof/block_mask.h"
#include "stof/seq2seq_generator.h"
#include "stof/text_generator.h"

namespace stof::cli {
namespace {

constexpr std::int64_t kHeads = 12;
constexpr std::int64_t kHeadDim = 64;

struct NamedMask {
  std::string name;
  mask::Mask mask;
};

double tile_density(const mask::BlockMaskStats& stats) {
  for (const mask::TileCensus& census : stats.tiles)
    if (census.tile == mask::kOuterTile) return census.density();
  return 0;
}

/// Values in [-1, 1] without a pattern that a kernel could profit from.
void fill(Tensor& tensor, std::uint64_t state) {
  for (float& value : tensor.as<float>()) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    value = static_cast<float>(state >> 40) / static_cast<float>(1 << 23) - 1.0f;
  }
}

}  // namespace

void bench_mask(const BenchSettings& settings, const BenchSink& sink) {
  const std::vector<NamedMask> masks = {{"causal", mask::causal()},
                                        {"sliding(256)", mask::sliding(256)},
                                        {"longformer(256,64)", mask::longformer(256, 64)},
                                        {"bigbird()", mask::bigbird()}};
  const std::int64_t seq = settings.seq > 0 ? settings.seq : 16384;
  const mask::ScoreShape shape{1, 1, seq, seq};
  std::int64_t done = 0;
  for (const NamedMask& entry : masks) {
    const Timing timing =
        measure_seconds([&] { mask::build_block_mask(entry.mask, shape); }, settings.min_seconds);
    const mask::BlockMaskStats stats =
        mask::compute_stats(mask::build_block_mask(entry.mask, shape));
    sink(
        {"mask",
         entry.name,
         timing,
         {{"seq", seq}, {"memory_bytes", stats.memory_bytes}, {"density_64", tile_density(stats)}}},
        ++done, static_cast<std::int64_t>(masks.size()));
  }
}

void bench_attention(const BenchSettings& settings, const BenchSink& sink) {
  const std::vector<NamedMask> masks = {{"dense", mask::all()},
                                        {"causal", mask::causal()},
                                        {"sliding(128)", mask::sliding(128)},
                                        {"bigbird()", mask::bigbird()}};
  AttentionProblem problem;
  problem.num_heads_q = problem.num_heads_kv = kHeads;
  problem.seq_q = problem.seq_kv = settings.seq > 0 ? settings.seq : 2048;
  problem.head_dim_qk = problem.head_dim_v = kHeadDim;
  const Dims dims{1, kHeads, problem.seq_q, kHeadDim};
  Tensor q(DType::kFloat32, dims), k(DType::kFloat32, dims), v(DType::kFloat32, dims);
  Tensor out(DType::kFloat32, dims);
  fill(q, 1), fill(k, 2), fill(v, 3);
  AttentionTensors tensors;
  tensors.q = std::as_const(q).view();
  tensors.k = std::as_const(k).view();
  tensors.v = std::as_const(v).view();
  tensors.out = out.view();

  double dense_seconds = 0;
  std::int64_t done = 0;
  for (const NamedMask& entry : masks) {
    const AttentionPlan plan = plan_attention(problem, entry.mask);
    const Timing timing = measure_seconds([&] { run_attention(plan, tensors, {settings.threads}); },
                                          settings.min_seconds);
    if (entry.name == "dense") dense_seconds = timing.median;
    const mask::BlockMaskStats stats = mask::compute_stats(mask::build_block_mask(
        entry.mask, {1, kHeads, problem.seq_q, problem.seq_kv}, problem.alignment));
    // Two multiply-adds per visible pair and element of a head: q k^T and p v.
    const double flops = 4.0 * kHeadDim * static_cast<double>(stats.visible_pairs);
    sink({"attention",
          entry.name,
          timing,
          {{"seq", problem.seq_q},
           {"gflops", flops / timing.median * 1e-9},
           {"tile_density", tile_density(stats)},
           {"time_to_dense", timing.median / dense_seconds}}},
         ++done, static_cast<std::int64_t>(masks.size()));
  }
}

namespace {

BenchPlace bench_encoder(const BenchSettings& settings, const BenchSink& sink) {
  const TextEncoder encoder = load_encoder(settings.model, settings.load);
  std::vector<std::string> sentences;
  while (sentences.size() < 32)
    for (const std::string& text : demo_sentences()) sentences.push_back(text);
  std::string long_text;
  while (!encoder.tokenize(long_text).truncated)
    for (const std::string& text : demo_sentences()) long_text += text + " ";
  struct Case {
    std::string name;
    std::vector<std::string> texts;
    mask::Mask mask;
  };
  const std::vector<Case> cases = {{"sentences, dense", sentences, mask::all()},
                                   {"long text, dense", {long_text}, mask::all()},
                                   {"long text, sliding(64)", {long_text}, mask::sliding(64)}};
  std::int64_t done = 0;
  for (const Case& entry : cases) {
    EncodeOptions options;
    options.mask = entry.mask;
    options.num_threads = settings.threads;
    std::int64_t tokens = 0;
    for (const std::string& text : entry.texts)
      tokens += static_cast<std::int64_t>(encoder.tokenize(text).ids.size());
    const Timing timing =
        measure_seconds([&] { encoder.embed(entry.texts, options); }, settings.min_seconds);
    sink({"model",
          entry.name,
          timing,
          {{"texts", entry.texts.size()},
           {"tokens", tokens},
           {"tokens_per_second", static_cast<double>(tokens) / timing.median}}},
         ++done, static_cast<std::int64_t>(cases.size()));
  }
  return {encoder.place(), encoder.place_note()};
}

/// Times of reading and of writing a text; the first, planned and compiled, does not count.
void bench_generation(const BenchSettings& settings, const BenchSink& sink,
                      const std::function<GeneratedText()>& generate, const std::string& reads,
                      const std::string& writes, std::int64_t* done, std::int64_t all) {
  std::vector<double> reading, writing;
  GeneratedText text;
  measure_seconds(
      [&] {
        text = generate();
        reading.push_back(text.prefill);
        writing.push_back(text.decode);
      },
      settings.min_seconds);
  for (std::vector<double>* times : {&reading, &writing}) {
    times->erase(times->begin());
    std::sort(times->begin(), times->end());
    const bool is_reading = times == &reading;
    const auto tokens =
        is_reading ? text.prompt_tokens : static_cast<std::int64_t>(text.ids.size());
    const Timing timing{(*times)[times->size() / 2], times->front(),
                        static_cast<int>(times->size())};
    sink({"model",
          is_reading ? reads : writes,
          timing,
          {{"tokens", tokens}, {"tokens_per_second", static_cast<double>(tokens) / timing.median}}},
         ++*done, all);
  }
}

BenchPlace bench_decoder(const BenchSettings& settings, const BenchSink& sink) {
  const TextGenerator generator = TextGenerator::load(settings.model, settings.load);
  constexpr std::int64_t kWritten = 32;
  // As many tokens as there are positions for, and half a thousand at most.
  const std::int64_t most = std::min<std::int64_t>(512, generator.max_positions() - kWritten);
  STOF_CHECK(most >= 1, kUnsupported, "--model: expected one of more than {} positions, got {}",
             kWritten, generator.max_positions());
  std::string prompt;
  for (std::size_t i = 0;; ++i) {
    const std::vector<std::string>& texts = demo_sentences();
    const std::string longer = prompt + texts[i % texts.size()] + " ";
    if (static_cast<std::int64_t>(generator.tokenize(longer).size()) > most) break;
    prompt = longer;
  }
  if (prompt.empty()) prompt = demo_sentences().front().substr(0, 1);
  const std::vector<NamedMask> masks = {{"", mask::all()},
                                        {", window(64, 0)", mask::window(64, 0)}};
  std::int64_t done = 0;
  for (const NamedMask& entry : masks) {
    GenerateOptions options;
    options.mask = entry.mask;
    options.max_tokens = kWritten;
    options.num_threads = settings.threads;
    bench_generation(
        settings, sink, [&] { return generator.generate(prompt, options); },
        "reads a prompt" + entry.name, "writes" + entry.name, &done,
        2 * static_cast<std::int64_t>(masks.size()));
  }
  return {generator.place(), generator.place_note()};
}

BenchPlace bench_seq2seq(const BenchSettings& settings, const BenchSink& sink) {
  const Seq2SeqGenerator generator = Seq2SeqGenerator::load(settings.model, settings.load);
  constexpr std::int64_t kWritten = 32, kRead = 512;
  std::string text = generator.summary().prefix;
  for (std::size_t i = 0;; ++i) {
    const std::vector<std::string>& texts = demo_sentences();
    const std::string longer = text + texts[i % texts.size()] + " ";
    if (static_cast<std::int64_t>(generator.tokenize(longer).size()) > kRead) break;
    text = longer;
  }
  GenerateOptions options;
  options.max_tokens = kWritten;
  options.num_threads = settings.threads;
  std::int64_t done = 0;
  bench_generation(
      settings, sink, [&] { return generator.generate(text, options); }, "encodes a text",
      "writes a summary", &done, 2);
  return {generator.place(), generator.place_note()};
}

}  // namespace

BenchPlace bench_model(const BenchSettings& settings, const BenchSink& sink) {
  const std::string type = model_type(settings.model);
  if (type == "t5" || type == "mt5") return bench_seq2seq(settings, sink);
  return is_decoder(settings.model) ? bench_decoder(settings, sink) : bench_encoder(settings, sink);
}

}  // namespace stof::cli
