// Times matrix products with what follows them: ours against cuBLASLt's best algorithm for the same
// epilogue, in the sizes of BERT and LLaMA.
//   bench_gpu_gemm [--json FILE] [--seconds N] [--rows M] [GROUP...]
// Groups: base, large, llama1b, llama7b. Rows: of x; without it those that the models run with.
//
// Protocol: a CUDA graph of launches of some 1.5 ms, weights rotating over 128 MB and more, so that
// they come from memory; the GPU rests before each replay (power-capped clocks follow what ran
// before). Candidates are ranked by the best of two replays; the best few of both sides are then
// timed again, in turns forwards and backwards, and the median counts. "early": launches may start
// before their predecessor has ended, as in a chain of our kernels. "mma": kernels/gemm/sm80.

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "backend/cuda/cublaslt.h"
#include "backend/cuda/gemm/sm80_gemm.h"
#include "backend/cuda/gemm/sm90_gemm.h"
#include "bench/gpu/arguments.h"
#include "bench/gpu/timed.h"
#include "gpu/compile_ahead.h"
#include "gpu/draw.h"
#include "stof/error.h"

namespace {

using namespace stof;
using bench::Timed;
using cuda::CUdeviceptr;
using cuda::CUstream;
using cuda::DeviceBuffer;
using Clock = std::chrono::steady_clock;
using Step = codegen::GemmStep;

struct Product {
  const char* group;
  const char* name;
  std::int64_t out, in;
  const char* epilogues;  ///< n none, b bias, e erf, t tanh, r bias + residual, s SwiGLU,
                          ///< c bias + statistics, l bias + residual + LayerNorm
};
constexpr Product kProducts[] = {
    {"base", "qkv", 2304, 768, "nb"},         {"base", "out", 768, 768, "nbrcl"},
    {"base", "up", 3072, 768, "net"},         {"base", "down", 768, 3072, "nbrl"},
    {"large", "qkv", 3072, 1024, "b"},        {"large", "out", 1024, 1024, "r"},
    {"large", "up", 4096, 1024, "et"},        {"large", "down", 1024, 4096, "r"},
    {"llama1b", "qkv", 3072, 2048, "n"},      {"llama1b", "gate_up", 16384, 2048, "ns"},
    {"llama1b", "down", 2048, 8192, "nr"},    {"llama7b", "qkv", 12288, 4096, "n"},
    {"llama7b", "gate_up", 22016, 4096, "s"}, {"llama7b", "down", 4096, 11008, "r"},
};
constexpr std::int64_t kRows[] = {128, 4096, 2048, 32768};

struct Kind {
  const char* name;
  std::vector<Step> steps;
  cuda::Epilogue cublaslt;
  bool residual;
};
Kind kind_of(char letter) {
  switch (letter) {
    case 'b':
      return {"bias", {Step::kBias}, cuda::Epilogue::kBias, false};
    case 'e':  // the library has no such epilogue: its bias alone
      return {"bias+gelu_erf", {Step::kBias, Step::kGeluErf}, cuda::Epilogue::kBias, false};
    case 't':
      return {
          "bias+gelu_tanh", {Step::kBias, Step::kGeluTanh}, cuda::Epilogue::kBiasGeluTanh, false};
    case 'r':
      return {"bias+residual", {Step::kBias, Step::kResidual}, cuda::Epilogue::kBias, true};
    case 's':  // nor this one: nothing
      return {"swiglu", {Step::kSilu, Step::kGate}, cuda::Epilogue::kNone, false};
    case 'l':  // nor this one: its bias and residual
      return {"bias+residual+layer_norm",
              {Step::kBias, Step::kResidual, Step::kLayerNorm},
              cuda::Epilogue::kBias,
              true};
    case 'c':  // nor this one: its bias alone
      return {"bias+statistics", {Step::kBias, Step::kRowStatistics}, cuda::Epilogue::kBias, false};
    default:
      return {"none", {}, cuda::Epilogue::kNone, false};
  }
}

class Bench {
 public:
  explicit Bench(std::FILE* json)
      : json_(json), workspace_(cuda::GemmPlanner::kWorkspaceBytes, "workspace") {
    driver_.check(driver_.cuStreamCreate(&stream_, 1), "creating a stream");
    driver_.check(driver_.cuEventCreate(&begin_, 0), "creating an event");
    driver_.check(driver_.cuEventCreate(&end_, 0), "creating an event");
    std::printf("%s, %s\n", device_.facts().name.c_str(), planner_.describe().c_str());
  }

  /// How many of ours are tried, the first as predicted.
  static constexpr std::size_t kOwn = 12;

