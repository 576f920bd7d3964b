#include "exec/batch.h"

#include <algorithm>
#include <limits>

#include "core/check.h"
#include "fusion/initial.h"

namespace stof::exec {

using graph::Graph;

std::vector<AttentionKind> attention_kinds(const Graph& graph) {
  std::vector<AttentionKind> kinds(static_cast<std::size_t>(graph.num_masks()));
  std::vector<const graph::Operator*> firsts(kinds.size());
  for (const graph::Operator& op : graph.operators()) {
    if (op.op != graph::Op::kAttention) continue;
    const graph::Attributes& attributes = op.attributes;
    const auto index = static_cast<std::size_t>(attributes.mask);
    AttentionKind& kind = kinds[index];
    const bool cached = graph.in_state(op.inputs[1]);
    const bool has_table = op.inputs.size() > 3;
    if (const graph::Operator* const first = firsts[index]) {
      STOF_CHECK(attributes == first->attributes && cached == kind.cached &&
                     has_table == (first->inputs.size() > 3) &&
                     (!has_table ||
                      graph.value(op.inputs[3]).shape == graph.value(first->inputs[3]).shape),
                 kUnsupported,
                 "graph: expected one kind of attention under a mask, but \"{}\" and \"{}\" differ",
                 first->name, op.name);
      continue;
    }
    firsts[index] = &op;
    kind.cached = cached;
    kind.cross = attributes.cross;
    AttentionProblem& problem = kind.problem;
    problem.num_heads_q = attributes.heads;
    problem.num_heads_kv = attributes.kv_heads;
    problem.head_dim_qk = problem.head_dim_v = attributes.head_dim;
    problem.dtype = graph.value(op.outputs[0]).dtype;
    if (attributes.scale != 0) problem.scale = static_cast<float>(attributes.scale);
    if (cached && !kind.cross) problem.alignment = mask::Alignment::kBottomRight;
    if (has_table)
      problem.position_bias = {graph.value(op.inputs[3]).shape[0], attributes.bidirectional,
                               attributes.max_distance};
  }
  return kinds;
}

bool AttentionKind::alike(const AttentionKind& other) const {
  const AttentionProblem &a = problem, &b = other.problem;
  const PositionBias &ours = a.position_bias, &theirs = b.position_bias;
  return cached == other.cached && cross == other.cross && a.num_heads_q == b.num_heads_q &&
         a.num_heads_kv == b.num_heads_kv && a.head_dim_qk == b.head_dim_qk && a.dtype == b.dtype &&
         a.scale == b.scale && ours.num_buckets == theirs.num_buckets &&
         ours.bidirectional == theirs.bidirectional && ours.max_distance == theirs.max_distance;
}

std::vector<const AttentionKind*> kinds_of_masks(const std::vector<AttentionKind>& kinds,
                                                 const Batch& batch) {
  std::vector<const AttentionKind*> of_masks(static_cast<std::size_t>(batch.num_masks()));
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i].problem.head_dim_qk == 0) continue;  // no operator is under this mask
    const int place = batch.mask_place(static_cast<int>(i));
    const AttentionKind*& kind = of_masks[static_cast<std::size_t>(place)];
    if (kind == nullptr) kind = &kinds[i];
    STOF_CHECK(kind->alike(kinds[i]), kUnsupported,
               "batch: mask {}: expected operators of one kind under it, got several", place);
  }
  return of_masks;
}

std::optional<AttentionProblem> attention_problem(const Graph& graph) {
  const graph::Operator* first = nullptr;
  for (const graph::Operator& op : graph.operators()) {
    if (op.op != graph::Op::kAttention) continue;
    if (first == nullptr) first = &op;
    graph::Attributes under_first_mask = op.attributes;
    under_first_mask.mask = first->attributes.mask;
    STOF_CHECK(under_first_mask == first->attributes, kUnsupported,
               "graph: expected one kind of attention, but \"{}\" and \"{}\" differ", first->name,
               op.name);
  }
  if (first == nullptr) return std::nullopt;
  return attention_kinds(graph)[static_cast<std::size_t>(first->attributes.mask)].problem;
}

