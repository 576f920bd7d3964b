#include "bench_suite.h"

#include <cmath>
#include <vector>

#include "demo_texts.h"
#include "model_folder.h"
#include "stof/attention.h"
#include "stof/block_mask.h"

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

void bench_model(const BenchSettings& settings, const BenchSink& sink) {
  const TextEncoder encoder = load_encoder(settings.model);
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
}

}  // namespace stof::cli
