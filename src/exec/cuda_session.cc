#include "exec/cuda_session.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>
#include <utility>

#include "core/check.h"
#include "core/hash.h"

namespace stof::exec {
namespace {

using Clock = std::chrono::steady_clock;
using cuda::CUdeviceptr;
using graph::Graph;
using graph::ValueId;
using graph::ValueKind;

/// Masks whose lists are kept in device memory, shapes of batches over caches, and captured batches
/// with lists of their own: some MiB each for large batches.
constexpr std::size_t kMaxMasks = 16, kMaxCaptured = 16;

/// Of a batch's lengths and masks: what decides, with the number of rows, every launch. Over caches
/// the plans do, since pages and lengths change in place.
std::string key_of(const Batch& batch, const std::vector<cuda::AttentionSlot>& cached) {
  std::string key;
  for (const cuda::AttentionSlot& slot : cached)
    key += fmt::format("{} ", slot.cached != nullptr ? static_cast<const void*>(slot.cached)
                                                     : static_cast<const void*>(slot.span));
  Hasher hasher;
  for (const int place : batch.mask_places) hasher.add(std::int64_t{place});
  if (!cached.empty()) return key + hasher.finish().hex();
  for (const std::int64_t offset : batch.offsets) hasher.add(offset);
  hasher.add(batch.mask.fingerprint());
  for (const mask::Mask& mask : batch.more_masks) hasher.add(mask.fingerprint());
  return hasher.finish().hex();
}

/// By mask of the batch to by mask of the graph, in place: runners have the slots' addresses.
void place(const std::vector<cuda::AttentionSlot>& slots, const Batch& batch,
           std::vector<cuda::AttentionSlot>& to) {
  for (std::size_t i = 0; i < to.size(); ++i)
    to[i] = slots[static_cast<std::size_t>(batch.mask_place(static_cast<int>(i)))];
}

/// Batches of packed sequences are planned without one; a batch with one is planned by itself.
bool has_position_bias(const AttentionProblem& problem) {
  return problem.position_bias.num_buckets > 0;
}

/// Of what packed sequences are planned for: the mask and, since masks may be under different ones,
/// the kind of attention.
std::string key_of(const AttentionProblem& problem, const mask::Mask& mask) {
  return fmt::format("{} {} {} {} {} {}", mask.fingerprint().hex(), problem.num_heads_q,
                     problem.num_heads_kv, problem.head_dim_qk, to_string(problem.dtype),
                     problem.scale.value_or(0));
}

/// Either all attention reads caches or none does; over caches all that is no cross-attention is
/// alike.
void check_kinds(const std::vector<AttentionKind>& kinds) {
  const AttentionKind* first = nullptr;
  for (const AttentionKind& kind : kinds) {
    if (kind.problem.head_dim_qk == 0) continue;  // no operator is under this mask
    if (first == nullptr) first = &kind;
    STOF_CHECK(kind.cached == first->cached, kUnsupported,
               "graph: on a GPU expected attention over caches under all masks or none, got both");
    STOF_CHECK(!kind.cached || kind.cross != first->cross || kind.alike(*first), kUnsupported,
               "graph: on a GPU expected one kind of attention over caches besides "
               "cross-attention, got two");
  }
}

}  // namespace

/// Kernels for a number of rows, bound to the session's memory.
struct CudaSession::Prepared {
  explicit Prepared(ExecutionPlan p) : plan(std::move(p)), picked(plan.graph()) {}

