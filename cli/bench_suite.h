#pragma once
// The built-in timings of `stof bench`, all through the public API.

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "stof/load_options.h"
#include "stopwatch.h"

namespace stof::cli {

struct BenchSettings {
  std::int64_t seq = 0;  ///< 0 = the suite's own
  int threads = 0;       ///< 0 = all
  double min_seconds = 0.5;
  std::string model;
  LoadOptions load;  ///< of the model
};

/// One line of a suite.
struct BenchResult {
  std::string suite, name;
  Timing timing;
  nlohmann::ordered_json details;  ///< flat: name -> number or text
};

/// Receives every result as soon as it is known, with (cases done, cases in all).
using BenchSink = std::function<void(const BenchResult&, std::int64_t, std::int64_t)>;

/// Builds block masks. details: seq, memory_bytes, density_64 (share of 64x64 tiles not empty).
void bench_mask(const BenchSettings& settings, const BenchSink& sink);

/// Planned attention, batch 1, 12 heads, head_dim 64, float32. details: seq, gflops (visible pairs
/// only), tile_density, time_to_dense (ratio of medians).
void bench_attention(const BenchSettings& settings, const BenchSink& sink);

/// An encoder on short and on long texts, details: texts, tokens, tokens_per_second; a decoder that
/// reads a prompt and writes on, under its own mask and under a window, details: tokens,
/// tokens_per_second. Returns where it computed, "CPU, float32", and why not on a GPU.
struct BenchPlace {
  std::string place, note;
};
BenchPlace bench_model(const BenchSettings& settings, const BenchSink& sink);

}  // namespace stof::cli
