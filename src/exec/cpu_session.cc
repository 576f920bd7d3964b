#include "exec/cpu_session.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "core/clock.h"

namespace stof::exec {
namespace {

using graph::Graph;
using graph::ValueId;
using graph::ValueKind;

/// Prepared sizes kept, each with memory of its own; making one takes a few milliseconds.
constexpr std::size_t kMaxIdle = 4;

}  // namespace

CpuWeights::CpuWeights(const Graph& graph, const WeightViews& views) {
  check_weights(graph, views);
  for (const ValueId id : graph.of_kind(ValueKind::kWeight))
    addresses_[graph.value(id).name] = views.at(id).data;
}

void CpuWeights::bind(const Graph& graph, std::vector<void*>& addresses) const {
  for (const ValueId id : graph.of_kind(ValueKind::kWeight)) {
    const auto found = addresses_.find(graph.value(id).name);
    STOF_CHECK(found != addresses_.end(), kInvalidArgument, "weight \"{}\": not among the weights",
               graph.value(id).name);
    addresses[static_cast<std::size_t>(id)] = const_cast<void*>(found->second);
  }
}

void CpuWeights::pack(const Graph& graph, const std::function<void(ValueId)>& done) {
  for (const ValueId id : graph.of_kind(ValueKind::kWeight)) {
    const graph::Value& value = graph.value(id);
    const bool products_alone = std::ranges::all_of(value.consumers, [&](graph::OperatorId reader) {
      const graph::Operator& op = graph.op(reader);
      return op.op == graph::Op::kMatmul && op.inputs[0] != id;
    });
    if (!products_alone || value.consumers.empty() || value.dtype != DType::kFloat32) continue;
    packed_.pack({addresses_.at(value.name), value.dtype, value.shape});
    done(id);
  }
}

/// Everything for batches of up to `rows` rows: one at a time.
struct CpuSession::Prepared {
  Prepared(ExecutionPlan p, CpuWeights& weights, const std::map<std::string, void*>& states)
      : plan(std::move(p)),
        picked(plan.graph()),
        arena(DType::kUInt8, {std::max<std::int64_t>(1, plan.arena_bytes())}) {
    const Graph& graph = plan.graph();
    bindings.addresses.resize(graph.values().size());
    weights.bind(graph, bindings.addresses);
    bindings.weights = &weights.packed();
    attention.resize(static_cast<std::size_t>(graph.num_masks()));
    bindings.attention = attention.data();
    bindings.num_masks = graph.num_masks();
    for (const ArenaSlot& slot : plan.slots())
      bindings.addresses[static_cast<std::size_t>(slot.value)] =
          static_cast<std::byte*>(arena.data()) + slot.offset;
    for (const ValueId id : states_of(graph))
      bindings.addresses[static_cast<std::size_t>(id)] = states.at(graph.value(id).name);
    for (const ValueId id : graph.of_kind(ValueKind::kInput)) {
      Tensor& input = inputs.emplace_back(graph.value(id).dtype, graph.value(id).shape);
      bindings.addresses[static_cast<std::size_t>(id)] = input.data();
      names.push_back(graph.value(id).name);
    }
    for (const PlannedSegment& planned : plan.segments())
      runners.push_back(make_runner(graph, planned.segment, planned.choice, bindings));
  }

  std::int64_t rows = 0;
  ExecutionPlan plan;
  PickedRows picked;
  Tensor arena;
  std::vector<Tensor> inputs;
  std::vector<std::string> names;
  std::vector<cpu::AttentionSlot> attention;  ///< by mask
  cpu::SegmentBindings bindings;
  std::vector<std::unique_ptr<cpu::SegmentRunner>> runners;
};

CpuSession::CpuSession(GraphOf graph_of, std::shared_ptr<CpuWeights> weights,
                       SessionOptions options, std::shared_ptr<CpuStates> states)
    : graph_of_(std::move(graph_of)),
      weights_(std::move(weights)),
      options_(std::move(options)),
      states_(states != nullptr ? std::move(states) : std::make_shared<CpuStates>()) {}

CpuSession::~CpuSession() = default;

ExecutionPlan CpuSession::plan(std::int64_t rows) const {
  return make_plan(graph_of_(bucket_rows(rows)), options_, cpu::candidates);
}

std::unique_ptr<CpuSession::Prepared> CpuSession::take(std::int64_t rows) {
  const std::int64_t bucket = bucket_rows(rows);
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(idle_.begin(), idle_.end(),
                                    [&](const auto& idle) { return idle->rows == bucket; });
    if (found != idle_.end()) {
      std::unique_ptr<Prepared> prepared = std::move(*found);
      idle_.erase(found);
      return prepared;
    }
  }
  ExecutionPlan fresh = plan(rows);
  const std::map<std::string, void*> states = states_->of(fresh.graph());
  auto prepared = std::make_unique<Prepared>(std::move(fresh), *weights_, states);
  prepared->rows = bucket;
  return prepared;
}