  ExecutionPlan plan;
  PickedRows picked;
  std::vector<AttentionKind> kinds;        ///< by mask
  std::vector<cuda::AttentionSlot> slots;  ///< by mask
  std::vector<CUdeviceptr> addresses;      ///< by ValueId
  std::vector<std::unique_ptr<cuda::SegmentRunner>> runners;
};

struct CudaSession::Captured {
  std::string key;
  std::int64_t bucket = 0;
  // Lists that the graph reads, by mask.
  std::list<cuda::PackedAttention> attention;
  std::list<cuda::BatchAttention> batch_attention;
  std::list<cuda::SpanAttention> spans;
  cuda::StreamGraph graph;
};

namespace {

/// The device, its context current: the session's stream is made on a thread that may have none.
const cuda::Device& current(const cuda::Device& device) {
  device.use();
  return device;
}

}  // namespace

CudaSession::CudaSession(const cuda::Device& device, GraphOf graph_of,
                         std::shared_ptr<const CudaWeights> weights, SessionOptions options,
                         std::shared_ptr<CudaStates> states)
    : device_(current(device)),
      graph_of_(std::move(graph_of)),
      weights_(std::move(weights)),
      options_(std::move(options)),
      states_(states != nullptr ? std::move(states) : std::make_shared<CudaStates>()) {}

CudaSession::~CudaSession() {
  try {
    device_.use();  // memory is freed in the current context, and threads begin without one
  } catch (const Error&) {
    // The driver is gone at the end of a process, and the memory with it.
  }
}

ExecutionPlan CudaSession::plan(std::int64_t rows) const {
  device_.use();
  Graph graph = graph_of_(bucket_rows(rows));
  SessionOptions options = options_;
  options.tuned = nullptr;
  const auto allows = [this](const std::string& family) {
    return options_.switches.allows(family);
  };
  if (!options.scheme && options_.tuned && options.switches.fuse && graph.num_layers() > 0) {
    if (const std::optional<TunedSegments> tuned = options_.tuned(graph)) {
      // Tuning may have taken any candidate; but only the families that it took are asked for, as a
      // library that it did not take need not be here.
      options.tuned = [&tuned](const Graph&) { return tuned; };
      return make_plan(
          std::move(graph), options, [&](const Graph& g, const fusion::Segment& segment) {
            const auto choice = tuned->choices.find(segment_hash(g, segment));
            if (choice != tuned->choices.end() && allows(choice->second.family)) {
              // Its library is installed: revalidate() has run it.
              std::vector<fusion::Choice> list = cuda::first_candidates(
                  g, segment, device_,
                  [&](const std::string& family) { return family == choice->second.family; });
              if (std::find(list.begin(), list.end(), choice->second) != list.end()) return list;
            }
            return first_cuda_candidates(g, segment, device_, allows);
          });
    }
  }
  if (!options.scheme && graph.num_layers() > 0)
    options.scheme = untuned_cuda_scheme(graph, device_, options.switches);
  return make_plan(std::move(graph), options, [&](const Graph& g, const fusion::Segment& segment) {
    return first_cuda_candidates(g, segment, device_, allows);
  });
}

CudaSession::Prepared& CudaSession::prepared(std::int64_t rows) {
  const std::int64_t bucket = bucket_rows(rows);
  const auto found = prepared_.find(bucket);
  if (found != prepared_.end()) return *found->second;

  auto fresh = std::make_unique<Prepared>(plan(rows));
  const Graph& graph = fresh->plan.graph();
  std::size_t workspace = 0;
  for (const PlannedSegment& planned : fresh->plan.segments())
    workspace = std::max(workspace, cuda::workspace_bytes(planned.choice));
  const auto arena = static_cast<std::size_t>(fresh->plan.arena_bytes());
  if (arena > arena_.bytes() || workspace > workspace_.bytes() || bucket > input_rows_) {
    // Nothing may be running in memory that goes; what was bound to it goes as well.
    stream_.wait("running the session");
    captured_.clear();
    prepared_.clear();
    // Where memory runs out below, the next batch grows what is then missing.
    const std::int64_t input_rows = std::exchange(input_rows_, 0);
    const cuda::Driver& driver = cuda::Driver::instance();
    const auto grow = [&](cuda::DeviceBuffer& buffer, std::size_t bytes, const std::string& what) {
      if (bytes <= buffer.bytes()) return;
      buffer = {};  // first, so that old and new need not fit side by side
      buffer = cuda::DeviceBuffer(bytes, what);
      // Padding rows take part in products; what they hold goes nowhere, but should be numbers.
      driver.check(driver.cuMemsetD8Async(buffer.address(), 0, bytes, stream_.handle()),
                   "clearing " + what);
    };
    grow(arena_, arena, "activations");
    grow(workspace_, workspace, "the products' workspace");
    for (const ValueId id : graph.of_kind(ValueKind::kInput))
      grow(inputs_[graph.value(id).name], value_bytes(graph.value(id)), graph.value(id).name);
    input_rows_ = std::max(input_rows, bucket);
  }
  const std::map<std::string, CUdeviceptr> states = states_->of(graph);
  fresh->kinds = attention_kinds(graph);
  check_kinds(fresh->kinds);
  cuda::SegmentBindings bindings;
  bindings.addresses.resize(graph.values().size());
  weights_->bind(graph, bindings.addresses);
  for (const ArenaSlot& slot : fresh->plan.slots())
    bindings.addresses[static_cast<std::size_t>(slot.value)] =
        arena_.address() + static_cast<CUdeviceptr>(slot.offset);
  for (const ValueId id : graph.of_kind(ValueKind::kInput))
    bindings.addresses[static_cast<std::size_t>(id)] = inputs_.at(graph.value(id).name).address();
  for (const ValueId id : states_of(graph))
    bindings.addresses[static_cast<std::size_t>(id)] = states.at(graph.value(id).name);
  bindings.workspace = workspace_.address();
  fresh->slots.resize(static_cast<std::size_t>(graph.num_masks()));
  bindings.attention = fresh->slots.data();
  bindings.num_masks = graph.num_masks();
  std::vector<cuda::SegmentChoice> choices;
  for (const PlannedSegment& planned : fresh->plan.segments())
    choices.push_back({&planned.segment, &planned.choice});
  compile_ahead(graph, choices, device_);
  for (const PlannedSegment& planned : fresh->plan.segments())
    fresh->runners.push_back(
        make_runner(graph, planned.segment, planned.choice, bindings, device_));
  fresh->addresses = std::move(bindings.addresses);
  return *prepared_.emplace(bucket, std::move(fresh)).first->second;
}

MutableTensorView CudaSession::state(const std::string& name) {
  device_.use();
  states_->of(graph_of_(1));
  return states_->state(name);
}

void CudaSession::move_state_rows(std::int64_t to, std::int64_t from, std::int64_t count) {
  const std::lock_guard lock(mutex_);
  device_.use();
  states_->move_rows(to, from, count, stream_.handle());
}

void CudaSession::prepare(std::int64_t rows) {
  const std::lock_guard lock(mutex_);
  device_.use();
  prepared(rows);
}

CudaSession::Slots CudaSession::packed(const Prepared& prepared, const Batch& batch) {
  if (prepared.kinds.empty()) return {};
  const std::vector<const AttentionKind*> kinds = kinds_of_masks(prepared.kinds, batch);
  const auto num_masks = static_cast<std::size_t>(batch.num_masks());
  biased_.clear();
  std::size_t missing = 0;
  for (int i = 0; i < batch.num_masks(); ++i) {
    const AttentionKind* const kind = kinds[static_cast<std::size_t>(i)];
    missing += kind != nullptr && !has_position_bias(kind->problem) &&
               !attention_.contains(key_of(kind->problem, batch.mask_of(i)));
  }
  if (missing > 0 && attention_.size() + missing > std::max(kMaxMasks, num_masks))
    attention_.clear();
  Slots slots;
  batch.for_each_mask([&](int i) {
    const mask::Mask& mask = batch.mask_of(i);
    if (kinds[static_cast<std::size_t>(i)] == nullptr) {
      slots.emplace_back();
      return;
    }
    const AttentionProblem& problem = kinds[static_cast<std::size_t>(i)]->problem;
    if (has_position_bias(problem)) {
      const cuda::BatchAttention& attention =
          biased_.emplace_back(problem, mask, batch.offsets, device_.facts().ordinal);
      slots.push_back({nullptr, batch.rows(), &attention, nullptr});
      return;
    }
    const auto [found, is_new] =
        attention_.try_emplace(key_of(problem, mask), problem, mask, device_);
    found->second.prepare(batch.offsets, stream_.handle());
    slots.push_back({&found->second, batch.rows(), nullptr, nullptr});
  });
  return slots;
}

CudaSession::Slots CudaSession::cached(const Prepared& prepared, const Batch& batch) {
  const bool cached = std::any_of(prepared.kinds.begin(), prepared.kinds.end(),
                                  [](const AttentionKind& kind) { return kind.cached; });
  if (!cached) return {};
  // A chunk's shape and a step's for every mask, and again when keys outgrow a power of two.
  const std::size_t most = std::max(kMaxMasks, 4 * static_cast<std::size_t>(batch.num_masks()));
  const bool too_many =
      std::any_of(cached_attention_.begin(), cached_attention_.end(),
                  [most](const auto& attention) { return attention.second.size() > most; });
  if (too_many) {
    stream_.wait("running the session");
    captured_.clear();  // they read these plans' pages
    cached_attention_.clear();
  }
  spans_.clear();
  const std::vector<const AttentionKind*> kinds = kinds_of_masks(prepared.kinds, batch);
  Slots slots;
  batch.for_each_mask([&](int i) {
    const mask::Mask& mask = batch.mask_of(i);
    if (kinds[static_cast<std::size_t>(i)] == nullptr) {
      slots.emplace_back();
      return;
    }
    const AttentionKind& kind = *kinds[static_cast<std::size_t>(i)];
    const graph::CachePages& pages = *kind.pages(batch);
    cuda::CachedAttention& attention =
        cached_attention_.try_emplace(kind.cross, kind.problem, kind.cross, device_).first->second;
    cuda::AttentionSlot slot;
    slot.rows = batch.rows();
    try {
      slot.cached = &attention.prepare(mask, batch.offsets, pages, stream_.handle());
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kUnsupported) throw;
      slot.span = &spans_.emplace_back(kind.problem, mask, batch.offsets, pages, device_);
    }
    slots.push_back(slot);
  });
  return slots;
}

