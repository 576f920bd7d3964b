// Products by cuBLASLt: bias, bias + ReLU, bias + GELU (tanh), and a residual as the matrix that
// the product is added to.

#include "backend/cuda/cublaslt.h"

#include <optional>

#include "backend/cuda/segments/operands.h"

namespace stof::cuda {
namespace {

using fusion::Choice;
using fusion::Segment;
using fusion::Step;
using graph::Graph;
using graph::ValueId;

struct Problem {
  GemmShape shape;
  ValueId x, weight, y, bias = graph::kNoId, residual = graph::kNoId;
};

bool is_element(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

/// None where the library has no epilogue for the steps.
std::optional<Problem> problem_of(const Graph& graph, const Segment& segment) {
  if (segment.family != fusion::Family::kGemm || segment.outputs.size() != 1 ||
      segment.gate_view != graph::kNoId)
    return std::nullopt;
  Problem problem{{}, segment.inputs[0], segment.inputs[1], segment.outputs[0]};
  const graph::Value &x = graph.value(problem.x), &weight = graph.value(problem.weight),
                     &y = graph.value(problem.y);
  for (const ValueId id : {problem.x, problem.weight, problem.y})
    if (!is_dense(graph, id)) return std::nullopt;
  if (!is_element(x.dtype) || weight.dtype != x.dtype || y.dtype != x.dtype) return std::nullopt;
  problem.shape = {x.dtype, x.shape[0], x.shape[1], weight.shape[0]};
  if (problem.shape.in % 8 != 0 || problem.shape.out % 8 != 0) return std::nullopt;
  Step last = Step::kMatmul;  // none yet
  for (const fusion::EpilogueStep& step : segment.steps) {
    switch (step.step) {
      case Step::kBias:
        // The library adds bias and residual before anything else, so their order is free.
        if (problem.shape.epilogue != Epilogue::kNone || graph.value(step.operand).dtype != x.dtype)
          return std::nullopt;
        problem.shape.epilogue = Epilogue::kBias;
        problem.bias = step.operand;
        break;
      case Step::kRelu:
      case Step::kGeluTanh:
        // Of a bias: without one they are rare, and a residual would come between.
        if (problem.shape.epilogue != Epilogue::kBias || problem.shape.residual)
          return std::nullopt;
        problem.shape.epilogue =
            step.step == Step::kRelu ? Epilogue::kBiasRelu : Epilogue::kBiasGeluTanh;
        break;
      case Step::kResidual:
        if (problem.shape.residual || last == Step::kRelu || last == Step::kGeluTanh ||
            !is_dense(graph, step.operand) || !(graph.value(step.operand).shape == y.shape) ||
            graph.value(step.operand).dtype != x.dtype)
          return std::nullopt;
        problem.shape.residual = true;
        problem.residual = step.operand;
        break;
      default:
        return std::nullopt;
    }
    last = step.step;
  }
  return problem;
}

struct Field {
  const char* name;
  std::int32_t GemmAlgorithm::*field;
};
constexpr Field kFields[] = {
    {"algorithm", &GemmAlgorithm::id},        {"tile", &GemmAlgorithm::tile},
    {"stages", &GemmAlgorithm::stages},       {"split_k", &GemmAlgorithm::split_k},
    {"reduction", &GemmAlgorithm::reduction}, {"swizzle", &GemmAlgorithm::swizzle},
    {"custom", &GemmAlgorithm::custom},       {"inner", &GemmAlgorithm::inner},
    {"cluster", &GemmAlgorithm::cluster}};

std::vector<Choice> choices(const Graph& graph, const Segment& segment, const Device& device) {
  const std::optional<Problem> problem = problem_of(graph, segment);
  if (!problem) return {};
  std::vector<Choice> all;
  for (const GemmAlgorithm& algorithm : GemmPlanner::of(device).algorithms(problem->shape)) {
    Choice& choice = all.emplace_back();
    choice.family = kCublasLtRunners.name;
    for (const Field& field : kFields) choice.parameters[field.name] = algorithm.*field.field;
  }
  return all;
}

class Product final : public SegmentRunner {
 public:
  Product(Gemm gemm, CUdeviceptr x, CUdeviceptr weight, CUdeviceptr y, CUdeviceptr residual,
          CUdeviceptr workspace)
      : gemm_(std::move(gemm)),
        x_(x),
        weight_(weight),
        y_(y),
        residual_(residual),
        workspace_(workspace) {}

  void launch(CUstream stream) const override {
    gemm_.run(x_, weight_, y_, workspace_, stream, residual_);
  }

 private:
  Gemm gemm_;
  CUdeviceptr x_, weight_, y_, residual_, workspace_;
};

std::unique_ptr<SegmentRunner> make(const Graph& graph, const Segment& segment,
                                    const Choice& choice, const SegmentBindings& bindings,
                                    const Device& device) {
  const std::optional<Problem> problem = problem_of(graph, segment);
  if (!problem) refuse(graph, segment, choice, "the library has no epilogue for its steps");
  GemmAlgorithm algorithm;
  for (const Field& field : kFields)
    algorithm.*field.field = static_cast<std::int32_t>(choice.at(field.name));
  const auto address = [&](ValueId id) {
    return id == graph::kNoId ? CUdeviceptr{0} : matrix_of(graph, bindings, id).data;
  };
  Gemm gemm = GemmPlanner::of(device).plan(problem->shape, algorithm, address(problem->bias));
  return std::make_unique<Product>(std::move(gemm), address(problem->x), address(problem->weight),
                                   address(problem->y), address(problem->residual),
                                   bindings.workspace);
}

}  // namespace

const RunnerFamily kCublasLtRunners = {"cublaslt", choices, make};

}  // namespace stof::cuda
