// Checks the products of few rows on a GPU: every candidate, steps, norms in front, sizes that end
// inside tiles and chunks, split sums, chains of dependent products that start early.
//   gemm_skinny_gpu_check [CHECK...]      chain, products; default: all

#include <fmt/core.h>

#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "backend/cuda/gemm/skinny_gemm.h"
#include "backend/cuda/gemm/split_sums.h"
#include "gpu/compile_ahead.h"
#include "gpu/gemm_case.h"
#include "stof/error.h"

namespace {

using namespace stof;
using check::report;
using codegen::RowPrologue;
using cuda::SkinnyGemm;
using cuda::SkinnyProblem;
using Step = codegen::GemmStep;
using Steps = std::vector<Step>;

const std::vector<Steps> kSteps = {
    {},
    {Step::kBias, Step::kGeluErf},
    {Step::kBias, Step::kRelu, Step::kResidual},
    {Step::kSilu, Step::kGate},
    {Step::kBias, Step::kGeluTanh, Step::kGate, Step::kResidual},
    {Step::kBias, Step::kCacheStore},
};
/// Where columns are whole heads.
const std::vector<Steps> kRopes = {{Step::kRope, Step::kCacheStore}, {Step::kBias, Step::kRope}};

std::vector<Steps> steps_for(std::int64_t out) {
  std::vector<Steps> steps = kSteps;
  if (out % 128 == 0) steps.insert(steps.end(), kRopes.begin(), kRopes.end());
  return steps;
}

struct Size {
  std::int64_t rows, in, out, gap;
};
constexpr Size kSizes[] = {{1, 64, 64, 0},    {3, 200, 96, 24},   {8, 3072, 768, 0},
                           {8, 768, 3088, 8}, {16, 1096, 304, 8}, {29, 768, 2304, 0},
                           {64, 768, 784, 8}, {1, 4096, 6144, 0}, {64, 200, 48, 40}};

DType bias_of(DType element, const Steps& steps) {
  return steps.size() % 2 == 1 ? DType::kFloat32 : element;
}

template <class Visit>
void for_each_case(const Visit& visit) {
  for (const Size& size : kSizes)
    for (const DType element : {DType::kBFloat16, DType::kFloat16})
      for (const RowPrologue prologue :
           {RowPrologue::kNone, RowPrologue::kLayerNorm, RowPrologue::kRmsNorm}) {
        // float16 differs in a conversion and one instruction.
        if (element == DType::kFloat16 && (size.gap == 0 || prologue == RowPrologue::kRmsNorm))
          continue;
        visit(size, element, prologue);
      }
}

void check_products(const cuda::Device& device) {
  const cuda::DeviceBuffer workspace(cuda::kSplitSumsBytes, "workspace");
  std::map<std::string, std::string> sources;
  for_each_case([&](const Size& size, DType element, RowPrologue prologue) {
    for (const Steps& steps : steps_for(size.out)) {
      SkinnyProblem problem{{}, prologue};
      problem.product.element = element;
      problem.product.rows = size.rows, problem.product.in = size.in,
      problem.product.out = size.out;
      problem.product.steps = steps;
      problem.product.bias = bias_of(element, steps);
      problem.product.gamma = problem.product.bias == element ? DType::kFloat32 : element;
      if (problem.product.has(Step::kCacheStore)) problem.product.cache_stride = size.out;
      if (problem.product.has(Step::kRope))
        problem.product.head_dim = problem.product.has(Step::kBias) ? 128 : 64;
      for (const auto& candidate : skinny_gemm_candidates(problem, device.facts()))
        sources[candidate.config.name()] = emit_gemm(candidate.config);
    }
  });
  check::compile_ahead(sources, device.facts().target());
  std::uint64_t seed = 1;
  for_each_case([&](const Size& size, DType element, RowPrologue prologue) {
    check::GemmCase data(element, size.rows, size.in, size.out, size.gap, ++seed, prologue);
    const int before = check::num_failed();
    int count = 0;
    double worst = 0;
    for (const Steps& steps : steps_for(size.out)) {
      const SkinnyProblem problem{data.problem(steps, bias_of(element, steps)), prologue};
      const auto candidates = skinny_gemm_candidates(problem, device.facts());
      if (candidates.empty()) report(problem.describe(), "no configuration is feasible");
      for (const auto& candidate : candidates) {
        const std::string what = fmt::format("{} {}", data.describe(), candidate.config.name());
        try {
          const SkinnyGemm gemm(problem, candidate.config, device);
          report(what, data.check({problem.product, 0, 0, [&](const cuda::GemmOperands& operands) {
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

/// Normalised products that read each other's results and share a workspace: early start must
/// change no bit, one by one and as a graph.
void check_chain(const cuda::Device& device) {
  const cuda::DeviceBuffer workspace(cuda::kSplitSumsBytes, "workspace");
  constexpr std::int64_t kWidth = 1024;
  check::DeviceFloats gamma;
  gamma.values.assign(kWidth, 1.0f);
  gamma.upload("gamma");
  for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{16}, std::int64_t{64}}) {
    SkinnyProblem problem{{}, RowPrologue::kRmsNorm};
    problem.product.rows = rows;
    problem.product.in = problem.product.out = kWidth;
    problem.product.steps = {Step::kResidual};
    problem.product.epsilon = 1e-5;
    const auto candidates = skinny_gemm_candidates(problem, device.facts());
    const auto bind = [&](cuda::GemmOperands operands, int layer) {
      operands.gamma = gamma.buffer.address();
      const auto& config = candidates[static_cast<std::size_t>(layer) % candidates.size()].config;
      const auto call = SkinnyGemm(problem, config, device).bind(operands, workspace.address());
      return [call](cuda::CUstream stream, bool after_all) { call.launch(stream, after_all); };
    };
    report(fmt::format("chain of {} rows", rows), check::check_layers(rows, kWidth, 16, bind));
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  return check::run_checks({{"chain", check_chain}, {"products", check_products}}, argc, argv);
}
