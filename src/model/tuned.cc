#include "model/tuned.h"

#include "tune/tuner.h"

namespace stof::model {

exec::TunedOf tuned_segments(exec::GraphOf graph_of,
                             std::function<std::unique_ptr<tune::Device>()> open_device) {
  return [graph_of = std::move(graph_of), open_device = std::move(open_device)](
             const graph::Graph& graph) -> std::optional<exec::TunedSegments> {
    const tune::Database database = tune::Database::standard();
    if (database.empty()) return std::nullopt;
    const std::unique_ptr<tune::Device> device = open_device();
    // Rows are those of the graph; which sequences they make plays no part.
    const graph::Value& result = graph.value(graph.live_outs().at(0));
    const tune::TuningProblem problem{graph_of, {{0, result.shape[0]}, {}}};
    auto tuned = load_tuned(problem, database, device->environment());
    if (!tuned) return std::nullopt;
    revalidate(problem, *device, *tuned);
    return exec::TunedSegments{tuned->scheme, tuned->choices};
  };
}

}  // namespace stof::model
