// Weights and states in device memory.

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "exec/cuda_session.h"

namespace stof::exec {
namespace {

using cuda::CUdeviceptr;
using graph::Graph;
using graph::ValueId;
using graph::ValueKind;

constexpr std::size_t kAlignment = 256;  // what cuMemAlloc gives, and all that products like

std::size_t padded_bytes(const graph::Value& value) {
  return (value_bytes(value) + kAlignment - 1) / kAlignment * kAlignment;
}

/// float16 ends at 65504; bfloat16 goes as far as float32.
void check_range(const TensorView& view, const std::string& name) {
  if (view.dtype != DType::kFloat16) return;
  const auto* const values = static_cast<const Float16*>(view.data);
  for (std::int64_t i = 0; i < num_elements(view.shape); ++i)
    STOF_CHECK(std::isfinite(static_cast<float>(values[i])), kUnsupported,
               "{}: has a value that float16 cannot hold; compute in bfloat16", name);
}

}  // namespace

CudaWeights::CudaWeights(const cuda::Device& device, const Graph& graph, const WeightViews& views) {
  check_weights(graph, views);
  device.use();
  std::size_t total = 0;
  const std::vector<ValueId> weights = graph.of_kind(ValueKind::kWeight);
  for (const ValueId id : weights) total += padded_bytes(graph.value(id));
  memory_ = cuda::DeviceBuffer(total, "the weights");
  const cuda::Driver& driver = cuda::Driver::instance();
  CUdeviceptr next = memory_.address();
  for (const ValueId id : weights) {
    const graph::Value& value = graph.value(id);
    const TensorView& view = views.at(id);
    check_range(view, value.name);
    driver.check(driver.cuMemcpyHtoDAsync(next, view.data, value_bytes(value), nullptr),
                 "uploading " + value.name);
    addresses_[value.name] = next;
    next += padded_bytes(value);
  }
  driver.check(driver.cuStreamSynchronize(nullptr), "uploading the weights");
}

void CudaWeights::bind(const Graph& graph, std::vector<CUdeviceptr>& addresses) const {
  for (const ValueId id : graph.of_kind(ValueKind::kWeight)) {
    const auto found = addresses_.find(graph.value(id).name);
    STOF_CHECK(found != addresses_.end(), kInvalidArgument, "weight \"{}\": not among the weights",
               graph.value(id).name);
    addresses[static_cast<std::size_t>(id)] = found->second;
  }
}

std::map<std::string, CUdeviceptr> CudaStates::of(const Graph& graph) {
  const std::lock_guard lock(mutex_);
  const cuda::Driver& driver = cuda::Driver::instance();
  std::map<std::string, CUdeviceptr> addresses;
  for (const ValueId id : states_of(graph)) {
    const graph::Value& value = graph.value(id);
    auto found = states_.find(value.name);
    if (found == states_.end()) {
      State state{cuda::DeviceBuffer(value_bytes(value), value.name), value.dtype, value.shape};
      // Waited for: sessions have streams of their own.
      driver.check(driver.cuMemsetD8Async(state.memory.address(), 0, state.memory.bytes(), nullptr),
                   "clearing " + value.name);
      driver.check(driver.cuStreamSynchronize(nullptr), "clearing " + value.name);
      found = states_.emplace(value.name, std::move(state)).first;
    }
    STOF_CHECK(found->second.shape == value.shape, kInvalidArgument,
               "state \"{}\": expected one shape for all numbers of rows, got {} and {}",
               value.name, found->second.shape.to_string(), value.shape.to_string());
    addresses[value.name] = found->second.memory.address();
  }
  return addresses;
}

MutableTensorView CudaStates::state(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = states_.find(name);
  STOF_CHECK(found != states_.end(), kInvalidArgument,
             "state \"{}\": expected one of the graph's {} states", name, states_.size());
  const State& state = found->second;
  return {cuda::device_pointer(state.memory.address()), state.dtype, state.shape};
}

void CudaStates::move_rows(std::int64_t to, std::int64_t from, std::int64_t count,
                           cuda::CUstream stream) {
  const std::lock_guard lock(mutex_);
  const cuda::Driver& driver = cuda::Driver::instance();
  for (const auto& [name, state] : states_) {
    STOF_ASSERT(to < from && from + count <= state.shape[0]);
    const std::size_t row = state.memory.bytes() / static_cast<std::size_t>(state.shape[0]);
    // In parts that do not overlap where they go.
    for (std::int64_t done = 0; done < count; done += from - to) {
      const auto part = static_cast<std::size_t>(std::min(from - to, count - done));
      driver.check(driver.cuMemcpyDtoDAsync(
                       state.memory.address() + static_cast<std::size_t>(to + done) * row,
                       state.memory.address() + static_cast<std::size_t>(from + done) * row,
                       part * row, stream),
                   "moving rows of " + name);
    }
  }
}

}  // namespace stof::exec
