// What it costs to build a BlockMask: wall time on one core and the peak of extra heap memory,
// the finished mask included.

#include <benchmark/benchmark.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "bench/jsonl.h"
#include "stof/block_mask.h"

namespace {

std::atomic<std::int64_t> heap_bytes{0}, heap_peak{0};

void* counted(void* block) {
  if (block == nullptr) throw std::bad_alloc();
  const std::int64_t now = heap_bytes += static_cast<std::int64_t>(::malloc_usable_size(block));
  std::int64_t peak = heap_peak;
  while (now > peak && !heap_peak.compare_exchange_weak(peak, now)) {
  }
  return block;
}

void release(void* block) {
  if (block == nullptr) return;
  heap_bytes -= static_cast<std::int64_t>(::malloc_usable_size(block));
  std::free(block);
}

}  // namespace

void* operator new(std::size_t bytes) { return counted(std::malloc(bytes)); }
void* operator new(std::size_t bytes, std::align_val_t align) {
  const auto unit = static_cast<std::size_t>(align);
  return counted(std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit));
}
void operator delete(void* block) noexcept { release(block); }
void operator delete(void* block, std::size_t) noexcept { release(block); }
void operator delete(void* block, std::align_val_t) noexcept { release(block); }
void operator delete(void* block, std::size_t, std::align_val_t) noexcept { release(block); }

namespace stof::mask {
namespace {

/// Packed documents of about 2,000 tokens, unequal as real ones are.
Mask documents(std::int64_t total) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t at = 0, i = 0; at < total; ++i) {
    lengths.push_back(std::min(total - at, 500 + i * 7919 % 3001));
    at += lengths.back();
  }
  return document(lengths);
}

void measure(benchmark::State& state, const Mask& mask, std::int64_t length) {
  const ScoreShape shape{1, 1, length, length};
  std::int64_t peak = 0;
  BlockMask built;
  for (auto _ : state) {
    state.PauseTiming();
    built = BlockMask();
    const std::int64_t before = heap_bytes;
    heap_peak = before;
    state.ResumeTiming();
    built = build_block_mask(mask, shape);
    benchmark::DoNotOptimize(built);
    peak = std::max(peak, heap_peak - before);
  }
  const BlockMaskStats stats = compute_stats(built);
  state.counters["S"] = static_cast<double>(length);
  state.counters["mib"] = static_cast<double>(peak) / (1 << 20);
  state.counters["partial"] = static_cast<double>(stats.tiles[2].partial);
  state.counters["full"] = static_cast<double>(stats.tiles[2].full);
  state.counters["bitmaps"] = static_cast<double>(stats.distinct_bitmaps);
}

void add(const std::string& name, const Mask& mask, std::int64_t length) {
  benchmark::RegisterBenchmark((name + "/" + std::to_string(length)).c_str(),
                               [mask, length](benchmark::State& s) { measure(s, mask, length); })
      ->Unit(benchmark::kMillisecond);
}

void add_all() {
  for (std::int64_t length : {16384, 131072}) {
    add("causal", causal(), length);
    add("sliding", sliding(256), length);
    add("longformer", longformer(), length);
    add("bigbird", bigbird(), length);
    add("strided", sparse_transformer_strided(), length);
    add("fixed", sparse_transformer_fixed(), length);
    add("dilated", dilated(512, 4), length);
    add("streaming", streaming(), length);
    add("document", documents(length), length);
  }
  add("sliding", sliding(256), 96000);
  add("causal", causal(), 1 << 20);
  add("sliding", sliding(256), 1 << 20);
  add("random_elements", random_elements(0.1, 1), 4096);
}

}  // namespace
}  // namespace stof::mask

int main(int argc, char** argv) {
  stof::mask::add_all();
  return stof::bench::run_benchmarks(argc, argv, "mask_build");
}