namespace {

/// The tuned choices that are among the candidates: what was tuned for another number of rows need
/// not be.
void add_tuned(const Graph& graph, const fusion::Scheme& scheme, const TunedSegments& tuned,
               const CandidatesOf& candidates_of, Choices* choices) {
  for (const fusion::Segment& segment : decode(graph, scheme)) {
    const Fingerprint hash = segment_hash(graph, segment);
    const auto found = tuned.choices.find(hash);
    if (found == tuned.choices.end() || choices->contains(hash)) continue;
    const std::vector<fusion::Choice> candidates = candidates_of(graph, segment);
    if (std::find(candidates.begin(), candidates.end(), found->second) != candidates.end())
      choices->insert(*found);
  }
}

}  // namespace

ExecutionPlan make_plan(Graph graph, const SessionOptions& options,
                        const CandidatesOf& all_candidates_of) {
  auto shared = std::make_shared<const Graph>(std::move(graph));
  const bool fuses = options.switches.fuse && shared->num_layers() > 0;
  std::optional<TunedSegments> tuned;
  if (fuses && !options.scheme && options.tuned) tuned = options.tuned(*shared);
  const CandidatesOf candidates_of = [&](const Graph& g, const fusion::Segment& segment) {
    std::vector<fusion::Choice> candidates = all_candidates_of(g, segment);
    if (!tuned || tuned->rejected.empty()) return candidates;
    const auto rejected = tuned->rejected.find(segment_hash(g, segment));
    if (rejected != tuned->rejected.end()) std::erase(candidates, rejected->second);
    return candidates;
  };
  fusion::Scheme scheme;
  if (fuses && options.scheme)
    scheme = *options.scheme;
  else if (shared->num_layers() > 0)
    scheme = runnable_scheme(*shared, tuned ? tuned->scheme : fusion::initial_scheme(*shared),
                             candidates_of, options.switches);
  Choices choices = options.choices;
  if (tuned) add_tuned(*shared, scheme, *tuned, candidates_of, &choices);
  std::vector<PlannedSegment> segments =
      choose_segments(*shared, scheme, candidates_of, choices, options.switches);
  return ExecutionPlan(std::move(shared), std::move(scheme), std::move(segments), options.plan);
}

void Batch::for_each_mask(const std::function<void(int)>& plan) const {
  for (int i = 0; i < num_masks(); ++i) {
    try {
      plan(i);
    } catch (const Error& error) {
      if (static_cast<std::size_t>(i) >= mask_names.size()) throw;
      throw Error(error.code(), mask_names[static_cast<std::size_t>(i)] + ": " + error.what());
    }
  }
}

void check_weights(const Graph& graph, const WeightViews& weights) {
  for (const graph::ValueId id : graph.of_kind(graph::ValueKind::kWeight)) {
    const graph::Value& value = graph.value(id);
    const auto found = weights.find(id);
    STOF_CHECK(found != weights.end(), kInvalidArgument, "weight \"{}\" is missing", value.name);
    const TensorView& view = found->second;
    STOF_CHECK(view.dtype == value.dtype && view.shape == value.shape && view.is_contiguous(),
               kInvalidArgument, "weight \"{}\": expected a contiguous {}{}, got {}", value.name,
               to_string(value.dtype), value.shape.to_string(), view.describe());
  }
}

