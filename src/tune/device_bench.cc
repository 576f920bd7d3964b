#include "tune/device_bench.h"

#include <algorithm>

#include "core/check.h"
#include "exec/plan.h"
#include "tune/random_values.h"
#include "tune/stopwatch.h"
#include "tune/work.h"

namespace stof::tune {
namespace {

using graph::Graph;
using graph::ValueId;

/// Address sets at most: small segments are cold enough with these, and each costs a preparation.
constexpr std::int64_t kMaxSets = 8;

std::int64_t bytes_of(const graph::Value& value) {
  return num_elements(value.shape) * static_cast<std::int64_t>(dtype_bytes(value.dtype));
}

std::vector<ValueId> touched(const Graph& graph, const fusion::Segment& segment) {
  std::vector<ValueId> ids;
  for (const auto* list : {&segment.inputs, &segment.outputs})
    for (const ValueId id : *list) ids.push_back(graph.storage(id));
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace

/// Device memory of the segment that was measured last, and of whole passes.
struct DeviceBench::Memory {
  graph::OperatorId first = graph::kNoId, last = graph::kNoId;  ///< of that segment
  std::vector<std::shared_ptr<void>> of_segment;
  std::vector<std::vector<void*>> sets;  ///< by ValueId
  std::map<ValueId, std::shared_ptr<void>> of_pass;
};

/// A whole forward pass of one plan.
class DeviceBench::Pass : public Prepared {
 public:
  Pass(DeviceBench& bench, const TunedPlan& plan) {
    const Graph& graph = *bench.graph_;
    exec::Choices choices;
    for (std::size_t i = 0; i < plan.partition.size(); ++i)
      choices[segment_hash(graph, bench.strip_.segment(plan.partition[i]))] = plan.choices[i];
    const fusion::Scheme scheme = bench.strip_.scheme(plan.partition);
    const auto candidates = [&](const Graph& g, const fusion::Segment& s) {
      return bench.device_->candidates(g, s);
    };
    plan_ = std::make_unique<exec::ExecutionPlan>(
        bench.graph_, scheme, exec::choose_segments(graph, scheme, candidates, choices));
    arena_ = bench.device_->allocate(
        static_cast<std::size_t>(std::max<std::int64_t>(1, plan_->arena_bytes())));
    addresses_.assign(graph.values().size(), nullptr);
    for (std::size_t id = 0; id < addresses_.size(); ++id)
      if (graph.values()[id].kind != graph::ValueKind::kActivation)
        addresses_[id] = bench.fill(static_cast<ValueId>(id));
    for (const exec::ArenaSlot& slot : plan_->slots())
      addresses_[static_cast<std::size_t>(slot.value)] =
          static_cast<std::byte*>(arena_.get()) + slot.offset;
    for (const exec::PlannedSegment& planned : plan_->segments())
      parts_.push_back(bench.device_->prepare(graph, planned.segment, planned.choice, addresses_,
                                              bench.problem_.batch));
  }

  void launch() override {
    for (const auto& part : parts_) part->launch();
  }

 private:
  std::unique_ptr<exec::ExecutionPlan> plan_;
  std::shared_ptr<void> arena_;
  std::vector<void*> addresses_;
  std::vector<std::unique_ptr<Prepared>> parts_;
};

DeviceBench::DeviceBench(std::unique_ptr<Device> device, TuningProblem problem)
    : problem_(std::move(problem)),
      graph_(std::make_shared<const Graph>(problem_.graph_of(problem_.batch.rows()))),
      strip_(graph_),
      device_(std::move(device)),
      validator_(*device_, problem_.graph_of, problem_.batch),
      memory_(std::make_unique<Memory>()) {}

DeviceBench::~DeviceBench() = default;

std::vector<Candidate> DeviceBench::candidates(Range range) {
  const fusion::Segment segment = strip_.segment(range);
  std::vector<Candidate> list;
  for (fusion::Choice& choice : device_->candidates(*graph_, segment)) {
    const double us =
        estimate(*graph_, segment, choice, device_->facts(), problem_.batch).predicted_us;
    const bool library = device_->is_library(choice.family);
    list.push_back({std::move(choice), us, library});
  }
  candidates_[range] = list;
  expect(range);
  return list;
}

/// Announces the next few candidates of a range, in the order in which the search takes most.
void DeviceBench::expect(Range range) {
  constexpr std::size_t kAhead = 4;
  std::vector<Candidate>& open = candidates_[range];
  std::vector<fusion::Choice> next;
  for (std::size_t i = 0; i < std::min(kAhead, open.size()); ++i) next.push_back(open[i].choice);
  device_->expect(*graph_, strip_.segment(range), next);
}

/// Contents of an input or weight of a whole pass, on the device.
void* DeviceBench::fill(ValueId id) {
  std::shared_ptr<void>& memory = memory_->of_pass[id];
  if (memory == nullptr) {
    const Tensor tensor = random_value(*graph_, id, problem_.batch, 11);
    memory = device_->allocate(tensor.bytes());
    device_->upload(memory.get(), tensor.data(), tensor.bytes());
  }
  return memory.get();
}

const std::vector<std::vector<void*>>& DeviceBench::address_sets(const fusion::Segment& segment) {
  if (memory_->first == segment.first && memory_->last == segment.last) return memory_->sets;
  memory_->first = graph::kNoId;  // where memory runs out below, the sets are nobody's
  memory_->sets.clear();
  memory_->of_segment.clear();
  const std::vector<ValueId> ids = touched(*graph_, segment);
  std::int64_t bytes = 1;
  for (const ValueId id : ids) bytes += bytes_of(graph_->value(id));
  const std::int64_t sets =
      std::clamp<std::int64_t>(2 * device_->cache_bytes() / bytes + 1, 2, kMaxSets);
  for (std::int64_t set = 0; set < sets; ++set)
    memory_->sets.emplace_back(graph_->values().size(), nullptr);
  for (const ValueId id : ids) {
    const Tensor tensor = random_value(*graph_, id, problem_.batch, 13);
    for (std::vector<void*>& addresses : memory_->sets) {
      auto memory = device_->allocate(tensor.bytes());
      device_->upload(memory.get(), tensor.data(), tensor.bytes());
      addresses[static_cast<std::size_t>(id)] = memory.get();
      memory_->of_segment.push_back(std::move(memory));
    }
  }
  memory_->first = segment.first;
  memory_->last = segment.last;
  return memory_->sets;
}

std::vector<std::unique_ptr<Prepared>> DeviceBench::prepare(const fusion::Segment& segment,
                                                            const fusion::Choice& choice) {
  std::vector<std::unique_ptr<Prepared>> launches;
  for (const std::vector<void*>& addresses : address_sets(segment))
    launches.push_back(device_->prepare(*graph_, segment, choice, addresses, problem_.batch));
  return launches;
}

Measurement DeviceBench::measure(Range range, const fusion::Choice& choice,
                                 const fusion::Choice* incumbent, double incumbent_us,
                                 double seconds) {
  const Stopwatch watch;
  std::erase_if(candidates_[range],
                [&](const Candidate& candidate) { return candidate.choice == choice; });
  expect(range);
  try {
    const auto fault = validator_.check(range, choice, [&] { return watch.seconds() > seconds; });
    if (!fault) return Measurement::time_was_up();
    if (!fault->empty()) return {0, *fault, /*wrong=*/true};
    const fusion::Segment segment = strip_.segment(range);
    std::vector<std::vector<std::unique_ptr<Prepared>>> launches;
    launches.push_back(prepare(segment, choice));
    if (incumbent != nullptr) launches.push_back(prepare(segment, *incumbent));
    if (watch.seconds() > seconds) return Measurement::time_was_up();
    std::vector<Device::Contender> contenders(launches.size());
    for (std::size_t i = 0; i < launches.size(); ++i)
      for (const auto& launch : launches[i]) contenders[i].push_back(launch.get());
    const std::vector<double> us = device_->time(contenders, seconds - watch.seconds());
    // What the incumbent takes now against what it took: the clock's drift.
    return {incumbent != nullptr ? us[0] * incumbent_us / us[1] : us[0], ""};
  } catch (const Error& error) {
    usable_ = usable_ && error.code() != ErrorCode::kCuda;
    return {0, error.what()};
  }
}

std::vector<Measurement> DeviceBench::measure_end_to_end(const std::vector<TunedPlan>& plans,
                                                         double seconds) {
  const Stopwatch watch;
  std::vector<Measurement> results(plans.size());
  std::vector<std::unique_ptr<Pass>> passes;
  std::vector<Device::Contender> contenders;
  std::vector<std::size_t> contender_of;
  const auto fail = [&](std::size_t i, const Error& error) {
    usable_ = usable_ && error.code() != ErrorCode::kCuda;
    results[i].failure = error.what();
  };
  for (std::size_t i = 0; i < plans.size(); ++i) {
    // Preparing may take half of the time; of two at least, as one is no comparison.
    if (contenders.size() > 1 && watch.seconds() > seconds / 2) {
      results[i] = Measurement::time_was_up();
      continue;
    }
    try {
      passes.push_back(std::make_unique<Pass>(*this, plans[i]));
      contenders.push_back({passes.back().get()});
      contender_of.push_back(i);
    } catch (const Error& error) {
      fail(i, error);
    }
  }
  if (contenders.empty()) return results;
  try {
    const std::vector<double> us = device_->time(contenders, seconds - watch.seconds());
    for (std::size_t i = 0; i < us.size(); ++i) results[contender_of[i]].microseconds = us[i];
  } catch (const Error& error) {
    for (const std::size_t i : contender_of) fail(i, error);
  }
  return results;
}

}  // namespace stof::tune