void CudaSession::upload(const Prepared& prepared, const Batch& batch) {
  const cuda::Driver& driver = cuda::Driver::instance();
  const Graph& graph = prepared.plan.graph();
  for (const ValueId id : graph.of_kind(ValueKind::kInput))
    for (const auto& [name, view] : batch.inputs)
      if (name == graph.value(id).name)
        driver.check(
            driver.cuMemcpyHtoDAsync(
                prepared.addresses[static_cast<std::size_t>(id)], view.data,
                static_cast<std::size_t>(num_elements(view.shape)) * dtype_bytes(view.dtype),
                stream_.handle()),
            "uploading a batch");
  const auto fill_rest = [&](ValueId id, std::int64_t rows, unsigned char byte) {
    const std::size_t used = static_cast<std::size_t>(rows) * sizeof(std::int32_t);
    const std::size_t all = value_bytes(graph.value(id));
    if (used < all)
      driver.check(driver.cuMemsetD8Async(prepared.addresses[static_cast<std::size_t>(id)] + used,
                                          byte, all - used, stream_.handle()),
                   "filling up a batch");
  };
  // Rows of padding are computed, but go to no cache: all bits set is a negative slot. Picks that
  // are left take the first row.
  for (const ValueId id : slot_inputs(graph)) fill_rest(id, batch.rows(), 0xff);
  for (const ValueId id : prepared.picked.ids())
    fill_rest(id, prepared.picked.rows(graph.value(id).consumers[0], batch), 0);
}

