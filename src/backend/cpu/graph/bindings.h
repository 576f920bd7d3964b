#pragma once
// From a graph's values to memory, and the operators that are no steps of a fused segment.

#include <map>

#include "backend/cpu/graph/interpret.h"
#include "backend/cpu/graph/reals.h"

namespace stof::cpu {

/// Where each value of a graph lies while it is interpreted.
class Bindings {
 public:
  /// Both outlive this. Throws InvalidArgument naming the value that a binding does not fit.
  Bindings(const graph::Graph& graph, const GraphOperands& operands);

  const graph::Graph& graph() const { return graph_; }
  const GraphOperands& operands() const { return operands_; }
  void bind(graph::ValueId id, const TensorView& view);
  /// Throws InvalidArgument naming a value that is neither bound nor columns of one that is.
  TensorView view(graph::ValueId id) const;
  Reals load(graph::ValueId id) const { return load_reals(view(id)); }

 private:
  const graph::Graph& graph_;
  const GraphOperands& operands_;
  std::map<graph::ValueId, TensorView> views_;
};

Reals embed(const Bindings& bindings, const graph::Operator& op);
Reals pool(const Bindings& bindings, const graph::Operator& op);
/// By attention_reference(), sequence by sequence.
Tensor attend(const Bindings& bindings, const graph::Operator& op);

}  // namespace stof::cpu
