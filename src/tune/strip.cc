#include "tune/strip.h"

#include "core/check.h"
#include "core/hash.h"

namespace stof::tune {

Strip::Strip(std::shared_ptr<const graph::Graph> graph)
    : graph_(std::move(graph)), num_layers_(graph_->num_layers()) {
  STOF_CHECK(num_layers_ > 0, kInvalidArgument, "graph: expected layers to tune, got {}",
             graph_->describe());
  const auto [first, last] = graph_->layer_range(0);
  const auto separate = fusion::Scheme::separate(last - first + 1);
  for (const fusion::Segment& segment : fusion::decode(*graph_, separate)) {
    const int layer = graph_->op(segment.first).layer;
    if (layer > 0) continue;
    if (segment.first == first) layer_.first = size();
    positions_.emplace_back(segment.first, segment.last);
    if (segment.last == last) layer_.last = size() - 1;
  }
}

std::pair<graph::OperatorId, graph::OperatorId> Strip::operator_range(Range range) const {
  return {positions_[static_cast<std::size_t>(range.first)].first,
          positions_[static_cast<std::size_t>(range.last)].second};
}

bool Strip::compute_intensive(int position) const {
  const auto [first, last] = operator_range({position, position});
  for (graph::OperatorId id = first; id <= last; ++id)
    if (graph::is_compute_intensive(graph_->op(id).op)) return true;
  return false;
}

bool Strip::legal(Range range) const {
  if (range.size() == 1) return true;
  if (!in_layer(range)) return false;
  const auto [first, last] = operator_range(range);
  return fusion::legality(*graph_, first, last).empty();
}

fusion::Segment Strip::segment(Range range) const {
  const auto [first, last] = operator_range(range);
  return fusion::make_segment(*graph_, first, last);
}

std::string Strip::key(Range range) const {
  return fusion::segment_hash(*graph_, segment(range)).hex();
}

std::string Strip::operators(Range range) const {
  const auto [first, last] = operator_range(range);
  std::string text;
  for (graph::OperatorId id = first; id <= last; ++id) {
    if (!text.empty()) text += ", ";
    text += to_string(graph_->op(id).op);
  }
  return text;
}

Partition Strip::partition(const fusion::Scheme& scheme) const {
  STOF_CHECK(scheme.size() == layer_.size(), kInvalidArgument,
             "scheme: expected {} operators a layer, got {} ({})", layer_.size(), scheme.size(),
             scheme.hex());
  Partition partition;
  for (int position = 0; position < layer_.first; ++position)
    partition.push_back({position, position});
  for (const auto& [first, last] : scheme.segments())
    partition.push_back({layer_.first + first, layer_.first + last});
  for (int position = layer_.last + 1; position < size(); ++position)
    partition.push_back({position, position});
  return partition;
}

fusion::Scheme Strip::scheme(const Partition& partition) const {
  std::vector<int> sizes;
  for (const Range& range : partition)
    if (in_layer(range)) sizes.push_back(range.size());
  return fusion::Scheme::from_sizes(sizes);
}

Partition Strip::separate() const { return partition(fusion::Scheme::separate(layer_.size())); }

Fingerprint Strip::structure() const {
  Hasher hasher;
  hasher.add(static_cast<std::int64_t>(num_layers_));
  for (int position = 0; position < size(); ++position) hasher.add(key({position, position}));
  return hasher.finish();
}

}  // namespace stof::tune