void CudaSession::launch(const Prepared& prepared, std::int64_t rows) const {
  const Graph& graph = prepared.plan.graph();
  // Attention does not write the rows of padding.
  std::set<CUdeviceptr> cleared;
  for (const PlannedSegment& planned : prepared.plan.segments()) {
    if (planned.segment.family != fusion::Family::kAttention) continue;
    const ValueId out = graph.storage(planned.segment.outputs[0]);
    const graph::Value& value = graph.value(out);
    const CUdeviceptr address = prepared.addresses[static_cast<std::size_t>(out)];
    const std::size_t used = value_bytes(value) / static_cast<std::size_t>(value.shape[0]) *
                             static_cast<std::size_t>(rows);
    if (used == value_bytes(value) || !cleared.insert(address).second) continue;
    const cuda::Driver& driver = cuda::Driver::instance();
    driver.check(
        driver.cuMemsetD8Async(address + used, 0, value_bytes(value) - used, stream_.handle()),
        "clearing padding");
  }
  for (const auto& runner : prepared.runners) runner->launch(stream_.handle());
}

CudaSession::Captured& CudaSession::captured(Prepared& prepared, const Batch& batch,
                                             const std::string& key, Slots cached) {
  const std::int64_t bucket = bucket_rows(batch.rows());
  const auto found = std::find_if(captured_.begin(), captured_.end(), [&](const auto& captured) {
    return captured->key == key && captured->bucket == bucket;
  });
  if (found != captured_.end()) {
    captured_.splice(captured_.begin(), captured_, found);
    return *captured_.front();
  }
  auto fresh = std::make_unique<Captured>();
  fresh->key = key;
  fresh->bucket = bucket;
  // Over caches the decode kernel's plans and their pages outlive the capture.
  fresh->spans = std::move(spans_);
  Slots slots = std::move(cached);
  const std::vector<const AttentionKind*> kinds = kinds_of_masks(prepared.kinds, batch);
  const int num_masks = prepared.kinds.empty() ? 0 : batch.num_masks();
  for (int i = static_cast<int>(slots.size()); i < num_masks; ++i) {
    if (kinds[static_cast<std::size_t>(i)] == nullptr) {
      slots.emplace_back();
      continue;
    }
    const mask::Mask& mask = batch.mask_of(i);
    const AttentionProblem& problem = kinds[static_cast<std::size_t>(i)]->problem;
    if (options_.batches_repeat || has_position_bias(problem)) {
      const cuda::BatchAttention& attention = fresh->batch_attention.emplace_back(
          problem, mask, batch.offsets, device_.facts().ordinal);
      slots.push_back({nullptr, batch.rows(), &attention, nullptr});
    } else {
      cuda::PackedAttention& attention = fresh->attention.emplace_back(problem, mask, device_);
      attention.prepare(batch.offsets, stream_.handle());
      slots.push_back({&attention, batch.rows(), nullptr, nullptr});
    }
  }
  place(slots, batch, prepared.slots);
  // Once as it is: libraries load kernels when they first run, which a capture does not allow.
  launch(prepared, batch.rows());
  stream_.wait("running the session");
  fresh->graph =
      cuda::StreamGraph::capture(stream_.handle(), [&] { launch(prepared, batch.rows()); });
  if (captured_.size() == kMaxCaptured) captured_.pop_back();
  captured_.push_front(std::move(fresh));
  return *captured_.front();
}

