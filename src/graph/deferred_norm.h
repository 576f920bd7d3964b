#pragma once
// RMSNorms moved behind the products that read them: norm(x) W^T = (x W'^T) / rms(x), where W' has
// gamma multiplied into its columns. What the norm would make is then neither written nor read; who
// makes x sums up its squares, and the product scales its rows.

#include <list>
#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "stof/tensor.h"

namespace stof::graph {

/// Why a norm stays where it is.
enum class KeptNormCode : std::uint8_t {
  kCentred,        ///< a LayerNorm: x W' - mean colsum(W') cancels where the mean is large
  kLiveOut,        ///< what it makes is a result
  kOtherConsumer,  ///< what it makes is read by another operator than a product, or a view is taken
  kSharedWeight,   ///< a product's matrix is read elsewhere, or no weight
  kSource,         ///< x is no operator's own output: an input, a view, or updated in place
  kWidth,          ///< x's columns are no multiple of 64
  kLayers,         ///< layers would no longer be alike; or it is outside of them
};
std::string_view to_string(KeptNormCode code);  ///< "shared_weight"

struct KeptNorm {
  KeptNormCode code;
  std::string name;  ///< of the norm
  std::string text;  ///< names norm and value
};

/// Where a norm whose gamma is in the weights is computed.
enum class NormPlace {
  kBehind,   ///< behind the products that read it
  kInFront,  ///< where it was, with a gamma of ones: for few rows, whose products have it in front
};

/// The weight `name` of the new graph is the old one's `weight`, columns times `gamma`.
struct FoldedWeight {
  std::string name, weight, gamma;
};

struct DeferredNorms {
  Graph graph;
  std::vector<FoldedWeight> folded;
  std::vector<KeptNorm> kept;
};

/// The same function of the same inputs, with every RMSNorm of layers deferred that only products
/// read; what keeps its meaning keeps its name. In a layer that reads x from the one before, that
/// one sums up the squares, so that its last product can; all layers do alike, the last one for
/// nobody. Graphs of both places have the same weights, but for the ones, "unit_gamma.768", which
/// only graphs with norms in front have. Products that are scaled by a kernel of its own are stored
/// unscaled in the graph's type: in float16 they may pass its range where normed ones would not, so
/// take bfloat16.
DeferredNorms defer_norms(const Graph& graph, NormPlace place = NormPlace::kBehind);

/// Weights of the new graph: tensors that were folded, float32 products rounded once, gammas of
/// ones, and the old graph's `views` of the others, whose memory must stay. Throws InvalidArgument
/// naming a weight without view.
struct DeferredWeights {
  std::list<Tensor> tensors;
  std::map<ValueId, TensorView> views;

  DeferredWeights(const Graph& old, const DeferredNorms& deferred,
                  const std::map<ValueId, TensorView>& old_views);
};

}  // namespace stof::graph
