// Checks the Hopper matrix products on a GPU: every configuration, every kind of step, sizes that
// end inside tiles, chains of dependent products that start early, graphs, several threads.
//   gemm_gpu_check [CHECK...]      alone, products, deferred, chain, threads, refusals; default:
//   all

#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gpu/compile_ahead.h"
#include "gpu/gemm_case.h"
#include "gpu/replay.h"
#include "stof/error.h"

namespace {

using namespace stof;
using check::report;
using cuda::CUdeviceptr;
using cuda::Sm90Gemm;
using cuda::Sm90GemmCall;
using Step = codegen::GemmStep;
using Steps = std::vector<Step>;

const Steps kPlain = {}, kBias = {Step::kBias}, kGelu = {Step::kBias, Step::kGeluErf},
            kResidual = {Step::kBias, Step::kResidual}, kSwiGlu = {Step::kSilu, Step::kGate};
const std::vector<Steps> kUsual = {kPlain, kGelu, kResidual, kSwiGlu};
const std::vector<Steps> kRare = {kBias,
                                  {Step::kBias, Step::kRelu},
                                  {Step::kBias, Step::kGeluTanh},
                                  {Step::kBias, Step::kResidual, Step::kRowStatistics},
                                  {Step::kRowScale, Step::kBias, Step::kGeluErf, Step::kGate,
                                   Step::kResidual, Step::kRowStatistics},
                                  {Step::kResidual, Step::kSilu, Step::kRowScale}};

/// Where a cluster takes whole rows.
const std::vector<Steps> kNorms = {{Step::kBias, Step::kResidual, Step::kLayerNorm},
                                   {Step::kBias, Step::kLayerNorm},
                                   {Step::kResidual, Step::kRmsNorm}};

/// Where columns are whole heads.
const std::vector<Steps> kRopes = {{Step::kRope}, {Step::kBias, Step::kRope}};
const std::vector<Steps> kHeads = {{Step::kBias, Step::kHeadStore},
                                   {Step::kBias, Step::kRope, Step::kHeadStore}};

/// Norms of rows in front and behind, deferred.
const std::vector<Steps> kDeferred = {
    {Step::kRmsScale, Step::kSilu, Step::kGate},
    {Step::kResidual, Step::kRowSquares},
    {Step::kRmsScale, Step::kBias, Step::kGeluErf, Step::kResidual, Step::kRowSquares},
    {Step::kRmsScale, Step::kBias, Step::kRope}};

struct Size {
  std::int64_t rows, in, out, gap;
  bool all_steps;  ///< or the usual ones
};
/// Without the stages, which depend on the steps.
std::string shape_text(const codegen::GemmConfig& config) {
  const std::string text = config.shape();
  const std::size_t begin = text.rfind('s'), end = text.find_first_of("kbo", begin);
  return text.substr(0, begin) + (end == std::string::npos ? "" : text.substr(end));
}

constexpr Size kSizes[] = {
    {1, 64, 64, 0, true},        {7, 200, 96, 24, true},      {129, 768, 800, 8, true},
    {257, 200, 3072, 0, true},   {1000, 1096, 304, 40, true}, {128, 768, 2304, 0, false},
    {128, 3072, 768, 0, false},  {4096, 64, 768, 0, false},   {4096, 768, 3072, 0, false},
    {3001, 3072, 768, 8, false}, {4000, 256, 3072, 0, false}, {300, 200, 384, 8, true},
    {9001, 200, 1024, 0, false}};

std::vector<Steps> steps_of(const Size& size, DType element) {
  std::vector<Steps> steps = kUsual;
  const auto add = [&](const std::vector<Steps>& more) {
    steps.insert(steps.end(), more.begin(), more.end());
  };
  // float16 differs in a conversion and one instruction: the rare steps once.
  if (size.all_steps && element == DType::kBFloat16) add(kRare);
  if (size.out % 128 == 0 && size.out <= 1024) add(kNorms);
  if (size.out % 64 == 0 && element == DType::kBFloat16) {
    add(kRopes);
    if (size.gap == 0 && size.rows <= 300) add(kHeads);
  }
  return steps;
}

/// Few sizes: rows and columns that end inside tiles, and blocks that take several.
std::vector<Steps> deferred_steps_of(const Size& size, DType element) {
  const bool few = size.rows <= 300 || size.rows > 9000;
  if (size.out % 64 != 0 || !few || element != DType::kBFloat16) return {};
  return kDeferred;
}

/// Some lists of steps have their vectors in the element type.
DType bias_of(DType element, const Steps& steps) {
  return steps.size() % 2 == 1 ? DType::kFloat32 : element;
}

bool tried(const Size& size, DType element) {
  return element == DType::kBFloat16 || size.rows <= 1000;
}

/// Shapes that failed by themselves: left out of what follows, where one fault would end all.
std::set<std::string> broken;

bool usable(const codegen::GemmConfig& config) { return !broken.contains(shape_text(config)); }

/// Sizes for check_alone(): one tile a block, and several, whose blocks of K pass over a ring in
/// odd and even rounds.
constexpr Size kAlone[] = {{200, 1096, 416, 8, false},
                           {3001, 192, 3072, 0, false},
                           {4096, 712, 1536, 8, false},
                           {9001, 200, 768, 0, false},
                           {9001, 192, 1024, 8, false}};

/// In a process that has not used the GPU before. "" or what is wrong.
std::string run_alone(const codegen::GemmConfig& config) try {
  const cuda::Device device = cuda::Device::open();
  for (const Size& size : kAlone) {
    check::GemmCase data(config.element, size.rows, size.in, size.out, size.gap, 3);
    cuda::GemmProblem problem = data.problem(config.steps, config.bias);
    problem.gamma = config.gamma;
    if (!gemm_refusal(config, problem).empty()) continue;
    const std::string wrong = data.check(Sm90Gemm(problem, config, device));
    if (!wrong.empty()) return data.describe() + ": " + wrong;
  }
  return "";
} catch (const std::exception& error) {
  return error.what();
}

/// Every configuration in a process of its own, ended after a while: a fault on the GPU takes it
/// from the whole process, and a kernel may never end. This process must not have used the GPU.
void check_alone() {
  constexpr unsigned kSeconds = 25;
  constexpr int kAtOnce = 8;
  cuda::DeviceFacts hopper;
  hopper.major = 9;
  hopper.num_sms = 132;
  std::vector<codegen::GemmConfig> configs;
  for (const auto& [out, steps] :
       {std::pair{1024, kResidual}, {768, kNorms[0]}, {1024, kNorms[0]}}) {
    cuda::GemmProblem problem;
    problem.rows = problem.in = 1024;
    problem.out = out;
    problem.steps = steps;
    for (const auto& candidate : cuda::gemm_candidates(problem, hopper).feasible)
      configs.push_back(candidate.config);
  }
  std::map<pid_t, const codegen::GemmConfig*> running;
  const auto wait_for_one = [&] {
    int status = 0;
    const auto ended = running.find(wait(&status));
    const codegen::GemmConfig& config = *ended->second;
    running.erase(ended);
    const bool good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!good) broken.insert(shape_text(config));
    report(config.name() + " alone", good                  ? ""
                                     : WIFSIGNALED(status) ? "did not end in time"
                                                           : "wrong, see above");
  };
  for (const codegen::GemmConfig& config : configs) {
    if (running.size() == kAtOnce) wait_for_one();
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      alarm(kSeconds);
      const std::string wrong = run_alone(config);
      if (!wrong.empty()) std::printf("    %s: %s\n", config.name().c_str(), wrong.c_str());
      std::fflush(stdout);
      _exit(wrong.empty() ? 0 : 1);
    }
    running[child] = &config;
  }
  while (!running.empty()) wait_for_one();
  std::printf("%zu configurations alone\n", configs.size());
}

