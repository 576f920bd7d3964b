// Checks and times the GPU attention kernels on the benchmark grid; one line a (shape, mask,
// kernel).
//   bench_gpu_attention [MASK...] [--kernel PART] [--json FILE]
//   bench_gpu_attention --masks DIR   only writes the masks' bits there, for bench/gpu/peers.py
// Kernels that a plan picks only when named run on the dense and causal masks; with --kernel all
// whose name contains PART run, and no others.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>

#include "backend/cuda/attention/candidates.h"
#include "backend/cuda/attention/cost_model.h"
#include "backend/cuda/measure.h"
#include "bench/gpu/arguments.h"
#include "bench/gpu/oracle.h"
#include "core/file.h"
#include "stof/cuda_attention.h"
#include "stof/error.h"
#include "tests/gpu/compile_ahead.h"

namespace {

using namespace stof;

struct Shape {
  std::int64_t batch, heads_q, heads_kv, seq, head_dim;
};

constexpr Shape kShapes[] = {{1, 12, 12, 128, 64},   {8, 12, 12, 512, 64},   {16, 12, 12, 2048, 64},
                             {1, 32, 32, 4096, 128}, {1, 32, 8, 16384, 128}, {1, 12, 12, 1024, 64},
                             {16, 12, 12, 4096, 64}};

/// Density the peers' random draws have at this length (bench records of 2026-11-29).
double peer_density(std::int64_t seq, bool document) {
  switch (seq) {
    case 128:
      return document ? 0.113 : 0.75;
    case 512:
      return document ? 0.091 : 0.312;
    case 1024:
      return document ? 0.10 : 0.27;
    case 2048:
      return document ? 0.089 : 0.268;
    case 4096:
      return document ? 0.096 : 0.270;
    default:
      return document ? 0.126 : 0.253;
  }
}

/// Seven random cut points, sorted: eight documents.
std::vector<std::int64_t> random_documents(std::int64_t seq, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::int64_t> cuts = {0, seq};
  for (int i = 0; i < 7; ++i)
    cuts.push_back(1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(seq - 1)));
  std::sort(cuts.begin(), cuts.end());
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 1; i < cuts.size(); ++i) lengths.push_back(cuts[i] - cuts[i - 1]);
  return lengths;
}

/// The seed among the first hundred whose density is nearest to `target`.
template <class Density>
std::uint64_t nearest_seed(double target, const Density& density) {
  std::uint64_t best = 0;
  double best_gap = 2;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const double gap = std::abs(density(seed) - target);
    if (gap < best_gap) best_gap = gap, best = seed;
  }
  return best;
}

std::vector<std::int64_t> document_lengths(std::int64_t seq) {
  return random_documents(seq, nearest_seed(peer_density(seq, true), [&](std::uint64_t seed) {
                            double pairs = 0;
                            for (const std::int64_t n : random_documents(seq, seed))
                              pairs += 0.5 * static_cast<double>(n * (n + 1));
                            return pairs / static_cast<double>(seq * seq);
                          }));
}

mask::Mask random_block_mask(std::int64_t seq) {
  const auto make = [](std::uint64_t seed) {
    return mask::random_blocks_rate(64, 0.25, seed) | mask::chunked(64);
  };
  if (seq > 4096) return make(1234);
  return make(nearest_seed(peer_density(seq, false), [&](std::uint64_t seed) {
    std::int64_t visible = 0;
    for (std::int64_t q = 0; q < seq / 64; ++q)
      for (std::int64_t k = 0; k < seq / 64; ++k)
        visible += make(seed).visible(0, 0, q * 64, k * 64);
    return static_cast<double>(visible) * 4096 / static_cast<double>(seq * seq);
  }));
}

std::vector<std::pair<std::string, mask::Mask>> grid_masks(std::int64_t seq) {
  using namespace stof::mask;
  const std::int64_t w = seq <= 1024 ? 128 : 256;
  return {{"dense", all()},
          {"causal", causal()},
          {"sliding", window(w, w)},
          {"causal_window", window(2 * w, 0)},
          {"longformer", window(w, w) | global(64, 64)},
          {"bigbird", bigbird(64, 1, 2, 3, 1234)},
          {"document", document(document_lengths(seq)) & causal()},
          {"random_block", random_block_mask(seq)},
          {"random_elem", random_elements(0.1, 1234) | window(0, 0)},
          {"dilated", dilated(2 * w, 2)},
          {"strided", causal() & strided(128, 128)}};
}

