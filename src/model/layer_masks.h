#pragma once
// The mask of every layer: the model's own and the user's.

#include <functional>
#include <string>
#include <vector>

#include "exec/batch.h"
#include "graph/graph.h"
#include "stof/mask.h"
#include "stof/mask_set.h"

namespace stof::model {

/// The same graph, whose attention is under masks 0, 1, 2, ... in the order of layers: who runs it
/// says which of them are one (exec::Batch::mask_places).
graph::Graph with_layer_masks(const graph::Graph& graph);

/// Of a model's graph as it is built, which of the model's masks attention of each layer is under.
std::vector<int> masks_of_layers(const graph::Graph& graph);

/// Masks that differ, and which of them each layer has.
struct LayerMasks {
  std::vector<mask::Mask> masks;
  std::vector<std::string> names;  ///< of each, for messages
  std::vector<int> of_layer;

  /// Sets the batch's masks, for a graph that with_layer_masks() made.
  void bind(exec::Batch& batch) const;
};

/// The model's masks, each & a mask of the user's: in the order of Attributes::mask.
using MasksOfModel = std::function<std::vector<mask::Mask>(const mask::Mask& also)>;

/// `kinds`: what masks_of_layers() says. The set has passed check().
LayerMasks combine_masks(const std::vector<int>& kinds, const MasksOfModel& model,
                         const mask::MaskSet& also, std::int64_t num_heads);

}  // namespace stof::model
