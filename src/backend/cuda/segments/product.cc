#include "backend/cuda/segments/product.h"

namespace stof::cuda {

using codegen::GemmStep;
using fusion::Segment;
using fusion::Step;
using graph::Graph;
using graph::kNoId;
using graph::ValueId;

namespace {

bool is_weight(const Graph& graph, ValueId id) {
  return graph.value(id).kind == graph::ValueKind::kWeight;
}

/// Of the steps from number `first` on, a product with `weight` before them, and the norm in front
/// where there is one.
std::optional<Product> product_from(const Graph& graph, const Segment& segment, ValueId weight_id,
                                    std::size_t first, const fusion::EpilogueStep* norm) {
  // Sums of squares, and a cache, are the last operator's output, and stand before what they are
  // of.
  const bool squared = graph.op(segment.last).op == graph::Op::kRowSquares;
  const bool cached = graph.op(segment.last).op == graph::Op::kCacheStore;
  if (segment.outputs.size() != (squared || cached ? 2 : 1)) return std::nullopt;
  Product product{
      {}, codegen::RowPrologue::kNone, segment.inputs[0], weight_id, segment.outputs.back()};
  if (squared) product.row_squares = segment.outputs[0];
  if (cached) product.cache = segment.outputs[0];
  const graph::Value &x = graph.value(product.x), &weight = graph.value(product.weight),
                     &y = graph.value(product.y);
  // Weight and bias are read before the kernel before has ended: it must not write them.
  const bool by_heads = graph.op(segment.last).op == graph::Op::kHeadStore;
  if (weight.dtype != x.dtype || y.dtype != x.dtype || y.shape.rank() != (by_heads ? 3 : 2) ||
      !is_dense(graph, product.weight) || !is_weight(graph, product.weight))
    return std::nullopt;
  // The copy engine reads and writes from multiples of 16 bytes.
  const auto is_aligned = [&](ValueId id) { return graph.value(id).view_column % 8 == 0; };
  if (!is_aligned(product.x) || !is_aligned(product.y)) return std::nullopt;
  GemmProblem& problem = product.problem;
  const auto stride = [&](ValueId id) {
    const Dims& base = graph.value(graph.storage(id)).shape;
    return base[base.rank() - 1];
  };
  problem.element = x.dtype;
  problem.rows = x.shape[0];
  problem.in = x.shape[1];
  problem.out = weight.shape[0];
  problem.x_stride = stride(product.x);
  problem.y_stride = by_heads ? 0 : stride(product.y);
  // Of elements or float32: the bias, and gamma with beta.
  const auto take_vector = [&](ValueId id, ValueId* taken, DType* dtype) {
    if (*taken != kNoId || !is_weight(graph, id)) return false;
    *taken = id;
    *dtype = graph.value(id).dtype;
    return *dtype == x.dtype || *dtype == DType::kFloat32;
  };
  const auto take_norm = [&](const fusion::EpilogueStep& step) {
    problem.epsilon = step.epsilon;
    DType beta = DType::kFloat32;
    return take_vector(step.operand, &product.gamma, &problem.gamma) &&
           (step.step == Step::kRmsNorm ||
            (take_vector(step.operand2, &product.beta, &beta) && beta == problem.gamma));
  };
  if (norm != nullptr) {
    if (!take_norm(*norm)) return std::nullopt;
    product.prologue = norm->step == Step::kLayerNorm ? codegen::RowPrologue::kLayerNorm
                                                      : codegen::RowPrologue::kRmsNorm;
  }
  for (std::size_t i = first; i < segment.steps.size(); ++i) {
    const fusion::EpilogueStep& step = segment.steps[i];
    switch (step.step) {
      case Step::kBias:
        if (!take_vector(step.operand, &product.bias, &problem.bias)) return std::nullopt;
        problem.steps.push_back(GemmStep::kBias);
        break;
      case Step::kLayerNorm:
      case Step::kRmsNorm:
        if (!take_norm(step)) return std::nullopt;
        problem.steps.push_back(step.step == Step::kLayerNorm ? GemmStep::kLayerNorm
                                                              : GemmStep::kRmsNorm);
        break;
      case Step::kRope: {
        const graph::Attributes& a = graph.op(step.op).attributes;
        // Positions are read before the kernel before has ended: none of them may make them.
        if (graph.value(step.operand).kind != graph::ValueKind::kInput ||
            !is_weight(graph, step.operand2))
          return std::nullopt;
        problem.steps.push_back(GemmStep::kRope);
        problem.head_dim = a.head_dim;
        problem.rotated = (a.heads + a.kv_heads) * a.head_dim;
        product.positions = step.operand;
        product.frequencies = step.operand2;
        break;
      }
      case Step::kHeadStore: {
        const std::int64_t dim = graph.op(step.op).attributes.head_dim;
        if (problem.head_dim != 0 && problem.head_dim != dim) return std::nullopt;
        problem.steps.push_back(GemmStep::kHeadStore);
        problem.head_dim = dim;
        break;
      }
      case Step::kCacheStore: {
        const graph::Attributes& a = graph.op(step.op).attributes;
        if (graph.value(step.operand).kind != graph::ValueKind::kInput ||
            graph.value(product.cache).dtype != x.dtype || !is_aligned(product.cache))
          return std::nullopt;
        problem.steps.push_back(GemmStep::kCacheStore);
        problem.cached = a.heads * a.head_dim;
        problem.cache_stride = stride(product.cache);
        product.slots = step.operand;
        break;
      }
      case Step::kRmsScale:
        if (!is_dense(graph, step.operand)) return std::nullopt;
        problem.steps.push_back(GemmStep::kRmsScale);
        problem.epsilon = step.epsilon;
        problem.num_squares = graph.value(step.operand).shape[1];
        product.squares = step.operand;
        break;
      case Step::kRowSquares:
        problem.steps.push_back(GemmStep::kRowSquares);
        break;
      case Step::kGate:  // of the product's own halves, gates first
        if (segment.gate_view == kNoId || graph.value(segment.gate_view).view_column != 0 ||
            graph.value(step.operand).view_column != problem.out / 2)
          return std::nullopt;
        problem.steps.push_back(GemmStep::kGate);
        break;
      case Step::kRelu:
        problem.steps.push_back(GemmStep::kRelu);
        break;
      case Step::kGeluErf:
        problem.steps.push_back(GemmStep::kGeluErf);
        break;
      case Step::kGeluTanh:
        problem.steps.push_back(GemmStep::kGeluTanh);
        break;
      case Step::kSilu:
        problem.steps.push_back(GemmStep::kSilu);
        break;
      case Step::kResidual:
        if (product.residual != kNoId || graph.value(step.operand).dtype != x.dtype ||
            !(graph.value(step.operand).shape == y.shape) || !is_aligned(step.operand))
          return std::nullopt;
        problem.steps.push_back(GemmStep::kResidual);
        problem.residual_stride = stride(step.operand);
        product.residual = step.operand;
        break;
      default:
        return std::nullopt;
    }
  }
  if ((segment.gate_view != kNoId) != problem.has(GemmStep::kGate) ||
      !problem.unsupported().empty())
    return std::nullopt;
  return product;
}

Product expect(const std::optional<Product>& product, const Graph& graph, const Segment& segment,
               const fusion::Choice& choice) {
  if (!product) refuse(graph, segment, choice, "a step or an operand is none of the kernels'");
  return *product;
}

}  // namespace

std::optional<Product> product_of(const Graph& graph, const Segment& segment) {
  if (segment.family != fusion::Family::kGemm) return std::nullopt;
  return product_from(graph, segment, segment.inputs[1], 0, nullptr);
}

std::optional<Product> normed_product_of(const Graph& graph, const Segment& segment) {
  if (segment.family != fusion::Family::kNormGemm) return product_of(graph, segment);
  return product_from(graph, segment, segment.steps[1].operand, 2, &segment.steps[0]);
}

Product expect_product(const Graph& graph, const Segment& segment, const fusion::Choice& choice) {
  return expect(product_of(graph, segment), graph, segment, choice);
}

Product expect_normed_product(const Graph& graph, const Segment& segment,
                              const fusion::Choice& choice) {
  return expect(normed_product_of(graph, segment), graph, segment, choice);
}

GemmOperands operands_of(const Graph& graph, const Product& product,
                         const SegmentBindings& bindings) {
  const auto address = [&](ValueId id) {
    return id == kNoId ? CUdeviceptr{0} : matrix_of(graph, bindings, id).data;
  };
  GemmOperands operands;
  operands.x = address(product.x);
  operands.weight = address(product.weight);
  operands.y = address(product.y);
  operands.bias = address(product.bias);
  operands.residual = address(product.residual);
  operands.gamma = address(product.gamma);
  operands.beta = address(product.beta);
  operands.positions = address(product.positions);
  operands.frequencies = address(product.frequencies);
  operands.slots = address(product.slots);
  operands.cache = address(product.cache);
  operands.squares = address(product.squares);
  operands.row_squares = address(product.row_squares);
  return operands;
}

}  // namespace stof::cuda