  cuda::GemmProblem problem(const Product& product, const Kind& kind, std::int64_t rows) const {
    cuda::GemmProblem problem;
    problem.rows = rows;
    problem.in = product.in;
    problem.out = product.out;
    problem.steps = kind.steps;
    problem.bias = problem.gamma = DType::kBFloat16;  // as the library has it
    return problem;
  }

  void compile(const std::vector<cuda::GemmProblem>& problems) const {
    std::map<std::string, std::string> sources;
    for (const auto& problem : problems) {
      for (const auto& config : tried(problem)) sources[config.name()] = emit_gemm(config);
      for (const auto& config : tried_sm80(problem)) sources[config.name()] = emit_gemm(config);
    }
    check::compile_ahead(sources, device_.facts().target());
  }

  void run(const Product& product, const Kind& kind, std::int64_t rows) {
    const cuda::GemmProblem p = problem(product, kind, rows);
    prepare(p);
    const double flops =
        2.0 * static_cast<double>(rows) * static_cast<double>(p.in) * static_cast<double>(p.out);
    const double expected = flops / 700e6 + 4;
    std::vector<std::unique_ptr<Timed>> all;
    const auto add = [&](const char* impl, const std::string& config,
                         const std::function<void(CUstream, int)>& launch) {
      try {
        all.push_back(std::make_unique<Timed>(impl, config, launch, expected, stream_));
      } catch (const Error& error) {
        std::printf("    %s %s: %s\n", impl, config.c_str(), error.what());
      }
    };
    cuda::GemmShape shape{p.element, rows, p.in, p.out, kind.cublaslt, kind.residual};
    const CUdeviceptr bias = kind.cublaslt == cuda::Epilogue::kNone ? 0 : bias_.address();
    std::vector<cuda::Gemm> library;
    for (const cuda::GemmAlgorithm& algorithm : planner_.algorithms(shape))
      library.push_back(planner_.plan(shape, algorithm, bias));
    for (std::size_t i = 0; i < library.size(); ++i)
      add("cublaslt", "algorithm " + std::to_string(i), [&, i](CUstream stream, int launch) {
        library[i].run(x_.address(), weight(p, launch), y_.address(), workspace_.address(), stream,
                       kind.residual ? residual_.address() : 0);
      });
    std::vector<std::vector<cuda::Sm90GemmCall>> calls;
    const std::vector<codegen::GemmConfig> configs = tried(p);
    calls.reserve(configs.size());
    for (const codegen::GemmConfig& config : configs) {
      const cuda::Sm90Gemm gemm(p, config, device_);
      cuda::GemmOperands operands = operands_of(p);
      auto& bound = calls.emplace_back();
      for (int copy = 0; copy < copies_; ++copy) {
        operands.weight = weight(p, copy);
        bound.push_back(gemm.bind(operands));
      }
      for (const bool early : {false, true})
        add(early ? "own_early" : "own", config.shape(), [&, early](CUstream stream, int launch) {
          bound[static_cast<std::size_t>(launch % copies_)].launch(stream, !early);
        });
    }
    std::vector<std::vector<cuda::Sm80GemmCall>> mma_calls;
    const std::vector<codegen::Sm80GemmConfig> mma_configs = tried_sm80(p);
    mma_calls.reserve(mma_configs.size());
    for (const codegen::Sm80GemmConfig& config : mma_configs) {
      cuda::GemmOperands operands = operands_of(p);
      auto& bound = mma_calls.emplace_back();
      for (int copy = 0; copy < copies_; ++copy) {
        operands.weight = weight(p, copy);
        bound.push_back(cuda::Sm80Gemm(p, config, device_).bind(operands, workspace_.address()));
      }
      add("mma_early", config.shape(), [&](CUstream stream, int launch) {
        bound[static_cast<std::size_t>(launch % copies_)].launch(stream);
      });
    }
    const std::map<std::string, double> ranked = rank_and_time(all, rows);
    report(product, kind, rows, flops, all, ranked);
    for (const auto& timed : all) {
      auto& fastest = fastest_[{product.group, product.name, kind.name, rows}];
      if (timed->impl() == "own_early" && fastest.own.empty()) fastest.own = timed->config();
      if (timed->impl() == "cublaslt" && fastest.cublaslt.empty())
        fastest.cublaslt = timed->config();
    }
  }

