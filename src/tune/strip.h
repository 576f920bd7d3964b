#pragma once
// A graph as the search sees it: the operators of one layer, with what stands before and behind the
// layers, in a row.

#include <memory>
#include <string>
#include <vector>

#include "fusion/scheme.h"
#include "fusion/segment.h"
#include "graph/graph.h"
#include "tune/landscape.h"

namespace stof::tune {

/// Positions are the operators of layer 0; before and behind them every segment that fusion makes
/// of operators outside of layers is one position by itself.
class Strip {
 public:
  /// Throws InvalidArgument where the graph has no layers.
  explicit Strip(std::shared_ptr<const graph::Graph> graph);

  const graph::Graph& graph() const { return *graph_; }
  int size() const { return static_cast<int>(positions_.size()); }
  /// Positions of the layer's operators.
  Range layer() const { return layer_; }
  int num_layers() const { return num_layers_; }
  bool in_layer(Range range) const {
    return range.first >= layer_.first && range.last <= layer_.last;
  }

  bool compute_intensive(int position) const;
  bool legal(Range range) const;
  fusion::Segment segment(Range range) const;
  std::string key(Range range) const;  ///< fusion::segment_hash() in hexadecimal digits
  int occurrences(Range range) const { return in_layer(range) ? num_layers_ : 1; }
  /// "matmul, bias, activation"
  std::string operators(Range range) const;
  /// First and last operator of the graph that the range stands for.
  std::pair<graph::OperatorId, graph::OperatorId> operator_range(Range range) const;

  Partition partition(const fusion::Scheme& scheme) const;
  fusion::Scheme scheme(const Partition& partition) const;
  Partition separate() const;

  /// Of structure, widths, dtypes and attributes of every operator and of the number of layers. Of
  /// a graph of one row it is the model's, whatever is run.
  Fingerprint structure() const;

 private:
  std::shared_ptr<const graph::Graph> graph_;
  std::vector<std::pair<graph::OperatorId, graph::OperatorId>> positions_;
  Range layer_;
  int num_layers_ = 0;
};

}  // namespace stof::tune