/// Writes SEQ_MASK.bits: row by row, least significant bit first.
void write_masks(const std::string& folder) {
  for (const Shape& s : kShapes) {
    for (const auto& [name, expression] : grid_masks(s.seq)) {
      const mask::Mask bound = expression.bind({1, 1, s.seq, s.seq});
      std::vector<std::uint64_t> words;
      words.reserve(static_cast<std::size_t>(s.seq * s.seq / 64));
      for (std::int64_t q = 0; q < s.seq; ++q)
        for (std::int64_t k = 0; k < s.seq; k += 64) words.push_back(bound.row_bits(0, 0, q, k));
      AtomicFile file(folder + "/" + std::to_string(s.seq) + "_" + name + ".bits");
      file.write(words.data(), words.size() * sizeof(words[0]));
      file.commit();
    }
  }
}

/// Without the type every name shares.
std::string short_name(std::string name) {
  for (std::size_t at; (at = name.find("_bf16_")) != std::string::npos;) name.erase(at, 5);
  return name;
}

bool is_wanted(const cuda::Candidate& candidate, const std::string& mask,
               const std::string& kernel_part) {
  if (!kernel_part.empty()) return candidate.name().find(kernel_part) != std::string::npos;
  return candidate.by_name_only.empty() || mask == "dense" || mask == "causal";
}

/// Compiles on all cores what a shape's masks need: these have every tiling, order and pass.
void compile_shape(const cuda::Device& device, const AttentionProblem& problem,
                   const std::vector<std::pair<std::string, mask::Mask>>& masks,
                   const std::string& kernel_part) {
  const cuda::KernelTarget target{device.facts().major * 10 + device.facts().minor,
                                  device.facts().num_sms, 16};
  std::map<std::string, std::string> texts;
  for (const auto& [name, expression] : masks) {
    if (name != "causal" && name != "strided") continue;
    for (const auto& candidate : cuda::enumerate_candidates(problem, expression, target)) {
      if (!is_wanted(candidate, name, kernel_part)) continue;
      for (const cuda::Pass& pass : candidate.passes)
        texts.emplace(pass.config.name(), codegen::emit_attention(pass.config));
      if (candidate.rowwise)
        texts.emplace(candidate.rowwise->config.name(),
                      codegen::emit_rowwise(candidate.rowwise->config));
    }
  }
  check::compile_ahead(texts, device.facts().target());
}

/// Microseconds of the caller's time a run takes, which only puts work on a stream.
double host_us(const cuda::AttentionPlan& plan, const AttentionTensors& tensors) {
  constexpr int kCalls = 200;  // fewer than a stream holds back
  const cuda::Driver& driver = cuda::Driver::instance();
  double best = 1e300;
  for (int round = 0; round < 3; ++round) {
    driver.check(driver.cuStreamSynchronize(nullptr), "timing a call");
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) plan.run(tensors, nullptr);
    const std::chrono::duration<double, std::micro> spent =
        std::chrono::steady_clock::now() - start;
    best = std::min(best, spent.count() / kCalls);
  }
  driver.check(driver.cuStreamSynchronize(nullptr), "timing a call");
  return best;
}