namespace {

/// Two rows in one slot, or one past the cache, would overwrite what others wrote.
void check_slots(const Graph& graph, graph::ValueId slots, const TensorView& view) {
  const graph::Value& value = graph.value(slots);
  std::int64_t size = std::numeric_limits<std::int64_t>::max();
  for (const graph::OperatorId id : value.consumers)
    if (graph.op(id).op == graph::Op::kCacheStore)
      size = std::min(size, graph.value(graph.op(id).outputs[0]).shape[0]);
  const auto* const first = static_cast<const std::int32_t*>(view.data);
  std::vector<std::int32_t> taken(first, first + view.shape[0]);
  std::erase_if(taken, [](std::int32_t slot) { return slot < 0; });
  std::sort(taken.begin(), taken.end());
  STOF_CHECK(taken.empty() || taken.back() < size, kInvalidArgument,
             "batch: input \"{}\": expected slots below {}, the cache's size, got {}", value.name,
             size, taken.back());
  const auto twice = std::adjacent_find(taken.begin(), taken.end());
  STOF_CHECK(twice == taken.end(), kInvalidArgument,
             "batch: input \"{}\": expected a slot of its own for each row, got {} twice",
             value.name, *twice);
}

}  // namespace

bool attends_to_caches(const Graph& graph) {
  return std::any_of(graph.operators().begin(), graph.operators().end(),
                     [&](const graph::Operator& op) {
                       return op.op == graph::Op::kAttention && !op.attributes.cross &&
                              graph.in_state(op.inputs[1]);
                     });
}

std::vector<graph::ValueId> states_of(const Graph& graph) {
  std::vector<graph::ValueId> states = graph.of_kind(graph::ValueKind::kState);
  std::erase_if(states, [&](graph::ValueId id) { return graph.value(id).view_of != graph::kNoId; });
  return states;
}

std::set<graph::ValueId> slot_inputs(const Graph& graph) {
  std::set<graph::ValueId> slots;
  for (const graph::Operator& op : graph.operators())
    if (op.op == graph::Op::kCacheStore) slots.insert(op.inputs[1]);
  return slots;
}

PickedRows::PickedRows(const Graph& graph) : graph_(&graph) {
  for (graph::OperatorId i = 0; i < graph.num_operators(); ++i) {
    const graph::Operator& op = graph.op(i);
    if (op.op == graph::Op::kEmbedding &&
        graph.value(op.inputs[1]).kind == graph::ValueKind::kActivation) {
      operators_.push_back(op.inputs[0]);
      ids_.insert(op.inputs[0]);
      continue;
    }
    graph::ValueId picked = graph::kNoId;
    const graph::Operator* before = nullptr;
    for (const graph::ValueId input : op.inputs) {
      const graph::OperatorId producer = graph.value(input).producer;
      if (producer == graph::kNoId) continue;
      STOF_CHECK(before == nullptr || of_operator(producer) == picked, kUnsupported,
                 "operator \"{}\": expected rows that the same ids pick, got those of \"{}\" and "
                 "\"{}\"",
                 op.name, before->name, graph.op(producer).name);
      picked = of_operator(producer);
      before = &graph.op(producer);
    }
    operators_.push_back(picked);
  }
}

graph::ValueId PickedRows::of_input(graph::ValueId id) const {
  const std::vector<graph::OperatorId>& readers = graph_->value(id).consumers;
  return readers.empty() ? graph::kNoId : of_operator(readers[0]);
}

namespace {

const TensorView* find_input(const Batch& batch, const std::string& name) {
  const auto found = std::find_if(batch.inputs.begin(), batch.inputs.end(),
                                  [&](const auto& input) { return input.first == name; });
  return found == batch.inputs.end() ? nullptr : &found->second;
}

/// As many as the graph has room for, each a row of the batch.
void check_picks(const graph::Value& value, const TensorView& view, std::int64_t rows) {
  const auto* const ids = static_cast<const std::int32_t*>(view.data);
  for (std::int64_t i = 0; i < view.shape[0]; ++i)
    STOF_CHECK(ids[i] >= 0 && ids[i] < rows, kInvalidArgument,
               "batch: input \"{}\": expected rows below {}, the batch's, got {}", value.name, rows,
               ids[i]);
}

}  // namespace

