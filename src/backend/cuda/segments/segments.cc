#include "backend/cuda/segments/segments.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "backend/cuda/cublaslt.h"
#include "backend/cuda/gemm/skinny_configs.h"
#include "backend/cuda/gemm/sm80_configs.h"
#include "backend/cuda/gemm/split_sums.h"
#include "backend/cuda/segments/operands.h"
#include "backend/cuda/segments/product.h"
#include "core/check.h"

namespace stof::cuda {

using fusion::Choice;
using graph::Graph;
using graph::ValueId;

namespace {

const RunnerFamily* const kFamilies[] = {&kSm90GemmRunners, &kCublasLtRunners,
                                         &kSm80GemmRunners, &kSkinnyGemmRunners,
                                         &kRowRunners,      &kAttentionRunners};

// From here on the library's product with a bias or a residual is faster than ours: 2 and 3 % at
// 4096 and 32768 rows of 2048 x 8192 (bench/results/segments_h200.jsonl).
constexpr std::int64_t kLibraryFirstRows = 4096;
constexpr std::int64_t kLibraryFirstDepth = 8192;

/// In the order of what is used untuned. Hopper's own products start while the kernel before them
/// ends, and know more steps than the library; those by mma.sync run what it does not. Of many rows
/// and long sums the library's come first where it has the steps.
std::vector<const RunnerFamily*> families_of(const Graph& graph, const fusion::Segment& segment) {
  std::vector<const RunnerFamily*> families(std::begin(kFamilies), std::end(kFamilies));
  const std::optional<Product> product = normed_product_of(graph, segment);
  if (!product) return families;
  const GemmProblem& problem = product->problem;
  const RunnerFamily* first = families[0];
  if (problem.rows <= kStreamedRows)
    first = &kSkinnyGemmRunners;
  else if (problem.rows >= kLibraryFirstRows && problem.in >= kLibraryFirstDepth)
    first = &kCublasLtRunners;
  const auto at = std::find(families.begin(), families.end(), first);
  std::rotate(families.begin(), at, at + 1);
  return families;
}

const RunnerFamily& family_of(const Graph& graph, const fusion::Segment& segment,
                              const Choice& choice) {
  for (const RunnerFamily* family : kFamilies)
    if (choice.family == family->name) return *family;
  refuse(graph, segment, choice, "no such family");
}

}  // namespace

Matrix matrix_of(const Graph& graph, const SegmentBindings& bindings, ValueId id) {
  const graph::Value& value = graph.value(id);
  const ValueId storage = graph.storage(id);
  const auto at = static_cast<std::size_t>(storage);
  STOF_CHECK(at < bindings.addresses.size() && bindings.addresses[at] != 0, kInvalidArgument,
             "bindings: expected an address of value \"{}\"", graph.value(storage).name);
  const Dims& base = graph.value(storage).shape;
  const std::int64_t first = value.view_of == graph::kNoId ? 0 : value.view_column;
  Matrix matrix;
  matrix.data = bindings.addresses[at] + static_cast<CUdeviceptr>(first) * dtype_bytes(value.dtype);
  matrix.columns = value.shape[value.shape.rank() - 1];
  matrix.rows = value.shape.rank() == 2 ? value.shape[0] : 1;
  matrix.stride = matrix.rows == 1 ? 0 : base[base.rank() - 1];
  return matrix;
}

bool is_dense(const Graph& graph, ValueId id) {
  const graph::Value& value = graph.value(id);
  return value.shape.rank() == 2 && value.shape == graph.value(graph.storage(id)).shape;
}

void refuse(const Graph& graph, const fusion::Segment& segment, const Choice& choice,
            const std::string& why) {
  throw_error(ErrorCode::kUnsupported, "segment {}: \"{}\" does not run it: {}",
              describe(graph, segment), choice.text(), why);
}

std::vector<Choice> candidates(const Graph& graph, const fusion::Segment& segment,
                               const Device& device) {
  std::vector<Choice> all;
  for (const RunnerFamily* family : families_of(graph, segment)) {
    std::vector<Choice> some = family->candidates(graph, segment, device);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

std::size_t workspace_bytes(const Choice& choice) {
  if (choice.family == kCublasLtRunners.name) return GemmPlanner::kWorkspaceBytes;
  const bool own = choice.family == kSm80GemmFamily || choice.family == kSkinnyGemmFamily;
  if (own && choice.at("splits") > 1) return static_cast<std::size_t>(kSplitSumsBytes);
  return 0;
}

std::vector<Choice> first_candidates(const Graph& graph, const fusion::Segment& segment,
                                     const Device& device,
                                     const std::function<bool(const std::string&)>& allows) {
  for (const RunnerFamily* family : families_of(graph, segment)) {
    if (!allows(family->name)) continue;
    std::vector<Choice> some = family->candidates(graph, segment, device);
    if (!some.empty()) return some;
  }
  return {};
}

void compile_ahead(const Graph& graph, const std::vector<SegmentChoice>& choices,
                   const Device& device) {
  std::vector<jit::CubinRequest> requests;
  std::set<std::string> names;
  for (const auto& [segment, choice] : choices) {
    const RunnerFamily& family = family_of(graph, *segment, *choice);
    if (family.kernel == nullptr) continue;
    jit::CubinRequest request = family.kernel(graph, *segment, *choice, device);
    if (names.insert(request.name).second) requests.push_back(std::move(request));
  }
  jit::cubins_for(requests);
}

std::unique_ptr<SegmentRunner> make_runner(const Graph& graph, const fusion::Segment& segment,
                                           const Choice& choice, const SegmentBindings& bindings,
                                           const Device& device) {
  return family_of(graph, segment, choice).make(graph, segment, choice, bindings, device);
}

}  // namespace stof::cuda
