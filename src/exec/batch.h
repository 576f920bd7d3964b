#pragma once
// What a session runs a model on.

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "exec/plan.h"
#include "graph/cache_pages.h"
#include "stof/attention.h"
#include "stof/mask.h"
#include "stof/tensor.h"

namespace stof::exec {

/// Sequences one behind the other, without padding.
struct Batch {
  /// The graph's inputs by name, contiguous, of their dtype; the first extent is the rows, or as
  /// many as are picked (PickedRows), at least one.
  std::vector<std::pair<std::string, TensorView>> inputs;
  std::vector<std::int64_t> offsets;  ///< sequence i is rows offsets[i] .. offsets[i + 1]
  mask::Mask mask;                    ///< of attention, within each sequence
  /// Of graphs whose attention reads caches: where the sequences' keys are. Their "slots" are
  /// cache.slots(offsets).
  graph::CachePages cache = {};
  /// Of graphs with cross-attention: where the keys are that sequence i attends to.
  graph::CachePages cross_cache = {};
  /// Further masks, of attention operators under mask 1, 2, ... (Attributes::mask).
  std::vector<mask::Mask> more_masks = {};
  /// Where operators under several masks share one: which of these masks operators under mask 0,
  /// 1, ... are under. Empty: each under its own.
  std::vector<int> mask_places = {};
  std::vector<std::string> mask_names = {};  ///< of these masks, for messages; may be empty

  int num_masks() const { return static_cast<int>(more_masks.size()) + 1; }
  /// One of num_masks().
  const mask::Mask& mask_of(int index) const {
    return index == 0 ? mask : more_masks[static_cast<std::size_t>(index) - 1];
  }
  /// Which of them operators under mask `index` are under, which check_batch() found there.
  int mask_place(int index) const {
    return mask_places.empty() ? index : mask_places[static_cast<std::size_t>(index)];
  }
  /// Calls plan(i) for each of num_masks(); what it throws begins with the mask's name.
  void for_each_mask(const std::function<void(int)>& plan) const;
  std::int64_t rows() const { return offsets.empty() ? 0 : offsets.back(); }
};

/// Wall time of the parts of a run, seconds; added to.
struct RunTiming {
  double plan = 0;
  double attention = 0;  ///< 0 where operators are not waited for one by one
};

/// A scheme and what its segments are run with, by segment_hash().
struct TunedSegments {
  fusion::Scheme scheme;
  Choices choices;
  Choices rejected;  ///< that gave wrong numbers here: not taken untuned either
};

/// What tuning found for the graph, if anything.
using TunedOf = std::function<std::optional<TunedSegments>(const graph::Graph&)>;

/// How a model is cut and what its segments are run with.
struct SessionOptions {
  std::optional<fusion::Scheme> scheme;  ///< none: the initial scheme, as far as it runs
  Choices choices;                       ///< others get the first candidate
  TunedOf tuned;  ///< asked for each number of rows, where there is no scheme
  FuseSwitches switches = FuseSwitches::from_environment();
  PlanOptions plan;
  /// On a GPU: every batch is expected again and gets, when it first comes, attention planned for
  /// it alone and a CUDA graph. Without, that costs less when lengths never repeat.
  bool batches_repeat = false;
};

/// The model's graph for a number of rows.
using GraphOf = std::function<graph::Graph(std::int64_t rows)>;

/// A tensor for every weight of a graph, contiguous, of the value's dtype and shape.
using WeightViews = std::map<graph::ValueId, TensorView>;

/// Throws InvalidArgument naming a weight of the graph that is missing, or does not fit.
void check_weights(const graph::Graph& graph, const WeightViews& weights);

/// What the graph's attention operators under one mask have in common.
struct AttentionKind {
  AttentionProblem problem;
  bool cached = false;  ///< keys are rows of a cache
  bool cross = false;   ///< that of Batch::cross_cache

  bool alike(const AttentionKind& other) const;
  /// Where a batch's keys are: null for the rows of the pass themselves.
  const graph::CachePages* pages(const Batch& batch) const {
    return cross ? &batch.cross_cache : cached ? &batch.cache : nullptr;
  }
};

/// By mask; a mask that no operator is under has an empty problem. Throws Unsupported where two
/// operators under one mask differ in anything else.
std::vector<AttentionKind> attention_kinds(const graph::Graph& graph);

/// Of each of the batch's masks, what operators under it have in common; null for one that none is
/// under. Throws Unsupported naming a mask that different kinds are under.
std::vector<const AttentionKind*> kinds_of_masks(const std::vector<AttentionKind>& kinds,
                                                 const Batch& batch);

/// The attention of all of the graph's attention operators; none without. Throws Unsupported where
/// two differ in more than their masks.
std::optional<AttentionProblem> attention_problem(const graph::Graph& graph);

/// The plan for the graph, by the options.
ExecutionPlan make_plan(graph::Graph graph, const SessionOptions& options,
                        const CandidatesOf& candidates_of);

/// Whether attention reads keys and values of the caches that the rows of the pass are stored in.
bool attends_to_caches(const graph::Graph& graph);

/// Where a graph goes on with some of its rows only: behind an embedding whose table is no weight
/// but what the graph made. Its ids pick the rows, and who runs the graph may pick fewer than the
/// graph has room for.
class PickedRows {
 public:
  /// Throws Unsupported naming an operator that reads rows picked by different ids.
  explicit PickedRows(const graph::Graph& graph);

  /// The ids that the rows of an operator's result, or of an input, were picked by; kNoId: all.
  graph::ValueId of_operator(graph::OperatorId id) const {
    return operators_[static_cast<std::size_t>(id)];
  }
  graph::ValueId of_input(graph::ValueId id) const;
  /// Those ids, ascending.
  const std::set<graph::ValueId>& ids() const { return ids_; }
  /// Rows of the operator's result in a batch that check_batch() accepts.
  std::int64_t rows(graph::OperatorId id, const Batch& batch) const;

 private:
  const graph::Graph* graph_;
  std::vector<graph::ValueId> operators_;
  std::set<graph::ValueId> ids_;
};

/// States that have memory: not columns of others.
std::vector<graph::ValueId> states_of(const graph::Graph& graph);

/// Inputs that say where in a cache rows are stored.
std::set<graph::ValueId> slot_inputs(const graph::Graph& graph);

/// Throws InvalidArgument naming an input of the graph that the batch lacks, or whose dtype, shape
/// or strides do not fit, or offsets that do not ascend from 0, or a number of masks (or of their
/// places) other than the graph's where it has attention under several, or ids that pick rows past
/// the batch's, or a slot past its cache or of two rows; of attention over caches what
/// CachePages::validate() and validate_cross() do, or a row that is stored elsewhere than its
/// sequence's keys are read.
void check_batch(const graph::Graph& graph, const Batch& batch);

}  // namespace stof::exec
