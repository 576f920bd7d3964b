// Times products of few rows: ours that stream their weights, with and without a norm in front,
// against Hopper's own kernels and cuBLASLt's best algorithm.
//   bench_gpu_gemm_skinny [--json FILE] [--seconds N]
//
// Protocol as of bench_gpu_gemm: graphs of launches, weights rotating over 640 MB, so that they
// come from memory; ranked by the best of two replays, the best two of each timed again in turns,
// median. Ours may start before their predecessor has ended.

#include <fmt/core.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/cublaslt.h"
#include "backend/cuda/gemm/skinny_gemm.h"
#include "backend/cuda/gemm/sm90_gemm.h"
#include "bench/gpu/arguments.h"
#include "bench/gpu/timed.h"
#include "gpu/compile_ahead.h"
#include "gpu/draw.h"
#include "stof/error.h"

namespace {

using namespace stof;
using bench::Timed;
using codegen::RowPrologue;
using cuda::CUdeviceptr;
using cuda::CUstream;
using Clock = std::chrono::steady_clock;
using Step = codegen::GemmStep;

struct Product {
  const char* name;
  std::int64_t out, in;
  std::vector<Step> steps;
  cuda::Epilogue cublaslt;
};
const Product kProducts[] = {
    {"base up", 3072, 768, {Step::kBias, Step::kGeluTanh}, cuda::Epilogue::kBiasGeluTanh},
    {"base down", 768, 3072, {Step::kBias}, cuda::Epilogue::kBias},
    {"llama1b qkv", 3072, 2048, {}, cuda::Epilogue::kNone},
    {"llama1b gate_up", 16384, 2048, {Step::kSilu, Step::kGate}, cuda::Epilogue::kNone},
    {"llama1b down", 2048, 8192, {}, cuda::Epilogue::kNone},
    {"llama7b gate_up", 22016, 4096, {Step::kSilu, Step::kGate}, cuda::Epilogue::kNone},
    {"llama1b head", 128256, 2048, {}, cuda::Epilogue::kNone},
};
constexpr std::int64_t kRows[] = {1, 8, 16, 32, 64};

class Bench {
 public:
  explicit Bench(std::FILE* json) : json_(json) {
    driver_.check(driver_.cuStreamCreate(&stream_, 1), "creating a stream");
    driver_.check(driver_.cuEventCreate(&begin_, 0), "creating an event");
    driver_.check(driver_.cuEventCreate(&end_, 0), "creating an event");
    for (const cuda::DeviceBuffer* buffer : {&weights_, &x_, &bias_}) fill(*buffer);
    std::printf("%s, %s\n", device_.facts().name.c_str(), planner_.describe().c_str());
  }

  /// Everything that will be tried, by all cores at once.
  void compile() const {
    std::map<std::string, std::string> sources;
    const auto add_sources = [&](const auto& candidates) {
      for (const auto& candidate : first(candidates))
        sources[candidate.config.name()] = emit_gemm(candidate.config);
    };
    for (const std::int64_t rows : kRows) {
      for (const Product& product : kProducts) {
        const cuda::GemmProblem p = problem(rows, product.in, product.out, product.steps);
        add_sources(gemm_candidates(p, device_.facts()).feasible);
        for (const RowPrologue prologue : {RowPrologue::kNone, RowPrologue::kRmsNorm})
          add_sources(skinny_gemm_candidates({p, prologue}, device_.facts()));
      }
    }
    check::compile_ahead(sources, device_.facts().target());
  }

