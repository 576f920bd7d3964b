#pragma once
// Fused segments on an NVIDIA GPU, in float16 or bfloat16: which kernels can run one, and running
// it.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/attention/batch_attention.h"
#include "backend/cuda/attention/cached_attention.h"
#include "backend/cuda/attention/packed_attention.h"
#include "backend/cuda/attention/span_attention.h"
#include "backend/cuda/device.h"
#include "fusion/choice.h"
#include "fusion/segment.h"
#include "graph/graph.h"

namespace stof::cuda {

/// Attention under a mask, prepared for the batch at hand: set before a launch, read by attention
/// segments. Rows past the last sequence are padding, whose attention is left as it is.
struct AttentionSlot {
  const PackedAttention* attention = nullptr;
  std::int64_t rows = 0;                  ///< of all sequences
  const BatchAttention* batch = nullptr;  ///< in place of `attention`
  const CachedBatch* cached = nullptr;    ///< likewise, of attention over caches
  const SpanAttention* span = nullptr;    ///< in place of `cached`
};

/// Where values are, in device memory, 256-byte aligned. Weights and inputs are only read.
struct SegmentBindings {
  std::vector<CUdeviceptr> addresses;  ///< by ValueId; views are found in their base
  CUdeviceptr workspace = 0;           ///< workspace_bytes() of the choice, of this stream alone
  const AttentionSlot* attention = nullptr;  ///< of attention segments: one a mask
  int num_masks = 1;                         ///< slots at `attention`
};

/// A segment with its kernel chosen, compiled and loaded, and its values bound.
class SegmentRunner {
 public:
  virtual ~SegmentRunner() = default;
  /// Asynchronous; neither allocates nor compiles nor synchronises.
  virtual void launch(CUstream stream) const = 0;
};

/// Up to as many rows the products that stream their weights come first: they start while the
/// kernel before ends, and are faster than the others where weights are below some 100 MB
/// (kernels/gemm/skinny/README.md).
inline constexpr std::int64_t kStreamedRows = 8;

/// What can run the segment, the one to use untuned first; none where nothing can. Families:
///   cublaslt   a product with what the library does behind it; the algorithm by its numbers
///   gemm_sm90  a product with its steps in one kernel of ours, on Hopper
///   gemm_sm80  the same by mma.sync, from compute capability 8.0 on
///   gemm_skinny  a product of at most 64 rows, a norm of them in front, a cache's store behind
///   row        steps over whole rows; vector, warps, rows: see codegen::RowProgramConfig
///   attention  by the kernel that the model of the mask's tiles picks for the batch; over caches
///              by the decode kernel where it takes the batch
std::vector<fusion::Choice> candidates(const graph::Graph& graph, const fusion::Segment& segment,
                                       const Device& device);

/// Those of the first family that can run the segment, among families that `allows` holds for: what
/// runs untuned, without asking the rest (a library takes its time to load).
std::vector<fusion::Choice> first_candidates(
    const graph::Graph& graph, const fusion::Segment& segment, const Device& device,
    const std::function<bool(const std::string& family)>& allows);

/// A segment and what it may be run with.
struct SegmentChoice {
  const fusion::Segment* segment;
  const fusion::Choice* choice;
};

/// Compiles what make_runner() would and is not cached, by all cores at once. Needs no GPU. Throws
/// as make_runner().
void compile_ahead(const graph::Graph& graph, const std::vector<SegmentChoice>& choices,
                   const Device& device);

/// Bytes of workspace that a choice needs.
std::size_t workspace_bytes(const fusion::Choice& choice);

/// Throws Unsupported naming segment and choice where the choice has no kernel, InvalidArgument
/// naming a value without address, and what compiling throws.
std::unique_ptr<SegmentRunner> make_runner(const graph::Graph& graph,
                                           const fusion::Segment& segment,
                                           const fusion::Choice& choice,
                                           const SegmentBindings& bindings, const Device& device);

}  // namespace stof::cuda
