// Products on Hopper with their steps in the same kernel.

#include "backend/cuda/gemm/choice.h"
#include "backend/cuda/gemm/sm90_gemm.h"
#include "backend/cuda/segments/product.h"

namespace stof::cuda {
namespace {

using fusion::Choice;
using fusion::Segment;
using graph::Graph;

std::vector<Choice> choices(const Graph& graph, const Segment& segment, const Device& device) {
  const std::optional<Product> product = product_of(graph, segment);
  if (!product) return {};
  std::vector<Choice> all;
  for (const GemmCandidate& candidate : gemm_candidates(product->problem, device.facts()).feasible)
    all.push_back(choice_of(candidate.config));
  return all;
}

jit::CubinRequest kernel(const Graph& graph, const Segment& segment, const Choice& choice,
                         const Device& device) {
  const codegen::GemmConfig config =
      gemm_config_of(choice, expect_product(graph, segment, choice).problem);
  return {config.name(), emit_gemm(config), device.facts().target()};
}

std::unique_ptr<SegmentRunner> make(const Graph& graph, const Segment& segment,
                                    const Choice& choice, const SegmentBindings& bindings,
                                    const Device& device) {
  const Product product = expect_product(graph, segment, choice);
  const Sm90Gemm gemm(product.problem, gemm_config_of(choice, product.problem), device);
  return make_call_runner(gemm.bind(operands_of(graph, product, bindings)));
}

}  // namespace

const RunnerFamily kSm90GemmRunners = {kSm90GemmFamily, choices, make, kernel};

}  // namespace stof::cuda
