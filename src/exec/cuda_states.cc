// What a session on a GPU keeps from run to run.

#include <algorithm>

#include "core/check.h"
#include "exec/cuda_session.h"

namespace stof::exec {

void CudaSession::make_states(const graph::Graph& graph) {
  const cuda::Driver& driver = cuda::Driver::instance();
  for (const graph::ValueId id : graph.of_kind(graph::ValueKind::kState)) {
    const graph::Value& value = graph.value(id);
    auto found = states_.find(value.name);
    if (found == states_.end()) {
      State state{cuda::DeviceBuffer(static_cast<std::size_t>(num_elements(value.shape)) *
                                         dtype_bytes(value.dtype),
                                     value.name),
                  value.dtype, value.shape};
      driver.check(
          driver.cuMemsetD8Async(state.memory.address(), 0, state.memory.bytes(), stream_.handle()),
          "clearing " + value.name);
      found = states_.emplace(value.name, std::move(state)).first;
    }
    STOF_CHECK(found->second.shape == value.shape, kInvalidArgument,
               "state \"{}\": expected one shape for all numbers of rows, got {} and {}",
               value.name, found->second.shape.to_string(), value.shape.to_string());
  }
}

MutableTensorView CudaSession::state(const std::string& name) {
  const std::lock_guard lock(mutex_);
  device_.use();
  if (states_.empty()) make_states(graph_of_(1));
  const auto found = states_.find(name);
  STOF_CHECK(found != states_.end(), kInvalidArgument,
             "state \"{}\": expected one of the graph's {} states", name, states_.size());
  const State& state = found->second;
  return {cuda::device_pointer(state.memory.address()), state.dtype, state.shape};
}

void CudaSession::move_state_rows(std::int64_t to, std::int64_t from, std::int64_t count) {
  const std::lock_guard lock(mutex_);
  device_.use();
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
                       part * row, stream_.handle()),
                   "moving rows of " + name);
    }
  }
}

}  // namespace stof::exec
