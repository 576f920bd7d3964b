// The real checkpoint on real text: seconds to load, texts and tokens per second, and what part of
// the time is attention. Threads: OMP_NUM_THREADS, else all.

#include <benchmark/benchmark.h>

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/jsonl.h"
#include "core/env.h"
#include "stof/text_encoder.h"

namespace stof {
namespace {

std::string model_folder() { return cache_folder() + "/models/all-minilm-l6-v2"; }

/// A long text of the corpus, cut into pieces of about `bytes` at spaces.
std::vector<std::string> pieces(std::size_t bytes, std::size_t count) {
  const std::string path = cache_folder() + "/corpus/django-docs/ref/models/querysets.txt";
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + ": cannot be read; run scripts/setup");
  std::ostringstream text;
  text << file.rdbuf();
  const std::string whole = text.str();
  std::vector<std::string> result;
  for (std::size_t begin = 0; result.size() < count; begin += bytes)
    result.push_back(whole.substr(begin % (whole.size() - bytes), bytes));
  return result;
}

void measure_load(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(TextEncoder::load(model_folder()));
}

void measure_embed(benchmark::State& state, const std::vector<std::string>& texts,
                   const mask::Mask& mask) {
  const TextEncoder encoder = TextEncoder::load(model_folder());
  EncodeOptions options;
  options.mask = mask;
  options.max_tokens = 512;
  double tokens = 0;
  for (const std::string& text : texts)
    tokens += static_cast<double>(encoder.tokenize(text, 512).ids.size());
  EncodeTiming timing;
  EncodeTiming sum;
  for (auto _ : state) {
    benchmark::DoNotOptimize(encoder.embed(texts, options, &timing));
    sum.tokenize += timing.tokenize;
    sum.plan += timing.plan;
    sum.attention += timing.attention;
    sum.total += timing.total;
  }
  const auto runs = static_cast<double>(state.iterations());
  state.counters["texts"] = static_cast<double>(texts.size());
  state.counters["tokens"] = tokens;
  state.counters["texts_per_s"] = static_cast<double>(texts.size()) * runs / sum.total;
  state.counters["tokens_per_s"] = tokens * runs / sum.total;
  state.counters["tokenize_ms"] = sum.tokenize / runs * 1e3;
  state.counters["plan_ms"] = sum.plan / runs * 1e3;
  state.counters["attention_ms"] = sum.attention / runs * 1e3;
}

void add(const char* name, std::size_t bytes, std::size_t count, const mask::Mask& mask) {
  benchmark::RegisterBenchmark(name,
                               [texts = pieces(bytes, count), mask](benchmark::State& state) {
                                 measure_embed(state, texts, mask);
                               })
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime()
      ->MinTime(3);
}

void add_all() {
  benchmark::RegisterBenchmark("load", measure_load)->Unit(benchmark::kMillisecond)->UseRealTime();
  add("sentences", 100, 128, mask::all());
  add("paragraphs", 600, 32, mask::all());
  add("512_tokens/dense", 4000, 8, mask::all());
  add("512_tokens/sliding_64", 4000, 8, mask::sliding(64));
  add("512_tokens/bigbird", 4000, 8, mask::bigbird());
}

}  // namespace
}  // namespace stof

int main(int argc, char** argv) {
  stof::add_all();
  return stof::bench::run_benchmarks(argc, argv, "text_encoder");
}
