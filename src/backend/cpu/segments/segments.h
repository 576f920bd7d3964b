#pragma once
// Fused segments on the CPU, in float32: which kernels can run one, and running it.

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "backend/cpu/gemm.h"
#include "fusion/choice.h"
#include "fusion/segment.h"
#include "graph/cache_pages.h"
#include "graph/graph.h"
#include "stof/attention.h"

namespace stof::cpu {

/// Weights packed for products, each once however many layers, plans and sessions multiply by it.
/// Safe from several threads.
class PackedWeights {
 public:
  /// Found by address and layout; `weight` outlives this, but for those of pack().
  std::shared_ptr<const PackedWeight> of(const TensorView& weight, PackedWeight::Layout layout);

  /// Packs a weight whose own memory may go then: its address only names it from now on. of()
  /// throws Unsupported where it is wanted as it is.
  void pack(const TensorView& weight);

 private:
  std::mutex mutex_;
  std::set<const void*> given_back_;  ///< addresses of weights that pack() took
  std::map<std::pair<const void*, PackedWeight::Layout>, std::shared_ptr<const PackedWeight>>
      weights_;
};

/// Sequences and a mask of the batch at hand: set before a run, read by attention segments. Rows
/// past the last sequence are padding, whose attention is left as it is.
struct AttentionSlot {
  const VarlenPlan* plan = nullptr;
  const graph::CachePages* pages = nullptr;  ///< of attention over caches
};

/// Where values are. Weights and inputs are only read.
struct SegmentBindings {
  std::vector<void*> addresses;              ///< by ValueId; views are found in their base
  const AttentionSlot* attention = nullptr;  ///< of attention segments: one a mask
  PackedWeights* weights = nullptr;          ///< of products
  int num_masks = 1;                         ///< slots at `attention`
};

/// A segment with its kernel chosen and its values bound. run() is for one thread at a time, which
/// may use a team (ThreadScope).
class SegmentRunner {
 public:
  virtual ~SegmentRunner() = default;
  /// Computes the first `rows` rows; at most as many as the graph has.
  virtual void run(std::int64_t rows) const = 0;
};

/// What can run the segment, the one to use untuned first; none where nothing can. Families:
///   onednn     a product with its steps as post-ops; packed: 1 for weights in oneDNN's layout
///   row        steps row by row while the row is in the cache; chunk: rows a thread takes at once
///   attention  by plan, as run_varlen_attention()
std::vector<fusion::Choice> candidates(const graph::Graph& graph, const fusion::Segment& segment);

/// Throws Unsupported naming segment and choice where the choice is none of the candidates' kind,
/// InvalidArgument naming a value without address.
std::unique_ptr<SegmentRunner> make_runner(const graph::Graph& graph,
                                           const fusion::Segment& segment,
                                           const fusion::Choice& choice,
                                           const SegmentBindings& bindings);

}  // namespace stof::cpu
