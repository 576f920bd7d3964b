// Which scheme a GPU runs untuned.

#include <algorithm>

#include "backend/cuda/segments/segments.h"
#include "exec/cuda_session.h"
#include "fusion/initial.h"

namespace stof::exec {
namespace {

using graph::Graph;

/// A norm behind a product takes whole rows in one cluster, a chain of products takes few rows:
/// whether that pays is the search's to find. So it is of a norm in front, which every block
/// computes, and of a cache's store behind, but for the few rows of which they pay.
bool needs_measuring(const Graph& graph, const fusion::Segment& segment) {
  const auto is_norm = [](const fusion::EpilogueStep& step) {
    return step.step == fusion::Step::kLayerNorm || step.step == fusion::Step::kRmsNorm;
  };
  const auto stores = [](const fusion::EpilogueStep& step) {
    return step.step == fusion::Step::kCacheStore;
  };
  const auto has = [&](const auto& matches) {
    return std::any_of(segment.steps.begin(), segment.steps.end(), matches);
  };
  if (segment.family == fusion::Family::kGemmChain) return true;
  const bool few = graph.value(segment.inputs[0]).shape[0] <= cuda::kStreamedRows;
  if (segment.family == fusion::Family::kNormGemm) return !few;
  return segment.family == fusion::Family::kGemm && (has(is_norm) || (has(stores) && !few));
}

}  // namespace

std::vector<fusion::Choice> first_cuda_candidates(const Graph& graph,
                                                  const fusion::Segment& segment,
                                                  const cuda::Device& device,
                                                  const Allows& allows) {
  const auto candidates_of = [&](const Graph& g, const fusion::Segment& s, const Allows& families) {
    return cuda::first_candidates(g, s, device, families);
  };
  return installed_candidates(candidates_of, "cublaslt", graph, segment, allows);
}

fusion::Scheme untuned_cuda_scheme(const Graph& graph, const cuda::Device& device,
                                   const FuseSwitches& switches) {
  const CandidatesOf candidates_of = [&](const Graph& g, const fusion::Segment& segment) {
    return first_cuda_candidates(
        g, segment, device, [&](const std::string& family) { return switches.allows(family); });
  };
  if (device.facts().major != 9 || !switches.allows("gemm_sm90"))
    return runnable_scheme(
        graph, fusion::initial_scheme(graph, {}, {.streamed_rows = cuda::kStreamedRows}),
        candidates_of, switches);
  // Our products read a residual while they add up, at next to no cost, and a norm behind them then
  // reads one matrix instead of two: what follows a product goes with it as far as it can.
  const auto [first, last] = graph.layer_range(0);
  return runnable_scheme(
      graph, fusion::Scheme::from_sizes({last - first + 1}),
      [&](const Graph& g, const fusion::Segment& segment) {
        return needs_measuring(g, segment) ? std::vector<fusion::Choice>()
                                           : candidates_of(g, segment);
      },
      switches);
}

}  // namespace stof::exec