  /// BERT-base's products as 12 layers in one graph, each reading the one before, with its own
  /// weights: ours by early start with erf-GELU and residuals, the library's best with tanh-GELU
  /// and without. Needs the products of the group "base" timed before; attention and norms are left
  /// out.
  void run_chain(std::int64_t rows) {
    constexpr int kLayers = 12;
    struct Part {
      const Product* product;
      char own, cublaslt;
    };
    const Part parts[] = {{&kProducts[0], 'b', 'b'},
                          {&kProducts[1], 'r', 'b'},
                          {&kProducts[2], 'e', 't'},
                          {&kProducts[3], 'r', 'b'}};
    std::int64_t layer_bytes = 0;
    for (const Part& part : parts) layer_bytes += part.product->out * part.product->in * 2;
    grow(&weights_, layer_bytes * kLayers, "weights");
    grow(&x_, rows * 3072 * 2, "x");
    grow(&y_, rows * 3072 * 2, "y");
    std::vector<cuda::Sm90GemmCall> own;
    std::vector<cuda::Gemm> library;
    std::vector<CUdeviceptr> weights;
    CUdeviceptr weight = weights_.address();
    for (int i = 0; i < 4 * kLayers; ++i) {
      const Part& part = parts[i % 4];
      const auto fastest = [&](char kind) {
        return fastest_.at({part.product->group, part.product->name, kind_of(kind).name, rows});
      };
      const cuda::GemmProblem p = problem(*part.product, kind_of(part.own), rows);
      codegen::GemmConfig config = default_gemm_config(p, device_.facts());
      for (const codegen::GemmConfig& one : tried(p))
        if (one.shape() == fastest(part.own).own) config = one;
      cuda::GemmOperands operands{i % 2 == 0 ? x_.address() : y_.address(), weight,
                                  i % 2 == 0 ? y_.address() : x_.address(), bias_.address()};
      if (p.has(Step::kResidual)) operands.residual = residual_.address();
      own.push_back(cuda::Sm90Gemm(p, config, device_).bind(operands));
      const Kind kind = kind_of(part.cublaslt);
      const cuda::GemmShape shape{p.element, rows, p.in, p.out, kind.cublaslt, kind.residual};
      const std::string text = fastest(part.cublaslt).cublaslt;
      library.push_back(
          planner_.plan(shape, planner_.algorithms(shape)[std::stoul(text.substr(text.find(' ')))],
                        bias_.address()));
      weights.push_back(weight);
      weight += static_cast<CUdeviceptr>(p.out * p.in * 2);
    }
    std::vector<std::unique_ptr<Timed>> all;
    const double once = 1500;  // one chain a graph
    for (const bool early : {false, true})
      all.push_back(std::make_unique<Timed>(
          early ? "own_early" : "own", "fastest alone",
          [&, early](CUstream stream, int) {
            for (const auto& call : own) call.launch(stream, !early);
          },
          once, stream_));
    all.push_back(std::make_unique<Timed>(
        "cublaslt", "fastest alone",
        [&](CUstream stream, int) {
          for (std::size_t i = 0; i < library.size(); ++i)
            library[i].run(i % 2 == 0 ? x_.address() : y_.address(), weights[i],
                           i % 2 == 0 ? y_.address() : x_.address(), workspace_.address(), stream);
        },
        once, stream_));
    const auto ranked = rank_and_time(all, rows);
    double flops = 0;
    for (const Part& part : parts)
      flops += 2.0 * kLayers * static_cast<double>(rows * part.product->out * part.product->in);
    report({"base", "chain", 0, 0, ""}, {"erf+residual", {}, cuda::Epilogue::kNone, false}, rows,
           flops, all, ranked);
  }

 private:
  struct Fastest {
    std::string own, cublaslt;
  };

  cuda::GemmOperands operands_of(const cuda::GemmProblem& p) const {
    cuda::GemmOperands operands{x_.address(), 0, y_.address()};
    if (p.has(Step::kBias)) operands.bias = bias_.address();
    if (p.has(Step::kResidual)) operands.residual = residual_.address();
    if (p.has_norm()) operands.gamma = operands.beta = bias_.address();
    if (p.has(Step::kRowStatistics)) operands.statistics = statistics_.address();
    return operands;
  }

  /// By mma.sync, for comparison: the first as predicted.
  std::vector<codegen::Sm80GemmConfig> tried_sm80(const cuda::GemmProblem& problem) const {
    constexpr std::size_t kMma = 3;
    std::vector<codegen::Sm80GemmConfig> configs;
    for (const auto& candidate : sm80_gemm_candidates(problem, device_.facts()))
      if (configs.size() < kMma) configs.push_back(candidate.config);
    return configs;
  }