  void run(const Product& product, std::int64_t rows) {
    const cuda::GemmProblem p = problem(rows, product.in, product.out, product.steps);
    copies_ = copies_of(p.out * p.in);
    all_.clear();
    const CUdeviceptr bias = p.has(Step::kBias) ? bias_.address() : 0;
    std::vector<cuda::Gemm> library;
    const cuda::GemmShape shape{p.element, rows, p.in, p.out, product.cublaslt, false};
    for (const cuda::GemmAlgorithm& algorithm : planner_.algorithms(shape))
      library.push_back(planner_.plan(shape, algorithm, bias));
    for (std::size_t i = 0; i < library.size(); ++i)
      add("cublaslt", std::to_string(i), [&, i](CUstream stream, int launch) {
        library[i].run(x_.address(), weight(p, launch), y_.address(), workspace_.address(), stream,
                       0);
      });
    for (const auto& candidate : first(gemm_candidates(p, device_.facts()).feasible)) {
      const cuda::Sm90Gemm gemm(p, candidate.config, device_);
      add_calls("sm90_early", candidate.config.shape(), p,
                [&](const cuda::GemmOperands& operands) { return gemm.bind(operands); });
    }
    for (const RowPrologue prologue : {RowPrologue::kNone, RowPrologue::kRmsNorm}) {
      const bool norm = prologue != RowPrologue::kNone;
      const cuda::SkinnyProblem skinny{p, prologue};
      for (const auto& candidate : first(skinny_gemm_candidates(skinny, device_.facts()))) {
        const cuda::SkinnyGemm gemm(skinny, candidate.config, device_);
        add_calls(norm ? "skinny_norm" : "skinny", candidate.config.shape(), p,
                  [&](cuda::GemmOperands operands) {
                    operands.gamma = norm ? bias_.address() : 0;
                    return gemm.bind(operands, workspace_.address());
                  });
      }
    }
    const double bytes = 2.0 * static_cast<double>(p.out) * static_cast<double>(p.in);
    report(product.name, rows, p.out, p.in, bytes);
  }

 private:
  template <class Candidate>
  static std::vector<Candidate> first(std::vector<Candidate> candidates) {
    constexpr std::size_t kTried = 4;
    if (candidates.size() > kTried)
      candidates.erase(candidates.begin() + static_cast<std::ptrdiff_t>(kTried), candidates.end());
    return candidates;
  }

  static cuda::GemmProblem problem(std::int64_t rows, std::int64_t in, std::int64_t out,
                                   const std::vector<Step>& steps) {
    cuda::GemmProblem problem;
    problem.rows = rows;
    problem.in = in;
    problem.out = out;
    problem.steps = steps;
    problem.bias = problem.gamma = DType::kBFloat16;
    problem.epsilon = 1e-5;
    return problem;
  }

  static int copies_of(std::int64_t elements) {
    return static_cast<int>(std::max<std::int64_t>(1, kWeightBytes / (2 * elements)));
  }
  CUdeviceptr weight(const cuda::GemmProblem& p, int launch) const {
    const std::int64_t bytes = 2 * p.out * p.in;
    return weights_.address() + static_cast<CUdeviceptr>(launch % (kWeightBytes / bytes) * bytes);
  }

  template <class Bind>
  void add_calls(const char* impl, const std::string& config, const cuda::GemmProblem& p,
                 const Bind& bind) {
    using Call = decltype(bind(cuda::GemmOperands{}));
    auto calls = std::make_shared<std::vector<Call>>();
    for (int copy = 0; copy < copies_; ++copy) {
      cuda::GemmOperands operands{x_.address(), weight(p, copy), y_.address()};
      operands.bias = p.has(Step::kBias) ? bias_.address() : 0;
      calls->push_back(bind(operands));
    }
    add(impl, config, [calls](CUstream stream, int launch) {
      (*calls)[static_cast<std::size_t>(launch) % calls->size()].launch(stream);
    });
  }
  void add(const char* impl, const std::string& config,
           const std::function<void(CUstream, int)>& launch) {
    try {
      all_.push_back(std::make_unique<Timed>(impl, config, launch, 15.0, stream_));
    } catch (const Error& error) {
      std::printf("    %s %s: %s\n", impl, config.c_str(), error.what());
    }
  }

  void time(Timed* timed) const {
    driver_.check(driver_.cuEventRecord(begin_, stream_), "recording");
    timed->replay(stream_);
    driver_.check(driver_.cuEventRecord(end_, stream_), "recording");
    driver_.check(driver_.cuEventSynchronize(end_), "waiting");
    float ms = 0;
    driver_.check(driver_.cuEventElapsedTime(&ms, begin_, end_), "reading a time");
    timed->times.push_back(static_cast<double>(ms) * 1000 / timed->launches());
  }