void run_case(const cuda::Device& device, const bench::DeviceTensors& data,
              const AttentionProblem& problem, const std::string& name,
              const mask::Mask& expression, const std::string& kernel_part, std::FILE* json) {
  const mask::ScoreShape shape{problem.batch, problem.num_heads_q, problem.seq_q, problem.seq_kv};
  const mask::Mask bound = expression.bind(shape);
  const auto stats = compute_stats(build_block_mask(expression, shape));
  const double flops =
      4.0 * static_cast<double>(stats.visible_pairs) * static_cast<double>(problem.head_dim_qk);
  const cuda::KernelTarget target{device.facts().major * 10 + device.facts().minor,
                                  device.facts().num_sms, 16};
  for (const cuda::Candidate& candidate : cuda::enumerate_candidates(problem, expression, target)) {
    if (!is_wanted(candidate, name, kernel_part)) continue;
    const std::string kernel = candidate.name();
    const double predicted = candidate.predicted_us();
    cuda::Workload work;  // of the first pass; the row-wise kernel has none
    if (!candidate.passes.empty())
      work = cuda::make_workload(problem, *candidate.passes[0].blocks, candidate.passes[0].config,
                                 target);
    try {
      const auto plan = cuda::AttentionPlan::build(problem, expression, kernel);
      data.poison();
      plan.run(data.tensors(), nullptr);
      const auto nan = data.count_nan();
      const auto errors = data.compare(bound, 96);
      const bool good = nan == 0 && errors.frobenius < 4e-3 && errors.lse < 1e-3;
      const double us =
          cuda::measure_us([&](cuda::CUstream stream) { plan.run(data.tensors(), stream); }, 20, 7);
      // Where calls are long the stream would fill up.
      const double host = us < 50 ? host_us(plan, data.tensors()) : 0;
      std::printf(
          "%2ld,%ld,%ld,%ld,%ld %-13s %-44s %s err %.2e lse %.1e nan %ld  %9.1f us %6.0f TF  pred "
          "%.1f plan %.1f ms host %.1f us\n",
          problem.batch, problem.num_heads_q, problem.num_heads_kv, problem.seq_q,
          problem.head_dim_qk, name.c_str(), short_name(kernel).c_str(), good ? "ok " : "BAD",
          errors.frobenius, errors.lse, nan, us, flops / us * 1e-6, predicted,
          plan.facts().build_ms, host);
      if (json != nullptr)
        std::fprintf(json,
                     "{\"B\":%ld,\"H\":%ld,\"Hk\":%ld,\"S\":%ld,\"D\":%ld,\"mask\":\"%s\",\"impl\":"
                     "\"stof\",\"us\":%.2f,\"tflops_visible\":%.1f,\"kernel\":\"%s\",\"plan_us\":%."
                     "0f,\"host_us\":%.2f,\"error\":%.3e,\"good\":%s,\"passes\":%zu,\"full\":%.0f,"
                     "\"partial\":%.0f,"
                     "\"items\":%.0f,\"blocks\":%d,\"longest_full\":%ld,\"longest_partial\":%ld}\n",
                     problem.batch, problem.num_heads_q, problem.num_heads_kv, problem.seq_q,
                     problem.head_dim_qk, name.c_str(), us, flops / us * 1e-6, kernel.c_str(),
                     plan.facts().build_ms * 1000, host, errors.frobenius, good ? "true" : "false",
                     candidate.passes.size(), work.full, work.partial, work.items, work.num_blocks,
                     work.longest.full, work.longest.partial);
    } catch (const Error& error) {
      std::printf("BAD %s %s: %s\n", name.c_str(), kernel.c_str(), error.what());
      if (json != nullptr)
        std::fprintf(json, "{\"mask\":\"%s\",\"kernel\":\"%s\",\"good\":false}\n", name.c_str(),
                     kernel.c_str());
    }
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // nothing is lost when a check ends the program
  std::string kernel_part, masks_folder;
  const bench::Arguments arguments(argc, argv,
                                   {{"--kernel", &kernel_part}, {"--masks", &masks_folder}});
  std::vector<std::string> mask_names;
  for (const auto& [name, expression] : grid_masks(kShapes[0].seq)) mask_names.push_back(name);
  arguments.expect_names(mask_names);
  if (!masks_folder.empty()) {
    write_masks(masks_folder);
    return 0;
  }
  const cuda::Device device = cuda::Device::open();
  std::printf("%s, %d SMs\n", device.facts().name.c_str(), device.facts().num_sms);
  for (const Shape& s : kShapes) {
    AttentionProblem problem;
    problem.batch = s.batch, problem.num_heads_q = s.heads_q, problem.num_heads_kv = s.heads_kv;
    problem.seq_q = problem.seq_kv = s.seq;
    problem.head_dim_qk = problem.head_dim_v = s.head_dim;
    problem.dtype = DType::kBFloat16;
    problem.return_lse = true;
    const bench::DeviceTensors data(problem, device);
    const auto masks = grid_masks(s.seq);
    compile_shape(device, problem, masks, kernel_part);
    for (const auto& [name, expression] : masks)
      if (arguments.wants(name))
        run_case(device, data, problem, name, expression, kernel_part, arguments.json());
  }
  return 0;
} catch (const std::exception& error) {
  return stof::bench::give_up(error);
}
