// Checks the GPU attention kernels against a double-precision oracle on random problems.
//   attention_gpu_check [num_cases] [first_seed] [--only KIND,...] [--kernel PART]
// Kinds: random (every candidate kernel of plain problems; with --kernel those whose name contains
// PART, such as sm80), chain, threads, refusals, blocklists and densemask (plan_checks.h), grid
// (grid_checks.h), score_mod (score_mod_checks.h), and those of option_checks.h; num_cases is that
// of each random kind. Every run is on poisoned outputs; exits 1 with failures. Needs a GPU of
// compute capability 8.0 or later.

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backend/cuda/attention/candidates.h"
#include "bench/gpu/oracle.h"
#include "gpu/grid_checks.h"
#include "gpu/option_checks.h"
#include "gpu/plan_checks.h"
#include "gpu/random_attention.h"
#include "gpu/score_mod_checks.h"
#include "stof/cuda_attention.h"
#include "stof/error.h"
#include "tests/gpu/compile_ahead.h"

namespace {

using namespace stof;
using check::Draw;
using check::random_mask;
using check::random_problem;

/// Part of the names of the kernels to check; empty: all.
std::string kernel_part;
int kernels_run = 0;

cuda::KernelTarget target_of(const cuda::Device& device) {
  return {device.facts().major * 10 + device.facts().minor, device.facts().num_sms, 16};
}

/// The problem's candidates that --kernel selects; without it those that plans only run when named
/// are left to every fourth seed, since each takes a compilation.
std::vector<cuda::Candidate> selected_candidates(const AttentionProblem& p,
                                                 const mask::Mask& expression,
                                                 const cuda::KernelTarget& target,
                                                 std::uint64_t seed) {
  const bool by_name = !kernel_part.empty() || seed % 4 == 0;
  auto candidates = cuda::enumerate_candidates(p, expression, target, by_name);
  std::erase_if(candidates, [](const cuda::Candidate& candidate) {
    return candidate.name().find(kernel_part) == std::string::npos;
  });
  return candidates;
}

/// Compiles what the random problems need.
void compile_problems(const cuda::Device& device, std::uint64_t first, int cases) {
  std::map<std::string, std::string> texts;
  for (int i = 0; i < cases; ++i) {
    const std::uint64_t seed = first + static_cast<std::uint64_t>(i);
    Draw draw(seed);
    const AttentionProblem p = random_problem(draw);
    const mask::Mask expression = random_mask(draw, p);
    for (const auto& candidate : selected_candidates(p, expression, target_of(device), seed)) {
      for (const cuda::Pass& pass : candidate.passes)
        texts.emplace(pass.config.name(), codegen::emit_attention(pass.config));
      if (candidate.rowwise)
        texts.emplace(candidate.rowwise->config.name(),
                      codegen::emit_rowwise(candidate.rowwise->config));
    }
  }
  check::compile_ahead(texts, device.facts().target());
}

/// Number of failing candidates.
int check_problem(const cuda::Device& device, std::uint64_t seed) {
  Draw draw(seed);
  const AttentionProblem p = random_problem(draw);
  const mask::Mask expression = random_mask(draw, p);
  const bench::DeviceTensors data(p, device);
  const mask::Mask bound =
      expression.bind({p.batch, p.num_heads_q, p.seq_q, p.seq_kv}, p.alignment);
  int failures = 0;
  for (const auto& candidate : selected_candidates(p, expression, target_of(device), seed)) {
    try {
      const auto plan = cuda::AttentionPlan::build(p, expression, candidate.name());
      data.poison();
      plan.run(data.tensors(), nullptr);
      const auto nan = data.count_nan();
      const auto errors = data.compare(bound, 200);
      const auto bits = data.output();
      plan.run(data.tensors(), nullptr);
      const bool repeats = data.output() == bits;
      ++kernels_run;
      const double limit = p.dtype == DType::kFloat16 ? 1e-3 : 5e-3;
      const double lse_limit = p.softcap > 0 ? 2e-2 : 1e-3;  // tanh.approx is good to 2^-11
      if (repeats && nan == 0 && errors.frobenius < (p.softcap > 0 ? 8e-3 : limit) &&
          errors.lse < lse_limit)
        continue;
      std::printf("BAD seed %lu: %s mask %s kernel %s: error %.2e lse %.2e nan %ld%s\n", seed,
                  p.describe().c_str(), expression.describe().c_str(), candidate.name().c_str(),
                  errors.frobenius, errors.lse, nan, repeats ? "" : ", two runs differ");
    } catch (const Error& error) {
      std::printf("BAD seed %lu: %s kernel %s: %s\n", seed, p.describe().c_str(),
                  candidate.name().c_str(), error.what());
    }
    ++failures;
  }
  return failures;
}

/// A second call reads what the first one writes, with nothing between them: kernels that start
/// early must still wait. Compared bit by bit with the same two calls kept apart; also says whether
/// two runs of one call agree.
int check_chain(const cuda::Device& device, const mask::Mask& expression, std::int64_t head_dim) {
  AttentionProblem p;
  p.batch = 4;
  p.num_heads_q = p.num_heads_kv = 4;
  p.seq_q = p.seq_kv = 256;
  p.head_dim_qk = p.head_dim_v = head_dim;
  p.dtype = DType::kBFloat16;
  p.return_lse = true;
  const bench::DeviceTensors first(p, device), second(p, device);
  AttentionTensors link = second.tensors();
  link.q = first.tensors().out;
  const cuda::Driver& driver = cuda::Driver::instance();
  int failures = 0;
  for (const auto& candidate : selected_candidates(p, expression, target_of(device), 0)) {
    const auto plan = cuda::AttentionPlan::build(p, expression, candidate.name());
    const auto run_both = [&](bool apart) {
      first.poison();
      second.poison();
      plan.run(first.tensors(), nullptr);
      if (apart) driver.check(driver.cuStreamSynchronize(nullptr), "waiting");
      plan.run(link, nullptr);
      return second.output();
    };
    const auto expected = run_both(true);
    int different = 0;
    for (int i = 0; i < 20; ++i) different += run_both(false) != expected;
    if (different == 0) continue;
    std::printf("BAD chain: mask %s kernel %s: %d of 20 differ\n", expression.describe().c_str(),
                candidate.name().c_str(), different);
    ++failures;
  }
  return failures;
}

/// Eight threads that never touched the GPU, each with its own plan, tensors and stream. Returns
/// how many got another result than a lone call.
int check_threads(const cuda::Device& device) {
  AttentionProblem p;
  p.batch = 2;
  p.num_heads_q = p.num_heads_kv = 4;
  p.seq_q = p.seq_kv = 512;
  p.head_dim_qk = p.head_dim_v = 64;
  p.dtype = DType::kBFloat16;
  p.return_lse = true;
  constexpr int kThreads = 8;
  std::vector<std::unique_ptr<bench::DeviceTensors>> data;
  std::vector<cuda::AttentionPlan> plans;
  std::vector<std::vector<std::uint16_t>> expected;
  for (int i = 0; i < kThreads; ++i) {
    data.push_back(std::make_unique<bench::DeviceTensors>(p, device));
    plans.push_back(cuda::AttentionPlan::build(p, mask::window(10 * i, 64)));
    data.back()->poison();
    plans.back().run(data.back()->tensors(), nullptr);
    expected.push_back(data.back()->output());
    data.back()->poison();
  }
  std::vector<std::thread> threads;
  std::atomic<int> thrown{0};
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      try {
        const auto index = static_cast<std::size_t>(i);
        for (int repeat = 0; repeat < 20; ++repeat)
          plans[index].run(data[index]->tensors(), nullptr);
      } catch (const Error& error) {
        std::printf("BAD thread %d: %s\n", i, error.what());
        ++thrown;
      }
    });
  for (std::thread& thread : threads) thread.join();
  int failures = thrown;
  for (std::size_t i = 0; i < kThreads; ++i) failures += data[i]->output() != expected[i];
  return failures;
}

