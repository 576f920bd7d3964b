// Checks the mma.sync matrix products on a GPU: every configuration that this GPU or another of
// compute capability 8.0 and more takes, every kind of step, sizes that end inside tiles, split
// sums, chains of dependent products that start early.
//   gemm_sm80_gpu_check [CHECK...]      chain, products; default: all

#include <fmt/core.h>

#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "backend/cuda/gemm/sm80_gemm.h"
#include "backend/cuda/gemm/split_sums.h"
#include "gpu/compile_ahead.h"
#include "gpu/gemm_case.h"
#include "stof/error.h"

namespace {

using namespace stof;
using check::report;
using codegen::Sm80GemmConfig;
using cuda::Sm80Gemm;
using Step = codegen::GemmStep;
using Steps = std::vector<Step>;

const std::vector<Steps> kUsual = {
    {},
    {Step::kBias, Step::kGeluErf},
    {Step::kBias, Step::kResidual},
    {Step::kSilu, Step::kGate},
};
const std::vector<Steps> kRare = {
    {Step::kBias, Step::kRelu, Step::kRowStatistics},
    {Step::kRowScale, Step::kBias, Step::kGeluTanh, Step::kGate, Step::kResidual,
     Step::kRowStatistics},
};

struct Size {
  std::int64_t rows, in, out, gap;
  bool all;  ///< all steps, or the usual ones
};
constexpr Size kSizes[] = {{1, 64, 64, 0, true},        {7, 200, 96, 24, true},
                           {129, 768, 800, 8, true},    {16, 3072, 768, 0, false},
                           {300, 1096, 304, 40, true},  {4096, 72, 768, 0, false},
                           {1000, 768, 3072, 0, false}, {3001, 200, 2304, 8, false}};

DType bias_of(DType element, const Steps& steps) {
  return steps.size() % 2 == 1 ? DType::kFloat32 : element;
}

/// What this GPU takes and, since stages differ with shared memory, what an A100 and an RTX 4090
/// would.
std::vector<Sm80GemmConfig> configs_of(const cuda::GemmProblem& problem,
                                       const cuda::Device& device) {
  std::vector<Sm80GemmConfig> configs;
  std::set<std::string> names;
  cuda::DeviceFacts others[] = {device.facts(), device.facts(), device.facts()};
  others[1].major = others[2].major = 8;
  others[1].minor = 0, others[2].minor = 9;
  for (const cuda::DeviceFacts& facts : others)
    for (const Sm80GemmConfig& config : registered_sm80_gemm_configs(problem, facts))
      if (gemm_refusal(config, problem, device.facts()).empty() &&
          names.insert(config.name()).second)
        configs.push_back(config);
  return configs;
}

template <class Visit>
void for_each_case(const Visit& visit) {
  for (const Size& size : kSizes)
    for (const DType element : {DType::kBFloat16, DType::kFloat16}) {
      if (element == DType::kFloat16 && size.rows > 300) continue;
      std::vector<Steps> steps = kUsual;
      if (size.all && element == DType::kBFloat16)
        steps.insert(steps.end(), kRare.begin(), kRare.end());
      visit(size, element, steps);
    }
}

void check_products(const cuda::Device& device) {
  const cuda::DeviceBuffer workspace(cuda::kSplitSumsBytes, "workspace");
  std::map<std::string, std::string> sources;
  for_each_case([&](const Size& size, DType element, const std::vector<Steps>& all) {
    for (const Steps& steps : all) {
      cuda::GemmProblem problem;
      problem.element = element;
      problem.rows = size.rows, problem.in = size.in, problem.out = size.out;
      problem.steps = steps;
      problem.bias = bias_of(element, steps);
      for (const auto& config : configs_of(problem, device))
        sources[config.name()] = emit_gemm(config);
    }
  });
  check::compile_ahead(sources, device.facts().target());
  std::uint64_t seed = 1;
  for_each_case([&](const Size& size, DType element, const std::vector<Steps>& all) {
    check::GemmCase data(element, size.rows, size.in, size.out, size.gap, ++seed);
    const int before = check::num_failed();
    int count = 0;
    double worst = 0;
    for (const Steps& steps : all) {
      const cuda::GemmProblem problem = data.problem(steps, bias_of(element, steps));
      for (const Sm80GemmConfig& config : configs_of(problem, device)) {
        const std::string what = fmt::format("{} {}", data.describe(), config.name());
        try {
          const Sm80Gemm gemm(problem, config, device);
          report(what,
                 data.check({problem, gemm.statistics_columns(), config.out_n() / config.warps_n,
                             [&](const cuda::GemmOperands& operands) {
                               return [call = gemm.bind(operands, workspace.address())] {
                                 call.launch(nullptr);
                               };
                             }}));
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
  });
}

/// Products that read each other's results and share a workspace: early start must change no bit,
/// one by one and as a graph.
void check_chain(const cuda::Device& device) {
  const cuda::DeviceBuffer workspace(cuda::kSplitSumsBytes, "workspace");
  constexpr std::int64_t kWidth = 768;
  for (const std::int64_t rows : {std::int64_t{16}, std::int64_t{128}}) {
    cuda::GemmProblem problem;
    problem.rows = rows;
    problem.in = problem.out = kWidth;
    problem.steps = {Step::kResidual};
    const auto candidates = sm80_gemm_candidates(problem, device.facts());
    const auto bind = [&](const cuda::GemmOperands& operands, int layer) {
      const auto& config = candidates[static_cast<std::size_t>(layer) % candidates.size()].config;
      const auto call = Sm80Gemm(problem, config, device).bind(operands, workspace.address());
      return [call](cuda::CUstream stream, bool after_all) { call.launch(stream, after_all); };
    };
    report(fmt::format("chain of {} rows", rows), check::check_layers(rows, kWidth, 12, bind));
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  return check::run_checks({{"chain", check_chain}, {"products", check_products}}, argc, argv);
}
