// Products by mma.sync with their steps in the same kernel.

#include <algorithm>

#include "backend/cuda/gemm/sm80_gemm.h"
#include "backend/cuda/segments/product.h"

namespace stof::cuda {
namespace {

using fusion::Choice;
using fusion::Segment;
using graph::Graph;

/// Hopper's own kernels are faster wherever a tile of theirs is full: they have 64 rows.
constexpr std::int64_t kFullRows = 64;
constexpr std::size_t kMostOnHopper = 4;

std::vector<Choice> choices(const Graph& graph, const Segment& segment, const Device& device) {
  const std::optional<Product> product = product_of(graph, segment);
  const bool hopper = device.facts().major >= 9;
  if (!product || (hopper && product->problem.rows >= kFullRows)) return {};
  const auto candidates = sm80_gemm_candidates(product->problem, device.facts());
  const std::size_t count = hopper ? std::min(kMostOnHopper, candidates.size()) : candidates.size();
  std::vector<Choice> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(choice_of(candidates[i].config));
  return all;
}

jit::CubinRequest kernel(const Graph& graph, const Segment& segment, const Choice& choice,
                         const Device& device) {
  const codegen::Sm80GemmConfig config =
      sm80_gemm_config_of(choice, expect_product(graph, segment, choice).problem);
  return {config.name(), emit_gemm(config), device.facts().target()};
}

std::unique_ptr<SegmentRunner> make(const Graph& graph, const Segment& segment,
                                    const Choice& choice, const SegmentBindings& bindings,
                                    const Device& device) {
  const Product product = expect_product(graph, segment, choice);
  const Sm80Gemm gemm(product.problem, sm80_gemm_config_of(choice, product.problem), device);
  return make_call_runner(gemm.bind(operands_of(graph, product, bindings), bindings.workspace));
}

}  // namespace

const RunnerFamily kSm80GemmRunners = {kSm80GemmFamily, choices, make, kernel};

}  // namespace stof::cuda
