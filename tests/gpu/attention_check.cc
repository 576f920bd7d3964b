// Checks the GPU attention kernels against a double-precision oracle on random problems.
//   attention_gpu_check [num_cases] [first_seed] [--kernel PART]
// Every candidate kernel of every problem (with --kernel: whose name contains PART, such as sm80)
// runs on poisoned outputs; exits 1 on the first summary with failures. Needs a GPU of compute
// capability 8.0 or later.

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <thread>

#include "backend/cuda/attention/candidates.h"
#include "bench/gpu/oracle.h"
#include "stof/cuda_attention.h"
#include "stof/error.h"
#include "tests/gpu/compile_ahead.h"
#include "tests/gpu/draw.h"

namespace {

using namespace stof;
using check::Draw;

AttentionProblem random_problem(Draw& draw) {
  AttentionProblem p;
  p.batch = draw.between(1, 3);
  p.num_heads_kv = draw.between(1, 3);
  p.num_heads_q = p.num_heads_kv * draw.one_of({1, 2, 3, 4});
  p.seq_q = draw.one_of<std::int64_t>({1, 64, 127, 128, 129, 200, 256, 384, 1025});
  p.seq_kv = draw.between(0, 2) ? p.seq_q : draw.one_of<std::int64_t>({1, 63, 137, 320, 1000});
  p.head_dim_qk = draw.one_of<std::int64_t>({8, 16, 32, 64, 80, 96, 128, 192, 256, 320, 512});
  p.head_dim_v = draw.between(0, 3) ? p.head_dim_qk : draw.one_of<std::int64_t>({40, 64, 128});
  p.dtype = draw.between(0, 1) ? DType::kBFloat16 : DType::kFloat16;
  p.alignment = draw.between(0, 1) ? mask::Alignment::kTopLeft : mask::Alignment::kBottomRight;
  if (draw.between(0, 3) == 0) p.softcap = 20;
  if (draw.between(0, 3) == 0) p.scale = 0.2f;
  p.return_lse = true;
  return p;
}

mask::Mask random_mask(Draw& draw, const AttentionProblem& p) {
  using namespace stof::mask;
  switch (draw.between(0, 11)) {
    case 0:
      return all();
    case 1:
      return causal();
    case 2:
      return window(draw.between(0, 80), draw.between(0, 80));
    case 3:
      return dilated(100, draw.one_of({2, 3, 4}));
    case 4:
      return causal() & strided(20, draw.one_of({8, 32, 64, 128}));
    case 5:
      return window(30, 30) | global(5, 70);
    case 6:
      return random_blocks_rate(64, 0.4, 7, draw.between(0, 1) == 1);
    case 7:
      return random_elements(0.2, 11);
    case 8:
      return document({p.seq_kv / 3, 5, 0, p.seq_kv / 2}) & causal();
    case 9: {
      std::vector<Mask> heads;
      for (std::int64_t h = 0; h < p.num_heads_q; ++h)
        heads.push_back(h % 2 ? causal() : window(h * 10, 3));
      return per_head(heads);
    }
    case 10: {
      std::vector<std::int64_t> lengths;
      for (std::int64_t b = 0; b < p.batch; ++b) lengths.push_back(p.seq_kv / (b + 1));
      return key_lengths(lengths);
    }
    default:
      return none();
  }
}

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

/// Strided q, k, v and out ([B, S, H, D] in memory): every element is written; an out or lse that
/// the kernels cannot store to is refused.
int check_strides(const cuda::Device& device) {
  AttentionProblem p;
  p.batch = 1;
  p.num_heads_q = p.num_heads_kv = 4;
  p.seq_q = p.seq_kv = 256;
  p.head_dim_qk = p.head_dim_v = 64;
  p.dtype = DType::kFloat16;
  p.return_lse = true;
  const auto candidates = selected_candidates(p, mask::causal(), target_of(device), 0);
  if (candidates.empty()) return 1;
  const auto plan = cuda::AttentionPlan::build(p, mask::causal(), candidates[0].name());
  const bench::DeviceTensors data(p, device);
  AttentionTensors t = data.tensors();
  // The same memory read as [S, H, D]: another problem, all of whose elements must be written.
  const Dims rows_first{p.seq_q * 4 * 64, 64, 4 * 64, 1};
  for (TensorView* view : {&t.q, &t.k, &t.v}) view->strides = rows_first;
  t.out.strides = rows_first;
  data.poison();
  plan.run(t, nullptr);
  int failures = data.count_nan() != 0;
  t.out.strides = {p.seq_q * 4 * 64, 64, 4 * 64 + 4, 1};
  for (const bool bad_lse : {false, true}) {
    AttentionTensors refused = data.tensors();
    if (bad_lse)
      refused.lse.strides = {p.num_heads_q * p.seq_q, 1, p.num_heads_q};
    else
      refused.out = t.out;
    try {
      plan.run(refused, nullptr);
      std::printf("BAD strides: %s accepted\n", bad_lse ? "lse" : "out");
      ++failures;
    } catch (const Error&) {
    }
  }
  return failures;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::uint64_t> numbers;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--kernel") == 0 && i + 1 < argc)
      kernel_part = argv[++i];
    else
      numbers.push_back(std::strtoull(argv[i], nullptr, 10));
  }
  const int cases = numbers.empty() ? 200 : static_cast<int>(numbers[0]);
  const std::uint64_t first = numbers.size() > 1 ? numbers[1] : 1;
  const cuda::Device device = cuda::Device::open();
  compile_problems(device, first, cases);
  int failed = 0;
  for (int i = 0; i < cases; ++i)
    failed += check_problem(device, first + static_cast<std::uint64_t>(i)) > 0;
  int chains = 0;  // checks beside the random problems
  for (const auto& expression :
       {mask::all(), mask::causal(), mask::causal() & mask::strided(20, 8), mask::dilated(60, 2)})
    for (const std::int64_t head_dim : {64, 128}) {
      failed += check_chain(device, expression, head_dim) > 0;
      ++chains;
    }
  for (const int failures : {check_threads(device), check_strides(device)}) {
    failed += failures > 0;
    ++chains;
  }
  if (cases > 0 && kernels_run == 0) {
    std::printf("no kernel's name contains \"%s\"\n", kernel_part.c_str());
    ++failed, ++chains;
  }
  std::printf("%d runs of kernels\n", kernels_run);
  std::printf("%d passed, %d failed on %s\n", cases + chains - failed, failed,
              device.facts().name.c_str());
  return failed > 0;
}