/// The kinds of check, in the order they run.
std::vector<std::string> kinds() {
  std::vector<std::string> names = {"random",     "chain",     "threads", "refusals",
                                    "blocklists", "densemask", "grid",    "score_mod"};
  for (const std::string& option : check::option_names()) names.push_back(option);
  return names;
}

/// The kinds named by "a,b"; exits naming those there are if one is unknown.
std::vector<std::string> chosen_kinds(const std::string& list) {
  const std::vector<std::string> all = kinds();
  std::vector<std::string> chosen;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t comma = std::min(list.find(',', at), list.size());
    chosen.push_back(list.substr(at, comma - at));
    at = comma + 1;
    if (std::find(all.begin(), all.end(), chosen.back()) != all.end()) continue;
    std::printf("--only: expected some of");
    for (const std::string& name : all) std::printf(" %s", name.c_str());
    std::printf(", got %s\n", chosen.back().c_str());
    std::exit(2);
  }
  return chosen;
}

struct Tally {
  int passed = 0, failed = 0;
  void add(bool right) { ++(right ? passed : failed); }
};

void run_kind(const cuda::Device& device, const std::string& kind, int cases, std::uint64_t first,
              Tally* tally) {
  if (kind == "chain") {
    for (const auto& expression :
         {mask::all(), mask::causal(), mask::causal() & mask::strided(20, 8), mask::dilated(60, 2)})
      for (const std::int64_t head_dim : {64, 128})
        tally->add(check_chain(device, expression, head_dim) == 0);
  } else if (kind == "threads") {
    tally->add(check_threads(device) == 0);
  } else if (kind == "refusals") {
    tally->add(check::check_refusals());
  } else if (kind == "blocklists") {
    for (const bool right : check::check_block_lists(device, first, cases, kernel_part))
      tally->add(right);
  } else if (kind == "densemask") {
    for (const bool right : check::check_dense_masks(device, first, cases, kernel_part))
      tally->add(right);
  } else if (kind == "score_mod") {
    for (const bool right : check::check_score_mods(device, first, cases, kernel_part))
      tally->add(right);
  } else if (kind == "grid") {
    for (const bool right : check::check_grids(device, first, cases, kernel_part))
      tally->add(right);
  } else if (kind == "random") {
    compile_problems(device, first, cases);
    for (int i = 0; i < cases; ++i)
      tally->add(check_problem(device, first + static_cast<std::uint64_t>(i)) == 0);
    if (cases > 0 && kernels_run == 0) {
      std::printf("no kernel's name contains \"%s\"\n", kernel_part.c_str());
      tally->add(false);
    }
    std::printf("%d runs of kernels\n", kernels_run);
  } else {
    for (int i = 0; i < cases; ++i)
      tally->add(
          check::check_option(device, kind, first + static_cast<std::uint64_t>(i), kernel_part));
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // nothing is lost when a check ends the program
  std::vector<std::string> chosen = kinds();
  std::vector<std::uint64_t> numbers;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--kernel") == 0 && i + 1 < argc)
      kernel_part = argv[++i];
    else if (std::strcmp(argv[i], "--only") == 0 && i + 1 < argc)
      chosen = chosen_kinds(argv[++i]);
    else
      numbers.push_back(std::strtoull(argv[i], nullptr, 10));
  }
  const std::uint64_t first = numbers.size() > 1 ? numbers[1] : 1;
  const cuda::Device device = cuda::Device::open();
  Tally tally;
  for (const std::string& kind : chosen) {
    // The oracle of the options runs on the CPU: fewer of them unless a number is given.
    const int usual = kind == "random" ? 200 : kind == "score_mod" ? 24 : 12;
    const Tally before = tally;
    run_kind(device, kind, numbers.empty() ? usual : static_cast<int>(numbers[0]), first, &tally);
    std::printf("%s: %d right, %d wrong\n", kind.c_str(), tally.passed - before.passed,
                tally.failed - before.failed);
    std::fflush(stdout);
  }
  std::printf("%d passed, %d failed on %s\n", tally.passed, tally.failed,
              device.facts().name.c_str());
  return tally.failed > 0;
}
