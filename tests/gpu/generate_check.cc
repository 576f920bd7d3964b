// Checks passes of a LLaMA model over caches on a GPU: a prompt in chunks, then token by token, two
// sequences in scattered pages, under several masks, against the interpreter with caches of its
// own. From the second step of a kind on, a captured graph is replayed.
//   generate_gpu_check

#include <cstdio>
#include <cstring>
#include <exception>
#include <list>

#include "backend/cpu/graph/interpret.h"
#include "exec/cuda_session.h"
#include "stof/error.h"
#include "tests/gpu/segment_case.h"

namespace {

using namespace stof;
using namespace stof::check;

constexpr std::int64_t kPage = 16;

/// The interpreter's caches: what a pass made is where the next begins.
class Oracle {
 public:
  Oracle(const exec::GraphOf& graph_of, const Graph& weights_of, const Operands& operands)
      : graph_of_(graph_of), named_(weights_of), operands_(operands) {}

  Tensor run(const exec::Batch& batch) {
    const Graph graph = graph_of_(batch.rows());
    cpu::GraphOperands inputs;
    inputs.mask = batch.mask;
    inputs.offsets = batch.offsets;
    inputs.cache = batch.cache;
    for (const ValueId id : graph.of_kind(graph::ValueKind::kWeight))
      inputs.values[id] = operands_.views.at(named_.find(graph.value(id).name));
    for (const auto& [name, view] : batch.inputs) inputs.values[graph.find(name)] = view;
    for (const ValueId id : graph.of_kind(graph::ValueKind::kState)) {
      Tensor& state = states_[graph.value(id).name];
      if (state.empty()) {
        state = Tensor(graph.value(id).dtype, graph.value(id).shape);
        std::memset(state.data(), 0, state.bytes());
      }
      inputs.values[id] = std::as_const(state).view();
    }
    cpu::GraphResults results = interpret_graph(graph, inputs);
    for (auto& [id, tensor] : results)
      if (graph.in_state(id)) states_[graph.value(graph.storage(id)).name] = std::move(tensor);
    return std::move(results.at(graph.live_outs().at(0)));
  }

 private:
  const exec::GraphOf& graph_of_;
  const Graph& named_;
  const Operands& operands_;
  std::map<std::string, Tensor> states_;
};

Tensor run_on(exec::CudaSession& session, const exec::Batch& batch) {
  Tensor logits;
  session.run(batch, [&](const exec::CudaResult& result) {
    const cuda::Driver& driver = cuda::Driver::instance();
    logits = Tensor(result.dtype, {result.rows, result.columns});
    driver.check(
        driver.cuMemcpyDtoHAsync(logits.data(), result.address, logits.bytes(), result.stream),
        "downloading");
    driver.check(driver.cuStreamSynchronize(result.stream), "downloading");
  });
  return logits;
}

void check_generation(const cuda::Device& device, DType dtype, const char* text,
                      const mask::Mask& mask, Tally* tally) {
  const exec::GraphOf graph_of = [dtype](std::int64_t rows) {
    return llama(rows, 64, 2, false, dtype, /*reads_cache=*/true);
  };
  const Graph graph = graph_of(16);
  const Operands operands(graph);
  exec::WeightViews views;
  for (const ValueId id : graph.of_kind(graph::ValueKind::kWeight))
    views[id] = operands.views.at(id);
  exec::CudaSession session(device, graph_of,
                            std::make_shared<const exec::CudaWeights>(device, graph, views));
  Oracle oracle(graph_of, graph, operands);
  exec::Batch batch;
  batch.mask = mask;
  batch.cache = {kPage, {{7, 2, 0}, {3, 9, 4}}, {0, 0}};
  Error2 worst;
  std::int32_t next = 1;
  int steps = 0;
  for (const std::int64_t rows : {13, 13, 1, 1, 1, 1, 1, 1, 4, 1}) {
    batch.offsets = {0, rows, 2 * rows};
    for (std::int64_t& length : batch.cache.lengths) length += rows;
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; i < batch.rows(); ++i) ids.push_back(next = next * 7 % 53);
    const std::vector<std::int32_t> positions = batch.cache.positions(batch.offsets);
    const std::vector<std::int32_t> slots = batch.cache.slots(batch.offsets);
    batch.inputs = {{"ids", {ids.data(), DType::kInt32, {batch.rows()}}},
                    {"positions", {positions.data(), DType::kInt32, {batch.rows()}}},
                    {"slots", {slots.data(), DType::kInt32, {batch.rows()}}}};
    const Error2 error = error_of(run_on(session, batch), oracle.run(batch));
    worst.whole = std::max(worst.whole, error.whole);
    worst.element = std::max(worst.element, error.element);
    ++steps;
  }
  // A few more roundings than a pass without caches has, which hold the earlier passes' own.
  const Error2 bounds = bounds_of(dtype);
  const bool good = worst.whole <= 4 * bounds.whole && worst.element <= 8 * bounds.element;
  std::printf("%s %s, %s: %d passes, error %.1e, element %.1e\n", good ? "ok " : "BAD",
              std::string(to_string(dtype)).c_str(), text, steps, worst.whole, worst.element);
  std::fflush(stdout);
  tally->count(good);
}

}  // namespace

int main() {
  Tally tally;
  try {
    const cuda::Device device = cuda::Device::open();
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      check_generation(device, dtype, "causal", mask::causal(), &tally);
      check_generation(device, dtype, "window of 8", mask::causal() & mask::window(7, 0), &tally);
      check_generation(device, dtype, "window of 8 beside 3 sinks",
                       mask::causal() & (mask::window(7, 0) | mask::sink(3)), &tally);
    }
    std::printf("%d passed, %d failed on %s\n", tally.passed, tally.failed,
                device.facts().name.c_str());
  } catch (const std::exception& error) {
    std::printf("%s\n%d passed, %d failed on a GPU\n", error.what(), tally.passed,
                tally.failed + 1);
    return 1;
  }
  return tally.failed > 0;
}
