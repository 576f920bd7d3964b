// The real checkpoint on real text: seconds to load, texts and tokens per second, what part of the
// time is attention, and how far the embeddings are from the independent implementation of
// tools/make_golden_bert.py. Threads: OMP_NUM_THREADS, else all.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/jsonl.h"
#include "core/env.h"
#include "stof/safetensors.h"
#include "stof/text_encoder.h"
#include "tests/model/test_data.h"

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
  const std::size_t last_begin = whole.size() - 2 * bytes;  // leaves room to find the next space
  for (std::size_t at = 0; result.size() < count; at += bytes) {
    const std::size_t begin = whole.find(' ', at % last_begin) + 1;
    result.push_back(whole.substr(begin, whole.find(' ', begin + bytes) - begin));
  }
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

/// Counters worst_difference (of a component) and worst_cosine_distance (1 - cosine of a text) over
/// the texts of the golden file.
void measure_parity(benchmark::State& state) {
  const nlohmann::json json = model::read_golden_json("bert_golden.json");
  auto texts = json["sentences"].get<std::vector<std::string>>();
  std::map<int, std::string> paragraphs;
  for (auto& [index, text] : model::corpus_paragraphs()) paragraphs[index] = text;
  for (const int index : json["paragraphs"]) texts.push_back(paragraphs.at(index));
  const auto golden = SafetensorsFile::open(STOF_TEST_DATA "/bert_golden.safetensors");
  const auto* expected = static_cast<const float*>(golden.require("embeddings").data);
  const TextEncoder encoder = TextEncoder::load(model_folder());
  Tensor found;
  for (auto _ : state) found = encoder.embed(texts);
  const auto values = found.as<float>();
  const auto width = static_cast<std::size_t>(encoder.hidden_size());
  double worst = 0, worst_cosine = 0;
  for (std::size_t row = 0; row < texts.size(); ++row) {
    double dot = 0, aa = 0, bb = 0;
    for (std::size_t i = row * width; i < (row + 1) * width; ++i) {
      const double a = values[i], b = expected[i];
      worst = std::max(worst, std::abs(a - b));
      dot += a * b;
      aa += a * a;
      bb += b * b;
    }
    worst_cosine = std::max(worst_cosine, 1 - dot / std::sqrt(aa * bb));
  }
  state.counters["texts"] = static_cast<double>(texts.size());
  state.counters["worst_difference"] = worst;
  state.counters["worst_cosine_distance"] = worst_cosine;
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
  benchmark::RegisterBenchmark("parity", measure_parity)
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime()
      ->Iterations(1);
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