CudaResult CudaSession::result_of(const Prepared& prepared, const Batch& batch) const {
  const Graph& graph = prepared.plan.graph();
  const ValueId result = graph.live_outs().at(0);
  const graph::Value& value = graph.value(result);
  return {prepared.addresses[static_cast<std::size_t>(graph.storage(result))], value.dtype,
          prepared.picked.rows(value.producer, batch), value.shape[1], stream_.handle()};
}

void CudaSession::run(const Batch& batch, const std::function<void(const CudaResult&)>& finish,
                      RunTiming* timing) {
  const std::lock_guard lock(mutex_);
  device_.use();
  const auto start = Clock::now();
  STOF_CHECK(batch.rows() > 0, kInvalidArgument, "batch: expected at least one row");
  Prepared& prepared = this->prepared(batch.rows());
  check_batch(prepared.plan.graph(), batch);
  const Slots cached = this->cached(prepared, batch);
  const std::string key = key_of(batch, cached);
  const std::int64_t bucket = bucket_rows(batch.rows());
  // Spans are planned for one batch: what they hold would be captured for it alone.
  const bool again =
      spans_.empty() && (options_.batches_repeat || key == last_key_ ||
                         std::any_of(captured_.begin(), captured_.end(), [&](const auto& captured) {
                           return captured->key == key && captured->bucket == bucket;
                         }));
  last_key_ = key;
  const auto planned = [&] {
    if (timing != nullptr)
      timing->plan += std::chrono::duration<double>(Clock::now() - start).count();
  };
  if (again) {
    upload(prepared, batch);
    Captured& captured = this->captured(prepared, batch, key, cached);
    planned();
    captured.graph.launch(stream_.handle());
  } else {
    place(cached.empty() ? packed(prepared, batch) : cached, batch, prepared.slots);
    planned();
    upload(prepared, batch);
    launch(prepared, batch.rows());
  }
  finish(result_of(prepared, batch));
}

void CudaSession::replay(const Batch& batch,
                         const std::function<void(const std::function<void()>& launch,
                                                  const CudaResult& result)>& replayed) {
  const std::lock_guard lock(mutex_);
  device_.use();
  Prepared& prepared = this->prepared(batch.rows());
  check_batch(prepared.plan.graph(), batch);
  upload(prepared, batch);
  const Slots cached = this->cached(prepared, batch);
  const Captured& captured = this->captured(prepared, batch, key_of(batch, cached), cached);
  replayed([&] { captured.graph.launch(stream_.handle()); }, result_of(prepared, batch));
}

}  // namespace stof::exec