std::int64_t PickedRows::rows(graph::OperatorId id, const Batch& batch) const {
  const graph::ValueId picked = of_operator(id);
  if (picked == graph::kNoId) return batch.rows();
  return find_input(batch, graph_->value(picked).name)->shape[0];
}

void check_batch(const Graph& graph, const Batch& batch) {
  const std::set<graph::ValueId> slots = slot_inputs(graph);
  const PickedRows picked(graph);
  const bool cached = attends_to_caches(graph);
  STOF_CHECK(batch.offsets.size() >= 2 && batch.offsets[0] == 0 &&
                 std::is_sorted(batch.offsets.begin(), batch.offsets.end()) && batch.rows() > 0,
             kInvalidArgument,
             "batch: expected offsets of sequences, ascending from 0 to the number of rows");
  const int masks = graph.num_masks();
  const int got =
      batch.mask_places.empty() ? batch.num_masks() : static_cast<int>(batch.mask_places.size());
  for (const int place : batch.mask_places)
    STOF_CHECK(place >= 0 && place < batch.num_masks(), kInvalidArgument,
               "batch: mask_places: expected places below {}, as many as there are masks, got {}",
               batch.num_masks(), place);
  STOF_CHECK(got == std::max(masks, 1), kInvalidArgument,
             "batch: expected {} masks, as many as attention of the graph is under, got {}",
             std::max(masks, 1), got);
  std::set<std::pair<bool, std::int64_t>> checked;  // layers' caches have one size
  for (const graph::Operator& op : graph.operators()) {
    if (op.op != graph::Op::kAttention || !graph.in_state(op.inputs[1])) continue;
    const bool cross = op.attributes.cross;
    const std::int64_t size = graph.value(op.inputs[1]).shape[0];
    if (!checked.insert({cross, size}).second) continue;
    if (cross)
      batch.cross_cache.validate_cross(batch.offsets.size() - 1, size);
    else
      batch.cache.validate(batch.offsets, size);
  }
  for (const graph::ValueId id : graph.of_kind(graph::ValueKind::kInput)) {
    const graph::Value& value = graph.value(id);
    const TensorView* const found = find_input(batch, value.name);
    STOF_CHECK(found != nullptr, kInvalidArgument, "batch: input \"{}\" is missing", value.name);
    const TensorView& view = *found;
    Dims shape = value.shape;
    shape[0] = batch.rows();
    if (const graph::ValueId ids = picked.of_input(id); ids == id) {
      shape[0] =
          view.shape.rank() == 0 ? 0 : std::clamp<std::int64_t>(view.shape[0], 1, value.shape[0]);
    } else if (ids != graph::kNoId) {
      const TensorView* const picks = find_input(batch, graph.value(ids).name);
      shape[0] = picks == nullptr || picks->shape.rank() == 0 ? 0 : picks->shape[0];
    }
    STOF_CHECK(view.dtype == value.dtype && view.shape == shape && view.is_contiguous(),
               kInvalidArgument, "batch: input \"{}\": expected a contiguous {}{}, got {}",
               value.name, to_string(value.dtype), shape.to_string(), view.describe());
    if (picked.ids().contains(id)) check_picks(value, view, batch.rows());
    if (slots.contains(id)) check_slots(graph, id, view);
    if (slots.contains(id) && cached) {
      const std::vector<std::int32_t> wanted = batch.cache.slots(batch.offsets);
      const auto* const found_slots = static_cast<const std::int32_t*>(view.data);
      for (std::size_t row = 0; row < wanted.size(); ++row)
        STOF_CHECK(found_slots[row] == wanted[row], kInvalidArgument,
                   "batch: input \"{}\", row {}: expected slot {}, where its sequence's key is "
                   "read, got {}",
                   value.name, row, wanted[row], found_slots[row]);
    }
  }
}

}  // namespace stof::exec
