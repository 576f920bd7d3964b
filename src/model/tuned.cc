#include "model/tuned.h"

#include <map>
#include <mutex>

#include "tune/tuner.h"

namespace stof::model {
namespace {

/// What was found out for one model: sessions ask for every new number of rows.
struct Known {
  std::mutex mutex;
  std::optional<tune::Database> records;
  std::optional<tune::Environment> environment;
  tune::Verdicts verdicts;
  std::map<std::int64_t, std::optional<exec::TunedSegments>> by_rows;
};

}  // namespace

exec::TunedOf tuned_segments(exec::GraphOf graph_of,
                             std::function<std::unique_ptr<tune::Device>()> open_device) {
  return [graph_of = std::move(graph_of), open_device = std::move(open_device),
          known = std::make_shared<Known>()](
             const graph::Graph& graph) -> std::optional<exec::TunedSegments> {
    const std::lock_guard lock(known->mutex);
    // Rows are those of the graph; which sequences they make plays no part.
    const graph::Value& result = graph.value(graph.live_outs().at(0));
    const std::int64_t rows = result.shape[0];
    const auto found = known->by_rows.find(rows);
    if (found != known->by_rows.end()) return found->second;
    const tune::TuningProblem problem{graph_of, {{0, rows}, {}}};
    if (!known->records) {
      const tune::Database database = tune::Database::standard();
      if (database.empty()) return std::nullopt;
      known->records = records_of_model(problem, database);
    }
    if (known->records->empty()) return std::nullopt;
    std::unique_ptr<tune::Device> device;  // for this call: one may set its thread's team
    const auto open = [&]() -> tune::Device& {
      if (device == nullptr) device = open_device();
      return *device;
    };
    if (!known->environment) known->environment = open().environment();
    std::optional<exec::TunedSegments> segments;
    if (auto tuned = load_tuned(problem, *known->records, *known->environment)) {
      revalidate(problem, open, *tuned, known->verdicts);
      segments = {tuned->scheme, tuned->choices, tuned->rejected};
    }
    return known->by_rows.emplace(rows, std::move(segments)).first->second;
  };
}

}  // namespace stof::model
