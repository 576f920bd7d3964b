#pragma once
// Neighbouring operators that run as one: what a scheme is decoded to.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fusion/scheme.h"
#include "graph/graph.h"

namespace stof::fusion {

using graph::Graph;
using graph::kNoId;
using graph::OperatorId;
using graph::ValueId;

/// The template that runs a segment.
enum class Family : std::uint8_t {
  kGemm,         ///< one matrix product, then steps
  kRow,          ///< steps over whole rows, one of them a norm
  kAttention,    ///< alone
  kEmbedding,    ///< table rows, summed, then steps
  kElementwise,  ///< steps that need no neighbour; none: a copy under another shape
  kGemmChain,    ///< two matrix products: the second is the step kMatmul
  kPool,         ///< alone
  kNormGemm,     ///< a norm of few rows, then a product as the step kMatmul, then steps
};
/// Whether the first operator is a step, as all others are, or what the template is named after.
bool first_is_step(Family family);

/// What is done to the running value, in float32, one step per operator after the first, and for
/// the first as well where first_is_step().
enum class Step : std::uint8_t {
  kBias,  ///< + operand[column]
  kRelu,
  kGeluErf,
  kGeluTanh,
  kSilu,
  kGate,        ///< * operand[row, column]
  kResidual,    ///< + operand[row, column]
  kRowScale,    ///< * operand[row, 0]
  kRowSquares,  ///< last: sums of squares are stored, and the running value besides if asked for
  kRmsScale,    ///< / sqrt(mean of what operand's sums of squares are of + epsilon)
  kLayerNorm,   ///< operand: gamma, operand2: beta
  kRmsNorm,     ///< operand: gamma
  kRope,        ///< operand: positions, operand2: frequencies; heads: the operator's attributes
  kHeadNorm,    ///< operand: gamma of queries, operand2: of keys; heads: the operator's attributes
  kHeadStore,   ///< the store's address: [row, head, d] goes to [head, row, d]
  kCacheStore,  ///< the same: keys and values of a row go to a cache's; operand: slots, 2: cache
  kMatmul,      ///< operand: the weight; reads elements, as a first product does
};

struct EpilogueStep {
  Step step = Step::kBias;
  /// What it reads besides the running value. Where the running value is a product of gate and up
  /// side by side, the activation's operand is the gate's columns, which alone go on, and the
  /// operand of the kGate step after it the other half: both are views of values made inside.
  ValueId operand = kNoId;
  double epsilon = 0;        ///< of norms and of kRmsScale
  ValueId operand2 = kNoId;  ///< of kLayerNorm, kRope, kHeadNorm, kCacheStore
  OperatorId op = kNoId;     ///< the operator it stands for
};

struct Segment {
  OperatorId first = kNoId, last = kNoId;  ///< both belong to it
  Family family = Family::kElementwise;
  std::vector<EpilogueStep> steps;  ///< in order
  /// Values from outside: first what the first operator reads, in its order (kGemm: x, weight;
  /// kAttention: q, k, v), then operands of the steps in order, each once.
  std::vector<ValueId> inputs;
  /// What is written: the last operator's output, then interior values that are read elsewhere
  /// (the sum that a norm reads or squares are summed of, the rows that a cache store takes its
  /// keys and values from).
  std::vector<ValueId> outputs;
  ValueId gate_view = kNoId;  ///< operand of the first activation of a gate's columns, if any
};

std::string_view to_string(Family family);  ///< "gemm_chain"
std::string_view to_string(Step step);      ///< "gelu_erf"
/// "gemm: bias, gelu_erf"
std::string describe(const Graph& graph, const Segment& segment);

/// Why neighbouring operators cannot run as one.
enum class ReasonCode : std::uint8_t {
  kNotAChain,       ///< an operator reads nothing that the one before it made
  kLayerBoundary,   ///< operators of two layers
  kOtherConsumer,   ///< a value inside is read outside
  kLiveOut,         ///< a value inside is a result of the graph
  kAlias,           ///< a value inside is an update in place, or is overwritten
  kOverlap,         ///< the result overwrites what the segment still reads
  kBroadcast,       ///< an operand is neither a full matrix, a row vector nor a row scale
  kTooManyMatmuls,  ///< more than two compute-intensive operators
  kMatmulNotFirst,  ///< operators before the product, other than a norm of few rows
  kRowTooWide,      ///< a norm's row does not fit the block or cluster that owns it
  kSharedMemory,    ///< a chain's tile between the products does not fit
  kRegisters,       ///< more operands than the epilogue has registers for
  kNotAStoreMap,    ///< a reshape that a tile's store can't do, or a store before other steps
  kAttentionAlone,  ///< attention runs by itself
  kTwoNorms,        ///< two norms, of one source or one behind the other
  kEmbeddingTail,   ///< an embedding is followed by more than a norm
  kPoolAlone,       ///< pooling runs by itself
};
std::string_view to_string(ReasonCode code);  ///< "other_consumer"

struct Reason {
  ReasonCode code;
  OperatorId op = kNoId;  ///< where it shows
  ValueId value = kNoId;  ///< kNoId where it is about operators alone
  std::string text;       ///< names operator and value
};

/// What templates can hold; the defaults are Hopper's.
struct Limits {
  std::int64_t row_columns = 16384;      ///< of a norm in a row kernel
  std::int64_t gemm_row_columns = 1024;  ///< of a norm behind a product: a cluster of 8 x 128
  std::int64_t shared_bytes = 232448;    ///< a block's shared memory
  int epilogue_operands = 4;             ///< matrices and vectors the steps read
  std::int64_t prologue_rows = 64;  ///< of a norm in front of a product, or a cache's store behind
};

/// Empty: operators first..last (both included) may run as one. One operator alone always may.
/// Every reason found is listed, in the order of the operators. Throws InvalidArgument for a range
/// that the graph does not have.
std::vector<Reason> legality(const Graph& graph, OperatorId first, OperatorId last,
                             const Limits& limits = {});

/// The segment of operators first..last. Throws InvalidArgument with the first reason where they
/// may not run as one.
Segment make_segment(const Graph& graph, OperatorId first, OperatorId last,
                     const Limits& limits = {});

/// Applies the scheme to every layer; operators outside of layers are fused from the first on as
/// far as is legal, products with no more than their bias. Throws InvalidArgument where the
/// scheme's size is not the layers' (all have as many operators as the first), or as
/// make_segment().
std::vector<Segment> decode(const Graph& graph, const Scheme& scheme, const Limits& limits = {});

/// Of structure, shapes, dtypes and attributes; names, the layer and ids play no part, so that
/// equal segments of all layers and models share one.
Fingerprint segment_hash(const Graph& graph, const Segment& segment);

}  // namespace stof::fusion