void check_steps(const cuda::Device& device,
                 std::vector<Steps> (*steps_of)(const Size& size, DType element)) {
  std::map<std::string, std::string> sources;
  for (const Size& size : kSizes)
    for (const DType element : {DType::kBFloat16, DType::kFloat16})
      for (const Steps& steps : steps_of(size, element)) {
        if (!tried(size, element)) continue;
        const cuda::GemmProblem problem =
            check::GemmCase(element, 1, 8, size.out, 0, 1).problem(steps, bias_of(element, steps));
        for (const auto& config : registered_gemm_configs(problem))
          sources[config.name()] = emit_gemm(config);
      }
  check::compile_ahead(sources, device.facts().target());

  std::uint64_t seed = 1;
  for (const Size& size : kSizes)
    for (const DType element : {DType::kBFloat16, DType::kFloat16}) {
      if (!tried(size, element) || steps_of(size, element).empty()) continue;
      check::GemmCase data(element, size.rows, size.in, size.out, size.gap, ++seed);
      const int before = check::num_failed();
      int count = 0;
      double worst = 0;
      for (const Steps& steps : steps_of(size, element)) {
        const cuda::GemmProblem problem = data.problem(steps, bias_of(element, steps));
        const auto candidates = cuda::gemm_candidates(problem, device.facts());
        if (candidates.feasible.empty()) report(problem.describe(), "no configuration is feasible");
        for (const auto& candidate : candidates.feasible) {
          if (!usable(candidate.config)) continue;  // counted as failed by check_alone()
          const std::string what = fmt::format("{} {}", data.describe(), candidate.config.name());
          try {
            report(what, data.check(Sm90Gemm(problem, candidate.config, device)));
          } catch (const Error& error) {  // the GPU is lost to this process
            throw Error(error.code(), fmt::format("{}: {}", what, error.what()));
          }
          worst = std::max(worst, data.worst());
          ++count;
        }
      }
      report(data.describe(), data.inputs_unchanged() ? "" : "an input has changed");
      std::printf("%s %s: %d products, error beyond rounding at most %.2f of what is allowed\n",
                  check::num_failed() == before ? "ok " : "BAD", data.describe().c_str(), count,
                  worst);
      std::fflush(stdout);
    }
}

