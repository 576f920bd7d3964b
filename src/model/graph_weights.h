#pragma once
// A checkpoint's tensors under the names of a model's graph.

#include <deque>
#include <map>
#include <span>
#include <string>

#include "graph/graph.h"
#include "stof/tensor.h"

namespace stof::model {

/// A checkpoint's tensors by the graph's values.
struct GraphWeights {
  /// Contiguous, of the values' shapes and dtypes: into the checkpoint where it holds just that.
  std::map<graph::ValueId, TensorView> values;
  std::deque<Tensor> owned;  ///< what was stacked or converted

  /// Forgets a value's tensor, and frees it where it is owned.
  void release(graph::ValueId id);
};

/// Collects GraphWeights. Throws InvalidArgument naming a weight that the graph does not have or
/// that has another shape there.
class GraphWeightBinder {
 public:
  /// `what` begins messages: "BERT graph". The graph outlives this.
  GraphWeightBinder(const graph::Graph& graph, std::string what)
      : graph_(graph), what_(std::move(what)) {}

  bool has(const std::string& name) const { return graph_.find(name) != graph::kNoId; }
  /// `tensor`, float32 or of the value's dtype, outlives the result where it is of that dtype.
  void bind(const std::string& name, const TensorView& tensor);
  void bind(const std::string& name, Tensor tensor);
  /// A matrix that may have fewer rows than the value, whose other rows are zeros.
  void bind_filled_up(const std::string& name, Tensor tensor);
  /// Matrices or vectors, one below the other: one product instead of several. `parts` are float32.
  void bind_stacked(const std::string& name, std::span<const TensorView> parts);

  /// Throws InvalidArgument naming a weight of the graph that was not bound.
  GraphWeights take();

 private:
  TensorView keep(Tensor tensor);

  const graph::Graph& graph_;
  std::string what_;
  GraphWeights result_;
};

}  // namespace stof::model
