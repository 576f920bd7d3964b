#pragma once
// A segment of one product as the products' kernels take it.

#include <memory>
#include <optional>
#include <utility>

#include "backend/cuda/gemm/operands.h"
#include "backend/cuda/segments/operands.h"
#include "codegen/gemm_skinny.h"

namespace stof::cuda {

struct Product {
  GemmProblem problem;
  codegen::RowPrologue prologue = codegen::RowPrologue::kNone;
  graph::ValueId x, weight, y;
  graph::ValueId bias = graph::kNoId, residual = graph::kNoId, gamma = graph::kNoId,
                 beta = graph::kNoId, positions = graph::kNoId, frequencies = graph::kNoId,
                 squares = graph::kNoId, row_squares = graph::kNoId, slots = graph::kNoId,
                 cache = graph::kNoId;
};

/// None where the kernels have no such step or operand.
std::optional<Product> product_of(const graph::Graph& graph, const fusion::Segment& segment);
/// The same, or with a norm in front, whose gamma and beta are then the product's.
std::optional<Product> normed_product_of(const graph::Graph& graph, const fusion::Segment& segment);

/// The same for who was given the choice. Throws Unsupported naming segment and choice.
Product expect_product(const graph::Graph& graph, const fusion::Segment& segment,
                       const fusion::Choice& choice);

Product expect_normed_product(const graph::Graph& graph, const fusion::Segment& segment,
                              const fusion::Choice& choice);

GemmOperands operands_of(const graph::Graph& graph, const Product& product,
                         const SegmentBindings& bindings);

/// Runs a product's call.
template <class Call>
class CallRunner final : public SegmentRunner {
 public:
  explicit CallRunner(Call call) : call_(std::move(call)) {}
  void launch(CUstream stream) const override { call_.launch(stream); }

 private:
  Call call_;
};
template <class Call>
std::unique_ptr<SegmentRunner> make_call_runner(Call call) {
  return std::make_unique<CallRunner<Call>>(std::move(call));
}

}  // namespace stof::cuda
