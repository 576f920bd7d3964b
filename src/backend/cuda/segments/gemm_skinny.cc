// Products of few rows with their steps, and a norm in front where the segment begins with one.

#include "backend/cuda/gemm/skinny_gemm.h"
#include "backend/cuda/segments/product.h"

namespace stof::cuda {
namespace {

using codegen::RowPrologue;
using codegen::SkinnyGemmConfig;
using fusion::Choice;
using fusion::Segment;
using graph::Graph;

SkinnyProblem problem_of(const Product& product) { return {product.problem, product.prologue}; }

std::vector<Choice> choices(const Graph& graph, const Segment& segment, const Device& device) {
  const std::optional<Product> product = normed_product_of(graph, segment);
  if (!product) return {};
  std::vector<Choice> all;
  for (const auto& candidate : skinny_gemm_candidates(problem_of(*product), device.facts()))
    all.push_back(choice_of(candidate.config));
  return all;
}

jit::CubinRequest kernel(const Graph& graph, const Segment& segment, const Choice& choice,
                         const Device& device) {
  const SkinnyGemmConfig config =
      skinny_gemm_config_of(choice, problem_of(expect_normed_product(graph, segment, choice)));
  return {config.name(), emit_gemm(config), device.facts().target()};
}

std::unique_ptr<SegmentRunner> make(const Graph& graph, const Segment& segment,
                                    const Choice& choice, const SegmentBindings& bindings,
                                    const Device& device) {
  const Product product = expect_normed_product(graph, segment, choice);
  const SkinnyProblem problem = problem_of(product);
  const SkinnyGemm gemm(problem, skinny_gemm_config_of(choice, problem), device);
  return make_call_runner(gemm.bind(operands_of(graph, product, bindings), bindings.workspace));
}

}  // namespace

const RunnerFamily kSkinnyGemmRunners = {kSkinnyGemmFamily, choices, make, kernel};

}  // namespace stof::cuda
