#include "model/graph_weights.h"

#include <cstring>
#include <utility>

#include "core/check.h"
#include "core/text.h"

namespace stof::model {

void GraphWeights::release(graph::ValueId id) {
  const auto found = values.find(id);
  if (found == values.end()) return;
  for (Tensor& tensor : owned)
    if (std::as_const(tensor).data() == found->second.data) tensor = Tensor();
  values.erase(found);
}

void GraphWeightBinder::bind(const std::string& name, const TensorView& tensor) {
  const graph::ValueId id = graph_.find(name);
  STOF_CHECK(id != graph::kNoId, kInvalidArgument,
             "{}: expected a weight {}, got none; was it built of the same configuration?", what_,
             quote_text(name));
  const graph::Value& value = graph_.value(id);
  STOF_CHECK(tensor.shape == value.shape, kInvalidArgument, "{}: weight {}: expected {}, got {}",
             what_, quote_text(name), value.shape.to_string(), tensor.shape.to_string());
  result_.values[id] =
      tensor.dtype == value.dtype ? tensor : keep(Tensor::converted(tensor, value.dtype));
}

void GraphWeightBinder::bind(const std::string& name, Tensor tensor) {
  const graph::ValueId id = graph_.find(name);
  // A copy of another type is kept alone.
  if (id != graph::kNoId && graph_.value(id).dtype == tensor.dtype())
    bind(name, keep(std::move(tensor)));
  else
    bind(name, std::as_const(tensor).view());
}

void GraphWeightBinder::bind_filled_up(const std::string& name, Tensor tensor) {
  const graph::ValueId id = graph_.find(name);
  if (id != graph::kNoId && graph_.value(id).shape[0] > tensor.shape()[0]) {
    Tensor whole(tensor.dtype(), {graph_.value(id).shape[0], tensor.shape()[1]});
    std::memcpy(whole.data(), tensor.data(), tensor.bytes());
    tensor = std::move(whole);
  }
  bind(name, std::move(tensor));
}

void GraphWeightBinder::bind_stacked(const std::string& name, std::span<const TensorView> parts) {
  Dims shape = parts[0].shape;
  for (const TensorView& part : parts.subspan(1)) shape[0] += part.shape[0];
  Tensor stacked(DType::kFloat32, shape);
  auto* out = static_cast<std::byte*>(stacked.data());
  for (const TensorView& part : parts) {
    const auto bytes = static_cast<std::size_t>(num_elements(part.shape)) * sizeof(float);
    std::memcpy(out, part.data, bytes);
    out += bytes;
  }
  bind(name, std::move(stacked));
}

GraphWeights GraphWeightBinder::take() {
  for (const graph::ValueId id : graph_.of_kind(graph::ValueKind::kWeight))
    STOF_CHECK(result_.values.contains(id), kInvalidArgument,
               "{}: weight {}: expected a tensor of the checkpoint, got none; was it built of the "
               "same configuration?",
               what_, quote_text(graph_.value(id).name));
  return std::move(result_);
}

TensorView GraphWeightBinder::keep(Tensor tensor) {
  result_.owned.push_back(std::move(tensor));
  return std::as_const(result_.owned.back()).view();
}

}  // namespace stof::model