void check_products(const cuda::Device& device) { check_steps(device, steps_of); }
void check_deferred(const cuda::Device& device) { check_steps(device, deferred_steps_of); }

/// Products that read each other's results, as the layers of an encoder: early start must change no
/// bit. Two buffers take turns, so that a kernel that reads or writes too early shows.
class Chain {
 public:
  static constexpr std::int64_t kWidth = 768, kInner = 3072;
  static constexpr int kLayers = 12;

  Chain(const cuda::Device& device, std::int64_t rows, const codegen::GemmConfig* up_config,
        const codegen::GemmConfig* down_config)
      : rows_(rows),
        stream_(DType::kBFloat16, rows, kWidth, kWidth, "stream"),
        other_(DType::kBFloat16, rows, kWidth, kWidth, "stream"),
        inner_(DType::kBFloat16, rows, kInner, kInner, "inner") {
    check::Draw draw(5);
    stream_.fill(draw, 1);
    bias_.values.assign(kInner, 0.1f);
    bias_.upload("bias");
    const Sm90Gemm up =
        up_config ? Sm90Gemm(problem(false), *up_config, device) : Sm90Gemm(problem(false), device);
    const Sm90Gemm down = down_config ? Sm90Gemm(problem(true), *down_config, device)
                                      : Sm90Gemm(problem(true), device);
    names_ = up.config().shape() + ", " + down.config().shape();
    for (int layer = 0; layer < kLayers; ++layer) {
      weights_.emplace_back(DType::kBFloat16, kInner, kWidth, kWidth, "weight");
      weights_.back().fill(draw, 0.03f);
      weights_.emplace_back(DType::kBFloat16, kWidth, kInner, kInner, "weight");
      weights_.back().fill(draw, 0.01f);
      const auto& from = layer % 2 == 0 ? stream_ : other_;
      const auto& to = layer % 2 == 0 ? other_ : stream_;
      cuda::GemmOperands operands;
      operands.x = from.address();
      operands.weight = weights_[weights_.size() - 2].address();
      operands.y = inner_.address();
      operands.bias = bias_.buffer.address();
      calls_.push_back(up.bind(operands));
      operands.x = inner_.address();
      operands.weight = weights_.back().address();
      operands.y = to.address();
      operands.residual = from.address();
      calls_.push_back(down.bind(operands));
    }
  }

  void reset() const {
    stream_.upload();
    other_.poison();
    inner_.poison();
  }
  void launch(cuda::CUstream stream, bool after_all) const {
    for (const Sm90GemmCall& call : calls_) call.launch(stream, after_all);
  }
  /// Both buffers of the stream, one behind the other.
  std::vector<std::uint16_t> result() const {
    std::vector<std::uint16_t> bits = stream_.download();
    const std::vector<std::uint16_t> more = other_.download();
    bits.insert(bits.end(), more.begin(), more.end());
    return bits;
  }
  const std::string& names() const { return names_; }

 private:
  cuda::GemmProblem problem(bool down) const {
    cuda::GemmProblem problem;
    problem.rows = rows_;
    problem.in = down ? kInner : kWidth;
    problem.out = down ? kWidth : kInner;
    problem.steps = down ? kResidual : kGelu;
    return problem;
  }
  std::int64_t rows_;
  check::GuardedMatrix stream_, other_, inner_;
  check::DeviceFloats bias_;
  std::vector<check::GuardedMatrix> weights_;
  std::vector<Sm90GemmCall> calls_;
  std::string names_;
};

std::vector<codegen::GemmConfig> first_configs(const cuda::Device& device, std::int64_t rows,
                                               bool down, std::size_t count) {
  cuda::GemmProblem problem;
  problem.rows = rows;
  problem.in = down ? Chain::kInner : Chain::kWidth;
  problem.out = down ? Chain::kWidth : Chain::kInner;
  problem.steps = down ? kResidual : kGelu;
  std::vector<codegen::GemmConfig> configs;
  for (const auto& candidate : cuda::gemm_candidates(problem, device.facts()).feasible)
    if (configs.size() < count && usable(candidate.config)) configs.push_back(candidate.config);
  return configs;
}