  /// `bytes`: of the weights.
  void report(const char* name, std::int64_t rows, std::int64_t out, std::int64_t in,
              double bytes) {
    for (int round = 0; round < 2; ++round)
      for (const auto& timed : all_) time(timed.get());
    std::sort(all_.begin(), all_.end(),
              [](const auto& a, const auto& b) { return a->best() < b->best(); });
    std::map<std::string, int> kept;
    std::erase_if(all_, [&](const auto& timed) { return ++kept[timed->impl()] > 2; });
    for (const auto& timed : all_) timed->times.clear();
    for (int round = 0; round < 11; ++round) {
      for (const auto& timed : all_) time(timed.get());
      std::reverse(all_.begin(), all_.end());
    }
    std::map<std::string, const Timed*> best;
    for (const auto& timed : all_) {
      const Timed*& fastest = best[timed->impl()];
      if (fastest == nullptr || timed->median() < fastest->median()) fastest = timed.get();
    }
    std::string line = fmt::format("{:<16} {:>2} x {:>5} x {:>4}", name, rows, out, in);
    for (const auto& [impl, timed] : best) {
      line += fmt::format("  {} {:.2f} us ({:.2f} TB/s, {})", impl, timed->median(),
                          bytes / timed->median() * 1e-6, timed->config());
      if (json_ != nullptr)
        fmt::print(json_,
                   "{{\"product\":\"{}\",\"M\":{},\"N\":{},\"K\":{},\"dtype\":\"bfloat16\","
                   "\"impl\":\"{}\",\"us\":{:.3f},\"config\":\"{}\"}}\n",
                   name, rows, out, in, impl, timed->median(), timed->config());
    }
    std::printf("%s\n", line.c_str());
  }

  /// Nearly normal values.
  void fill(const cuda::DeviceBuffer& buffer) const {
    check::Draw draw(1);
    std::vector<std::uint16_t> block(1 << 20);
    for (auto& bits : block) bits = BFloat16(draw.normal() * 0.1f).bits;
    for (std::size_t at = 0; at < buffer.bytes(); at += block.size() * 2)
      driver_.check(
          driver_.cuMemcpyHtoDAsync(buffer.address() + at, block.data(),
                                    std::min(block.size() * 2, buffer.bytes() - at), nullptr),
          "filling");
    driver_.check(driver_.cuStreamSynchronize(nullptr), "filling");
  }

  static constexpr std::int64_t kWeightBytes = std::int64_t{640} << 20;
  std::FILE* json_;
  const cuda::Device device_ = cuda::Device::open();
  const cuda::Driver& driver_ = cuda::Driver::instance();
  cuda::GemmPlanner& planner_ = cuda::GemmPlanner::of(device_);
  cuda::DeviceBuffer workspace_{cuda::GemmPlanner::kWorkspaceBytes, "workspace"};
  cuda::DeviceBuffer weights_{static_cast<std::size_t>(kWeightBytes), "weights"};
  cuda::DeviceBuffer x_{std::size_t{64} * 8192 * 2, "x"}, y_{std::size_t{64} * 128256 * 2, "y"};
  cuda::DeviceBuffer bias_{std::size_t{22016} * 2, "bias"};
  int copies_ = 1;
  std::vector<std::unique_ptr<Timed>> all_;
  CUstream stream_ = nullptr;
  cuda::CUevent begin_ = nullptr, end_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) try {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  std::string seconds = "70";
  const bench::Arguments arguments(argc, argv, {{"--seconds", &seconds}});
  arguments.expect_names({});
  const auto deadline = Clock::now() + std::chrono::seconds(std::stoi(seconds));
  Bench bench(arguments.json());
  bench.compile();
  for (const std::int64_t rows : kRows) {
    for (const Product& product : kProducts) {
      if (Clock::now() > deadline) {
        std::printf("out of time before %s, %ld rows\n", product.name, static_cast<long>(rows));
        return 0;
      }
      bench.run(product, rows);
    }
  }
  return 0;
} catch (const std::exception& error) {
  return stof::bench::give_up(error);
}
