#include "model/layer_masks.h"

#include <map>
#include <utility>

#include "core/check.h"

namespace stof::model {

graph::Graph with_layer_masks(const graph::Graph& graph) {
  std::vector<graph::Operator> operators = graph.operators();
  int next = 0;
  for (graph::Operator& op : operators)
    if (op.op == graph::Op::kAttention) op.attributes.mask = next++;
  return graph::Graph(graph.values(), std::move(operators));
}

std::vector<int> masks_of_layers(const graph::Graph& graph) {
  std::vector<int> masks;
  for (const graph::Operator& op : graph.operators())
    if (op.op == graph::Op::kAttention) masks.push_back(op.attributes.mask);
  return masks;
}

void LayerMasks::bind(exec::Batch& batch) const {
  batch.mask = masks.at(0);
  batch.more_masks = {masks.begin() + 1, masks.end()};
  batch.mask_places = of_layer;
  batch.mask_names = names;
}

LayerMasks combine_masks(const std::vector<int>& kinds, const MasksOfModel& model,
                         const mask::MaskSet& also, std::int64_t num_heads) {
  LayerMasks result;
  result.of_layer.resize(kinds.size());
  for (const mask::MaskSet::Group& group :
       also.groups(static_cast<std::int64_t>(kinds.size()), num_heads)) {
    const std::vector<mask::Mask> masks = model(group.mask);
    std::map<int, int> places;  // of each kind of layer of the group, among the result's masks
    for (const std::int64_t layer : group.layers) {
      const int kind = kinds[static_cast<std::size_t>(layer)];
      const auto [found, is_new] = places.try_emplace(kind, static_cast<int>(result.masks.size()));
      if (is_new) {
        STOF_ASSERT(kind >= 0 && kind < static_cast<int>(masks.size()));
        result.masks.push_back(masks[static_cast<std::size_t>(kind)]);
        result.names.push_back(group.name);
      }
      result.of_layer[static_cast<std::size_t>(layer)] = found->second;
    }
  }
  return result;
}

}  // namespace stof::model
