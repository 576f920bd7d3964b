// CPU attention against oneDNN's sgemm of the same shapes, and sparse against dense.
//
// Useful flops are 4 * pairs * head_dim, pairs being those of non-empty tiles. Counters:
//   gflops          of the fastest repetition, by wall clock
//   best_cpu_ms     the least processor time of a repetition, all threads together: with
//                   OMP_NUM_THREADS=1 it stays meaningful on a busy machine
//   sgemm_share     dense only: gflops / the faster of the two sgemm rates at that head size
//   density         non-empty tiles / all tiles, at the plan's tile size
//   ratio           time / (density * time of dense), 1 = cost follows the mask exactly
// The fastest of several repetitions counts: other load only ever adds time.

#include <benchmark/benchmark.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <dnnl.hpp>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/cpu_features.h"
#include "bench/jsonl.h"
#include "stof/attention.h"

namespace stof::bench {
namespace {

constexpr std::int64_t kSeq = 4096, kHeadDim = 64, kHeads = 12;

struct Best {
  double sgemm_qk = 0, sgemm_pv = 0;  ///< GFLOP/s
  double dense_seconds = 0;           ///< float32
};
Best& best() {
  static Best value;
  return value;
}

Tensor random_tensor(DType dtype, const Dims& shape, unsigned seed) {
  Tensor tensor(DType::kFloat32, shape);
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  for (float& x : tensor.as<float>()) x = normal(generator);
  return dtype == DType::kFloat32 ? tensor : Tensor::converted(tensor.view(), dtype);
}

double processor_seconds() {
  std::timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// Runs the benchmark loop and returns the fastest iteration in seconds.
double fastest(benchmark::State& state, const std::function<void()>& action) {
  action();  // first touch of memory, threads started
  double seconds = std::numeric_limits<double>::infinity(), cpu_seconds = seconds;
  for (auto _ : state) {
    const double cpu_start = processor_seconds();
    const auto start = std::chrono::steady_clock::now();
    action();
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    state.SetIterationTime(spent.count());
    seconds = std::min(seconds, spent.count());
    cpu_seconds = std::min(cpu_seconds, processor_seconds() - cpu_start);
  }
  state.counters["best_ms"] = seconds * 1e3;
  state.counters["best_cpu_ms"] = cpu_seconds * 1e3;
  state.counters["threads"] = omp_get_max_threads();
  return seconds;
}

/// One head's product by oneDNN: rows x cols x depth.
void sgemm(benchmark::State& state, char transpose_b, std::int64_t rows, std::int64_t cols,
           std::int64_t depth, double Best::*rate) {
  const Tensor a = random_tensor(DType::kFloat32, {rows, depth}, 1);
  const Tensor b = random_tensor(DType::kFloat32, {cols, depth}, 2);
  Tensor c(DType::kFloat32, {rows, cols});
  const double seconds = fastest(state, [&] {
    dnnl::sgemm('N', transpose_b, rows, cols, depth, 1.0f, a.as<float>().data(), depth,
                b.as<float>().data(), transpose_b == 'T' ? depth : cols, 0.0f, c.as<float>().data(),
                cols);
  });
  best().*rate = 2.0 * static_cast<double>(rows * cols * depth) / seconds / 1e9;
  state.counters["gflops"] = best().*rate;
}

/// Non-empty tiles over all tiles.
double tile_density(const plan::MaskPlan& plan) {
  auto tiles = static_cast<std::int64_t>(plan.partial.size());
  for (const plan::TileRun& run : plan.runs) tiles += run.end - run.begin;
  return static_cast<double>(tiles) /
         static_cast<double>(plan.num_q_tiles() * plan.num_kv_tiles() * plan.num_patterns);
}

void attention(benchmark::State& state, const mask::Mask& mask, DType dtype) {
  AttentionProblem problem;
  problem.num_heads_q = problem.num_heads_kv = kHeads;
  problem.seq_q = problem.seq_kv = kSeq;
  problem.head_dim_qk = problem.head_dim_v = kHeadDim;
  problem.dtype = dtype;
  const AttentionPlan plan = plan_attention(problem, mask);
  const Dims shape{1, kHeads, kSeq, kHeadDim};
  const Tensor q = random_tensor(dtype, shape, 1), k = random_tensor(dtype, shape, 2),
               v = random_tensor(dtype, shape, 3);
  Tensor out(dtype, shape);
  AttentionTensors tensors;
  tensors.q = q.view();
  tensors.k = k.view();
  tensors.v = v.view();
  tensors.out = out.view();
  const double seconds = fastest(state, [&] { run_attention(plan, tensors); });

  const double density = tile_density(plan.mask_plan());
  const double flops = 4.0 * kSeq * kSeq * kHeadDim * kHeads * density;
  const double gflops = flops / seconds / 1e9;
  state.counters["S"] = kSeq;
  state.counters["D"] = kHeadDim;
  state.counters["heads"] = kHeads;
  state.counters["gflops"] = gflops;
  state.counters["density"] = density;
  state.SetLabel(cpu::to_string(cpu::selected_isa()));
  if (density == 1 && dtype == DType::kFloat32) {
    best().dense_seconds = seconds;
    const double sgemm_rate = std::max(best().sgemm_qk, best().sgemm_pv);
    if (sgemm_rate > 0) state.counters["sgemm_share"] = gflops / sgemm_rate;
  }
  if (density < 1 && best().dense_seconds > 0)
    state.counters["ratio"] = seconds / (density * best().dense_seconds);
}

void add(const std::string& name, const std::function<void(benchmark::State&)>& body) {
  benchmark::RegisterBenchmark(name.c_str(), body)
      ->UseManualTime()
      ->Iterations(10)
      ->Unit(benchmark::kMillisecond);
}

void add_attention(const std::string& name, const mask::Mask& mask, DType dtype = DType::kFloat32) {
  add(name, [mask, dtype](benchmark::State& state) { attention(state, mask, dtype); });
}

}  // namespace
}  // namespace stof::bench

int main(int argc, char** argv) {
  using namespace stof::bench;
  using stof::DType;
  namespace mask = stof::mask;
  // Order matters: shares and ratios refer to what ran before.
  add("sgemm_4096x4096x64",
      [](benchmark::State& state) { sgemm(state, 'T', kSeq, kSeq, kHeadDim, &Best::sgemm_qk); });
  add("sgemm_4096x64x4096",
      [](benchmark::State& state) { sgemm(state, 'N', kSeq, kHeadDim, kSeq, &Best::sgemm_pv); });
  add_attention("dense", mask::all());
  add_attention("sliding_256", mask::sliding(256));
  add_attention("causal", mask::causal());
  add_attention("longformer_256", mask::longformer(256, 64));
  add_attention("bigbird_64", mask::bigbird());
  add_attention("dense_bfloat16", mask::all(), DType::kBFloat16);
  add_attention("dense_float16", mask::all(), DType::kFloat16);
  return run_benchmarks(argc, argv, "attention");
}