  std::vector<codegen::GemmConfig> tried(const cuda::GemmProblem& problem) const {
    std::vector<codegen::GemmConfig> configs;
    for (const auto& candidate : gemm_candidates(problem, device_.facts()).feasible)
      if (configs.size() < kOwn) configs.push_back(candidate.config);
    return configs;
  }

  static void grow(DeviceBuffer* buffer, std::int64_t bytes, const char* name) {
    if (buffer->bytes() >= static_cast<std::size_t>(bytes)) return;
    *buffer = DeviceBuffer();
    *buffer = DeviceBuffer(static_cast<std::size_t>(bytes), name);
    fill(*buffer, 0);
  }

  /// Nearly normal values: the power that products draw depends on their operands' bits.
  static void fill(const DeviceBuffer& buffer, std::uint64_t seed) {
    check::Draw draw(seed + 1);
    std::vector<std::uint16_t> block(1 << 20);
    for (auto& bits : block) bits = BFloat16(draw.normal() * 0.1f).bits;
    const auto& driver = cuda::Driver::instance();
    for (std::size_t at = 0; at < buffer.bytes(); at += block.size() * 2)
      driver.check(
          driver.cuMemcpyHtoDAsync(buffer.address() + at, block.data(),
                                   std::min(block.size() * 2, buffer.bytes() - at), nullptr),
          "filling");
    driver.check(driver.cuStreamSynchronize(nullptr), "filling");
  }

  void prepare(const cuda::GemmProblem& p) {
    constexpr std::int64_t kRotated = 128 << 20;
    const std::int64_t bytes = p.out * p.in * 2;
    copies_ = static_cast<int>(std::max<std::int64_t>(2, (kRotated + bytes - 1) / bytes));
    grow(&weights_, bytes * copies_, "weights");
    grow(&x_, p.rows * p.in * 2, "x");
    grow(&y_, p.rows * p.out * 2, "y");
    grow(&residual_, p.rows * p.out * 2, "residual");
    grow(&statistics_, p.rows * (p.out / 16) * 8, "statistics");
    grow(&bias_, p.out * 4, "bias");
  }

  CUdeviceptr weight(const cuda::GemmProblem& p, int launch) const {
    return weights_.address() +
           static_cast<CUdeviceptr>(launch % copies_) * static_cast<CUdeviceptr>(p.out * p.in * 2);
  }

  void time(Timed* timed, std::int64_t rows) {
    if (rows > 128) std::this_thread::sleep_for(std::chrono::milliseconds(rows > 4096 ? 12 : 5));
    driver_.check(driver_.cuEventRecord(begin_, stream_), "recording");
    timed->replay(stream_);
    driver_.check(driver_.cuEventRecord(end_, stream_), "recording");
    driver_.check(driver_.cuEventSynchronize(end_), "waiting");
    float ms = 0;
    driver_.check(driver_.cuEventElapsedTime(&ms, begin_, end_), "reading a time");
    timed->times.push_back(static_cast<double>(ms) * 1000 / timed->launches());
  }

  /// Leaves the best two of each implementation, the fastest first. Returns the best time of each
  /// of ours that may start early in the first rounds, by configuration.
  std::map<std::string, double> rank_and_time(std::vector<std::unique_ptr<Timed>>& all,
                                              std::int64_t rows) {
    for (int round = 0; round < 2; ++round)
      for (const auto& timed : all) time(timed.get(), rows);
    std::map<std::string, double> ranked;
    for (const auto& timed : all)
      if (timed->impl() == "own_early") ranked[timed->config()] = timed->best();
    std::sort(all.begin(), all.end(),
              [](const auto& a, const auto& b) { return a->best() < b->best(); });
    std::map<std::string, int> kept;
    std::erase_if(all, [&](const auto& timed) { return ++kept[timed->impl()] > 2; });
    for (const auto& timed : all) timed->times.clear();
    const int rounds = rows > 128 ? 7 : 11;
    for (int round = 0; round < rounds; ++round) {
      for (const auto& timed : all) time(timed.get(), rows);
      std::reverse(all.begin(), all.end());
    }
    std::sort(all.begin(), all.end(),
              [](const auto& a, const auto& b) { return a->median() < b->median(); });
    return ranked;
  }