void check_chain(const cuda::Device& device) {
  for (const std::int64_t rows : {std::int64_t{128}, std::int64_t{1000}, std::int64_t{4096}}) {
    constexpr std::size_t kPairs = 8;
    const auto ups = first_configs(device, rows, false, kPairs);
    const auto downs = first_configs(device, rows, true, kPairs);
    for (std::size_t i = 0; i < std::min(ups.size(), downs.size()); ++i) {
      std::printf("    chain of %ld rows: %s, %s\n", static_cast<long>(rows),
                  ups[i].shape().c_str(), downs[i].shape().c_str());
      std::fflush(stdout);
      const Chain chain(device, rows, &ups[i], &downs[i]);
      chain.reset();
      chain.launch(nullptr, true);
      const std::vector<std::uint16_t> expected = chain.result();
      std::string wrong;
      for (int repeat = 0; repeat < 10 && wrong.empty(); ++repeat) {
        chain.reset();
        chain.launch(nullptr, false);
        if (chain.result() != expected) wrong = fmt::format("early start differs, run {}", repeat);
      }
      report(fmt::format("chain of {} rows, {}", rows, chain.names()), wrong);
      const check::Replay replay([&](cuda::CUstream stream) { chain.launch(stream, false); });
      wrong = "";
      for (int repeat = 0; repeat < 10 && wrong.empty(); ++repeat) {
        chain.reset();
        replay.run();
        if (chain.result() != expected) wrong = fmt::format("a graph differs, replay {}", repeat);
      }
      report(fmt::format("graph of {} rows, {}", rows, chain.names()), wrong);
    }
    std::printf("chains of %ld rows\n", static_cast<long>(rows));
  }
}

/// One prepared product, launched and prepared anew by several threads on streams of their own.
void check_threads(const cuda::Device& device) {
  cuda::GemmProblem problem;
  problem.rows = 512;
  problem.in = problem.out = 1024;
  problem.steps = kGelu;
  check::Draw draw(9);
  check::GuardedMatrix x(DType::kBFloat16, 512, 1024, 1024, "x");
  check::GuardedMatrix weight(DType::kBFloat16, 1024, 1024, 1024, "weight");
  x.fill(draw, 1);
  weight.fill(draw, 0.03f);
  check::DeviceFloats bias;
  bias.values.assign(1024, 0.5f);
  bias.upload("bias");
  constexpr int kThreads = 8;
  std::vector<check::GuardedMatrix> results;
  for (int i = 0; i < kThreads; ++i) {
    results.emplace_back(DType::kBFloat16, 512, 1024, 1024, "y");
    results.back().poison();
  }
  std::vector<std::string> errors(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      try {
        device.use();
        const auto& driver = cuda::Driver::instance();
        cuda::CUstream stream = nullptr;
        driver.check(driver.cuStreamCreate(&stream, 1), "creating a stream");
        const Sm90Gemm gemm(problem, device);
        for (int repeat = 0; repeat < 50; ++repeat)
          gemm.run({x.address(), weight.address(), results[static_cast<std::size_t>(i)].address(),
                    bias.buffer.address()},
                   stream);
        driver.check(driver.cuStreamSynchronize(stream), "waiting");
        driver.cuStreamDestroy(stream);
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(i)] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  const std::vector<std::uint16_t> expected = results[0].download();
  for (std::size_t i = 0; i < kThreads; ++i) {
    std::vector<std::uint16_t> image = results[i].download();
    if (errors[i].empty() && image != expected) errors[i] = "other bits than the first thread's";
    results[i].take(std::move(image));
    if (errors[i].empty() && !results[i].written_exactly()) errors[i] = "not all was written";
    report(fmt::format("thread {}", i), errors[i]);
  }
}

void check_refusals(const cuda::Device& device) {
  cuda::GemmProblem problem;
  problem.rows = problem.in = problem.out = 64;
  const auto expect = [&](const char* what, const char* words, const auto& body) {
    std::string wrong = "nothing was thrown";
    try {
      body();
    } catch (const Error& error) {
      wrong = std::strstr(error.what(), words) != nullptr ? "" : error.what();
    }
    report(what, wrong);
  };
  const Sm90Gemm gemm(problem, device);
  expect("missing x", "x: expected device memory", [&] { gemm.bind({0, 4096, 4096}); });
  expect("superfluous bias", "bias: expected none", [&] { gemm.bind({4096, 4096, 4096, 4096}); });
  expect("misaligned y", "y: expected an address", [&] { gemm.bind({4096, 4096, 4104}); });
  problem.in = 100;
  expect("K of 100", "in: expected a multiple of 8", [&] { Sm90Gemm(problem, device); });
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  if (argc == 1 || std::strcmp(argv[1], "alone") == 0) check_alone();
  return check::run_checks({{"chain", check_chain},
                            {"threads", check_threads},
                            {"refusals", check_refusals},
                            {"deferred", check_deferred},
                            {"products", check_products}},
                           argc, argv);
}