std::map<std::string, void*> CpuStates::of(const Graph& graph) {
  const std::lock_guard lock(mutex_);
  std::map<std::string, void*> addresses;
  for (const ValueId id : states_of(graph)) {
    const graph::Value& value = graph.value(id);
    const auto [found, is_new] = states_.try_emplace(value.name);
    if (is_new) found->second = Tensor(value.dtype, value.shape);
    STOF_CHECK(found->second.shape() == value.shape, kInvalidArgument,
               "state \"{}\": expected one shape for all numbers of rows, got {} and {}",
               value.name, found->second.shape().to_string(), value.shape.to_string());
    addresses[value.name] = found->second.data();
  }
  return addresses;
}

MutableTensorView CpuStates::state(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = states_.find(name);
  STOF_CHECK(found != states_.end(), kInvalidArgument,
             "state \"{}\": expected one of the graph's {} states", name, states_.size());
  return found->second.view();
}

void CpuStates::move_rows(std::int64_t to, std::int64_t from, std::int64_t count) {
  const std::lock_guard lock(mutex_);
  for (auto& [name, state] : states_) {
    STOF_ASSERT(to < from && from + count <= state.shape()[0]);
    auto* const first = static_cast<std::byte*>(state.data());
    const std::size_t row = state.bytes() / static_cast<std::size_t>(state.shape()[0]);
    std::memmove(first + static_cast<std::size_t>(to) * row,
                 first + static_cast<std::size_t>(from) * row,
                 static_cast<std::size_t>(count) * row);
  }
}

MutableTensorView CpuSession::state(const std::string& name) {
  states_->of(graph_of_(1));
  return states_->state(name);
}

void CpuSession::move_state_rows(std::int64_t to, std::int64_t from, std::int64_t count) {
  states_->move_rows(to, from, count);
}

Tensor CpuSession::run(const Batch& batch, RunTiming* timing) {
  RunTiming unused;
  RunTiming& spent = timing == nullptr ? unused : *timing;
  const auto start = Clock::now();
  STOF_CHECK(batch.rows() > 0, kInvalidArgument, "batch: expected at least one row");
  std::unique_ptr<Prepared> prepared = take(batch.rows());
  const Graph& graph = prepared->plan.graph();
  check_batch(graph, batch);
  std::list<VarlenPlan> plans;
  const std::vector<AttentionKind> kinds = attention_kinds(graph);
  const std::vector<const AttentionKind*> of_masks = kinds_of_masks(kinds, batch);
  std::vector<cpu::AttentionSlot> slots(of_masks.size());
  batch.for_each_mask([&](int i) {
    const AttentionKind* const kind = of_masks[static_cast<std::size_t>(i)];
    if (kind == nullptr) return;
    const graph::CachePages* const pages = kind->pages(batch);
    plans.push_back(plan_varlen_attention(kind->problem, batch.mask_of(i), batch.offsets,
                                          pages != nullptr ? pages->key_offsets() : batch.offsets));
    slots[static_cast<std::size_t>(i)] = {&plans.back(), pages};
  });
  for (int i = 0; i < graph.num_masks(); ++i)
    prepared->attention[static_cast<std::size_t>(i)] =
        slots[static_cast<std::size_t>(batch.mask_place(i))];
  spent.plan += seconds_since(start);

  for (std::size_t i = 0; i < prepared->inputs.size(); ++i)
    for (const auto& [name, view] : batch.inputs)
      if (name == prepared->names[i])
        std::memcpy(prepared->inputs[i].data(), view.data,
                    static_cast<std::size_t>(num_elements(view.shape)) * dtype_bytes(view.dtype));
  for (std::size_t i = 0; i < prepared->runners.size(); ++i) {
    const auto segment_start = Clock::now();
    const fusion::Segment& segment = prepared->plan.segments()[i].segment;
    prepared->runners[i]->run(prepared->picked.rows(segment.first, batch));
    if (segment.family == fusion::Family::kAttention)
      spent.attention += seconds_since(segment_start);
  }
  const ValueId result = graph.live_outs().at(0);
  Dims shape = graph.value(result).shape;
  shape[0] = prepared->picked.rows(graph.value(result).producer, batch);
  const void* const data =
      prepared->bindings.addresses[static_cast<std::size_t>(graph.storage(result))];
  Tensor out = Tensor::copy_of({data, DType::kFloat32, shape});
  for (cpu::AttentionSlot& slot : prepared->attention) slot = {};

  const std::lock_guard lock(mutex_);
  idle_.push_front(std::move(prepared));
  if (idle_.size() > kMaxIdle) idle_.pop_back();
  return out;
}

}  // namespace stof::exec