  void report(const Product& product, const Kind& kind, std::int64_t rows, double flops,
              const std::vector<std::unique_ptr<Timed>>& all,
              const std::map<std::string, double>& ranked) const {
    std::map<std::string, const Timed*> best;
    for (const auto& timed : all) best.emplace(timed->impl(), timed.get());
    std::string line = fmt::format("{:>8} {:<8} {:>5} x {:>5} x {:>5} {:<16}", product.group,
                                   product.name, rows, product.out, product.in, kind.name);
    const double library = best.contains("cublaslt") ? best["cublaslt"]->median() : 0;
    for (const char* impl : {"cublaslt", "own", "own_early", "mma_early"}) {
      if (!best.contains(impl)) continue;
      const Timed& timed = *best[impl];
      line += fmt::format(" {} {:.2f} us ({:.0f} TF/s", impl, timed.median(),
                          flops / timed.median() / 1e6);
      if (std::string(impl) != "cublaslt")
        line += fmt::format(", {}) {:.2f}x", timed.config(), library / timed.median());
      else
        line += ")";
      if (json_ == nullptr) continue;
      std::string times;
      if (std::string(impl) == "own_early")
        for (const auto& [config, us] : ranked)
          times += fmt::format("{}\"{}\":{:.2f}", times.empty() ? "" : ",", config, us);
      fmt::print(json_,
                 "{{\"group\":\"{}\",\"product\":\"{}\",\"M\":{},\"N\":{},\"K\":{},\"dtype\":"
                 "\"bfloat16\","
                 "\"epilogue\":\"{}\",\"impl\":\"{}\",\"us\":{:.3f},\"tflops\":{:.1f},\"config\":"
                 "\"{}\",\"ranked_us\":{{{}}}}}\n",
                 product.group, product.name, rows, product.out, product.in, kind.name, impl,
                 timed.median(), flops / timed.median() / 1e6, timed.config(), times);
    }
    // How far the configuration that is taken without measuring is from the best.
    if (product.out > 0) {
      const auto first = ranked.find(tried(problem(product, kind, rows)).front().shape());
      double least = first == ranked.end() ? 0 : first->second;
      for (const auto& [config, us] : ranked) least = std::min(least, us);
      if (first != ranked.end())
        line +=
            fmt::format(" default {} +{:.0f} %", first->first, 100 * (first->second / least - 1));
    }
    std::printf("%s\n", line.c_str());
  }

  std::FILE* json_;
  const cuda::Device device_ = cuda::Device::open();
  const cuda::Driver& driver_ = cuda::Driver::instance();
  cuda::GemmPlanner& planner_ = cuda::GemmPlanner::of(device_);
  DeviceBuffer workspace_, x_, y_, weights_, residual_, statistics_, bias_;
  int copies_ = 1;
  /// By group, product, epilogue, rows.
  std::map<std::tuple<std::string, std::string, std::string, std::int64_t>, Fastest> fastest_;
  CUstream stream_ = nullptr;
  cuda::CUevent begin_ = nullptr, end_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) try {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // nothing is lost when a check ends the program
  std::string seconds = "220", rows_text = "0";
  const bench::Arguments arguments(argc, argv, {{"--seconds", &seconds}, {"--rows", &rows_text}});
  arguments.expect_names({"base", "large", "llama1b", "llama7b"});
  const std::int64_t wanted_rows = std::stoll(rows_text);
  const auto deadline = Clock::now() + std::chrono::seconds(std::stoi(seconds));
  Bench bench(arguments.json());
  struct Case {
    Product product;
    Kind kind;
    std::int64_t rows;
  };
  std::vector<Case> cases;
  std::vector<cuda::GemmProblem> problems;
  const std::vector<std::int64_t> all_rows =
      wanted_rows > 0 ? std::vector{wanted_rows}
                      : std::vector<std::int64_t>(std::begin(kRows), std::end(kRows));
  for (const Product& product : kProducts)
    for (const std::int64_t rows : all_rows)
      for (const char* letter = product.epilogues; *letter != 0; ++letter) {
        if (!arguments.wants(product.group)) continue;
        // BERT in full; of the others the sizes that their models run in.
        const bool base = std::string(product.group) == "base";
        if (!base && rows == 128 && product.in > 4096) continue;
        cases.push_back({product, kind_of(*letter), rows});
        problems.push_back(bench.problem(product, cases.back().kind, rows));
      }
  bench.compile(problems);
  for (const Case& one : cases) {
    if (Clock::now() > deadline) {
      std::printf("out of time before %s %s, %ld rows\n", one.product.group, one.product.name,
                  static_cast<long>(one.rows));
      break;
    }
    bench.run(one.product, one.kind, one.rows);
    const bool base_done = &one == &cases.back() || std::string((&one)[1].product.group) != "base";
    if (std::string(one.product.group) == "base" && base_done && wanted_rows == 0)
      for (const std::int64_t rows : {std::int64_t{128}, std::int64_t{4096}, std::int64_t{32768}})
        bench.run_chain(rows);
  }
  return 0;
} catch (const std::exception& error) {
  return stof::bench::give_up(error);
}
