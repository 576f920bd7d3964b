// Which neighbouring operators may run as one, and why others may not.

#include <algorithm>

#include "core/check.h"
#include "core/text.h"
#include "fusion/segment.h"

namespace stof::fusion {
namespace {

using graph::Op;
using graph::Operator;
using graph::Value;

/// Rows of a chain's tile: a wgmma's 64, or as many as there are in steps of an mma's 16.
std::int64_t chain_tile_rows(std::int64_t rows) {
  return std::min<std::int64_t>(64, (rows + 15) / 16 * 16);
}

/// What a chain's second product streams its operands through.
constexpr std::int64_t kChainStageBytes = 32 << 10;

class Legality {
 public:
  Legality(const Graph& graph, OperatorId first, OperatorId last, const Limits& limits)
      : graph_(graph), first_(first), last_(last), limits_(limits) {
    for (OperatorId i = first; i <= last; ++i) {
      matmuls_ += op(i).op == Op::kMatmul;
      compute_intensive_ += graph::is_compute_intensive(op(i).op);
    }
  }

  std::vector<Reason> find() {
    if (first_ == last_) return {};
    for (OperatorId i = first_; i <= last_; ++i) {
      check_kind(i);
      if (i > first_) check_chain(i);
      check_operands(i);
      if (i < last_) check_interior(i);
    }
    check_overlap();
    return std::move(reasons_);
  }

 private:
  const Operator& op(OperatorId i) const { return graph_.op(i); }
  const Value& value(ValueId id) const { return graph_.value(id); }
  ValueId out(OperatorId i) const { return op(i).outputs[0]; }
  bool inside(OperatorId i) const { return i >= first_ && i <= last_; }
  bool is_norm(OperatorId i) const {
    return op(i).op == Op::kLayerNorm || op(i).op == Op::kRmsNorm;
  }
  /// Said once, by check_kind(): that its operands do not fit either helps nobody.
  bool runs_alone(OperatorId i) const {
    return op(i).op == Op::kAttention || op(i).op == Op::kPool;
  }
  std::string name(OperatorId i) const { return quote_text(op(i).name); }
  std::string value_name(ValueId id) const { return quote_text(value(id).name); }

  void add(ReasonCode code, OperatorId at, ValueId about, std::string text) {
    reasons_.push_back({code, at, about, std::move(text)});
  }

  /// What operator i takes from the one before it: the value or view, and its place among the
  /// inputs; -1 if nothing.
  int running_input(OperatorId i) const {
    const std::vector<ValueId>& inputs = op(i).inputs;
    const ValueId before = out(i - 1);
    for (std::size_t k = 0; k < inputs.size(); ++k)
      if (inputs[k] == before || value(inputs[k]).view_of == before) return static_cast<int>(k);
    return -1;
  }

  void check_kind(OperatorId i) {
    switch (op(i).op) {
      case Op::kAttention:
        add(ReasonCode::kAttentionAlone, i, kNoId,
            fmt::format("{} is attention, which runs by itself", name(i)));
        break;
      case Op::kPool:
        add(ReasonCode::kPoolAlone, i, kNoId,
            fmt::format("{} pools rows, which runs by itself", name(i)));
        break;
      case Op::kReshape:
        add(ReasonCode::kNotAStoreMap, i, out(i),
            fmt::format("{} reshapes to {}: no tile's store can", name(i),
                        value(out(i)).shape.to_string()));
        break;
      case Op::kHeadStore:
      case Op::kCacheStore:
      case Op::kRowSquares:
        if (i != last_)
          add(ReasonCode::kNotAStoreMap, i, out(i),
              fmt::format("{} is how a result is stored, but {} comes after it", name(i),
                          name(i + 1)));
        break;
      case Op::kMatmul:
        check_matmul(i);
        break;
      case Op::kLayerNorm:
      case Op::kRmsNorm:
        check_norm(i);
        break;
      default:
        break;
    }
    if (graph::is_compute_intensive(op(i).op) && compute_intensive_ > 2)
      add(ReasonCode::kTooManyMatmuls, i, kNoId,
          fmt::format("{} is one of {} compute-intensive operators, 2 fit a segment", name(i),
                      compute_intensive_));
    if (op(first_).op == Op::kEmbedding && i > first_ && (i > first_ + 1 || !is_norm(i)))
      add(ReasonCode::kEmbeddingTail, i, kNoId,
          fmt::format("{} follows the embedding {}, which takes one norm", name(i), name(first_)));
  }

  void check_matmul(OperatorId i) {
    if (op(first_).op != Op::kMatmul) {
      check_prologue(i);
      return;
    }
    if (i == first_) return;
    const Value& between = value(op(i).inputs[0]);
    const std::int64_t bytes = chain_tile_rows(between.shape[0]) * between.shape[1] *
                               static_cast<std::int64_t>(dtype_bytes(between.dtype));
    if (bytes + kChainStageBytes > limits_.shared_bytes)
      add(ReasonCode::kSharedMemory, i, op(i).inputs[0],
          fmt::format("{} reads {} whole rows of {} columns from shared memory: {} beside {} for "
                      "operands, {} there are",
                      name(i), chain_tile_rows(between.shape[0]), between.shape[1],
                      human_bytes(static_cast<std::uint64_t>(bytes)),
                      human_bytes(static_cast<std::uint64_t>(kChainStageBytes)),
                      human_bytes(static_cast<std::uint64_t>(limits_.shared_bytes))));
  }

  /// Of few rows a norm is computed again by every block of the product behind it.
  void check_prologue(OperatorId i) {
    const std::int64_t rows = value(out(i)).shape[0];
    if (i == first_ + 1 && is_norm(first_) && matmuls_ == 1 && rows <= limits_.prologue_rows)
      return;
    add(ReasonCode::kMatmulNotFirst, i, kNoId,
        fmt::format("{} is a product behind {}: templates fuse what comes after it, and before one "
                    "product a norm of at most {} rows, here {}",
                    name(i), name(first_), limits_.prologue_rows, rows));
  }

  void check_norm(OperatorId i) {
    const std::int64_t columns = value(out(i)).shape[1];
    const std::int64_t limit =
        matmuls_ == 0 || i == first_ ? limits_.row_columns : limits_.gemm_row_columns;
    if (columns > limit)
      add(ReasonCode::kRowTooWide, i, out(i),
          fmt::format("{} needs whole rows of {} columns, {} fit {}", name(i), columns, limit,
                      matmuls_ > 0 ? "the blocks of a product" : "a block"));
    for (OperatorId k = first_; k < i; ++k) {
      if (!is_norm(k)) continue;
      const bool shared = op(k).inputs[0] == op(i).inputs[0];
      add(ReasonCode::kTwoNorms, i, op(i).inputs[0],
          fmt::format("{} and {} are two norms{}", name(k), name(i),
                      shared ? " of " + value_name(op(i).inputs[0]) : std::string()));
    }
  }

  /// The running value must reach operator i, whole, and by one way.
  void check_chain(OperatorId i) {
    if (runs_alone(i)) return;
    if (op(i).layer != op(i - 1).layer)
      add(ReasonCode::kLayerBoundary, i, kNoId,
          fmt::format("{} and {} belong to different layers", name(i - 1), name(i)));
    const int running = running_input(i);
    if (running < 0) {
      add(ReasonCode::kNotAChain, i, out(i - 1),
          fmt::format("{} does not read {}, made right before it", name(i),
                      value_name(out(i - 1))));
      return;
    }
    const bool either = op(i).op == Op::kAdd || op(i).op == Op::kMultiply;
    if (running > 0 && !either)
      add(ReasonCode::kNotAChain, i, out(i - 1),
          fmt::format("{} reads {} as its operand number {}, not as what it works on", name(i),
                      value_name(out(i - 1)), running + 1));
    const ValueId read = op(i).inputs[static_cast<std::size_t>(running)];
    if (read != out(i - 1) && !is_gate(i, read))
      add(ReasonCode::kNotAChain, i, read,
          fmt::format("{} reads columns {} of {}: inside a segment only the halves of a gate are "
                      "told apart",
                      name(i), value_name(read), value_name(out(i - 1))));
  }

  /// Whether `read`, a view, is the half of a product that operator i activates and the next one
  /// multiplies with the other half.
  bool is_gate(OperatorId i, ValueId read) const {
    if (op(i).op != Op::kActivation || i == last_ || op(i + 1).op != Op::kMultiply ||
        matmuls_ == 0 || value(read).view_of == kNoId)
      return false;
    const Value& base = value(value(read).view_of);
    const std::vector<ValueId>& factors = op(i + 1).inputs;
    const ValueId other = factors[0] == out(i) ? factors[1] : factors[0];
    const Value& up = value(other);
    const std::int64_t half = value(read).shape[1];
    return (factors[0] == out(i) || factors[1] == out(i)) && up.view_of == value(read).view_of &&
           base.shape[1] == 2 * half && up.shape[1] == half &&
           value(read).view_column + up.view_column == half &&
           value(read).view_column != up.view_column;
  }

  /// Operands besides the running value.
  void check_operands(OperatorId i) {
    if (runs_alone(i)) return;
    const int running = i == first_ ? 0 : running_input(i);
    const std::vector<ValueId>& inputs = op(i).inputs;
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      if (static_cast<int>(k) == running) continue;
      const Value& operand = value(inputs[k]);
      const bool gate =
          i > first_ + 1 && op(i).op == Op::kMultiply && is_gate(i - 1, op(i - 1).inputs[0]);
      if (inside(operand.producer) && !gate)
        add(ReasonCode::kNotAChain, i, inputs[k],
            fmt::format("{} reads {}, made inside too, besides what it works on", name(i),
                        value_name(inputs[k])));
    }
    if (op(i).op == Op::kAdd || op(i).op == Op::kMultiply) check_broadcast(i, running);
    if (op(i).op == Op::kMatmul || op(i).op == Op::kEmbedding) {
      operands_ = 0;
      return;
    }
    for (std::size_t k = 0; k < inputs.size(); ++k)
      operands_ += static_cast<int>(k) != running && takes_registers(i, inputs[k]);
    if (operands_ > limits_.epilogue_operands)
      add(ReasonCode::kRegisters, i, kNoId,
          fmt::format("{} is the step that reads operand {}, registers hold {}", name(i), operands_,
                      limits_.epilogue_operands));
  }

  /// Whether a thread holds elements of the operand: not of a number for each row, nor of what is
  /// only written.
  bool takes_registers(OperatorId i, ValueId operand) const {
    return value(operand).dtype != DType::kInt32 && value(out(i)).overwrites != operand &&
           op(i).op != Op::kRmsScale;
  }

  void check_broadcast(OperatorId i, int running) {
    if (running < 0) return;
    const ValueId operand = op(i).inputs[static_cast<std::size_t>(1 - running)];
    const Dims& result = value(out(i)).shape;
    const Dims& working = value(op(i).inputs[static_cast<std::size_t>(running)]).shape;
    const Dims& shape = value(operand).shape;
    const bool row_scale = op(i).op == Op::kMultiply && shape == Dims({result[0], 1});
    if (working == result && (shape == result || row_scale)) return;
    const bool here = working == result;
    add(ReasonCode::kBroadcast, i, here ? operand : op(i).inputs[static_cast<std::size_t>(running)],
        fmt::format("{} broadcasts {} of shape {} to {}; a segment takes whole matrices{}", name(i),
                    value_name(here ? operand : op(i).inputs[static_cast<std::size_t>(running)]),
                    (here ? shape : working).to_string(), result.to_string(),
                    op(i).op == Op::kMultiply ? " and one factor a row" : ""));
  }

  /// What operator i < last_ makes is not stored, so that nobody else may need it.
  void check_interior(OperatorId i) {
    const ValueId id = out(i);
    if (is_stored_beside(i)) {
      check_alias(i, id);
      return;
    }
    for (const OperatorId reader : value(id).consumers)
      if (!inside(reader))
        add(ReasonCode::kOtherConsumer, i, id,
            fmt::format("{} is read by {} too, outside of the segment", value_name(id),
                        name(reader)));
    for (std::size_t v = 0; v < graph_.values().size(); ++v) {
      const Value& other = graph_.values()[v];
      const bool same = static_cast<ValueId>(v) == id || other.view_of == id;
      if (same && other.live_out)
        add(ReasonCode::kLiveOut, i, static_cast<ValueId>(v),
            fmt::format("{} is a result of the graph", quote_text(other.name)));
    }
    check_alias(i, id);
  }

  /// Who sums up squares stores what they are of, a product too. A row kernel stores the sum that
  /// its norm reads, and the rows whose keys and values go to a cache, where somebody else needs
  /// them; a product of few rows does the latter, too.
  bool is_stored_beside(OperatorId i) const {
    if (op(i + 1).inputs[0] != out(i)) return false;
    if (op(i + 1).op == Op::kRowSquares) return true;
    if (matmuls_ > 0)
      return matmuls_ == 1 && op(i + 1).op == Op::kCacheStore &&
             value(out(i)).shape[0] <= limits_.prologue_rows;
    return op(first_).op != Op::kEmbedding && (is_norm(i + 1) || op(i + 1).op == Op::kCacheStore);
  }

  void check_alias(OperatorId i, ValueId id) {
    if (value(id).overwrites != kNoId)
      add(ReasonCode::kAlias, i, id,
          fmt::format("{} is written over {}, and must be", value_name(id),
                      value_name(value(id).overwrites)));
    for (std::size_t v = 0; v < graph_.values().size(); ++v)
      if (graph_.values()[v].overwrites == id)
        add(ReasonCode::kAlias, i, id,
            fmt::format("{} lends its memory to {}", value_name(id),
                        quote_text(graph_.values()[v].name)));
  }

  /// The result may lie over an operand only where each element is read by who writes it.
  void check_overlap() {
    const ValueId target = value(out(last_)).overwrites;
    if (target == kNoId) return;
    const ValueId memory = graph_.storage(target);
    bool moves = false;  // elements are written elsewhere than they are read
    for (OperatorId i = first_; i <= last_; ++i)
      moves = moves || op(i).op == Op::kRope || op(i).op == Op::kHeadStore ||
              op(i).op == Op::kCacheStore;
    for (OperatorId i = first_; i <= last_; ++i)
      for (std::size_t k = 0; k < op(i).inputs.size(); ++k) {
        const ValueId read = op(i).inputs[k];
        if (inside(value(read).producer) || graph_.storage(read) != memory) continue;
        if (op(i).op == Op::kCacheStore && k == 2) continue;  // nothing of it is read
        const bool elementwise = op(i).op == Op::kAdd || op(i).op == Op::kMultiply ||
                                 (i == first_ && k == 0 && matmuls_ == 0);
        if (elementwise && !moves && value(read).view_of == kNoId &&
            value(read).shape == value(out(last_)).shape)
          continue;
        add(ReasonCode::kOverlap, i, read,
            fmt::format("{} overwrites {}, which {} reads", value_name(out(last_)),
                        value_name(read), name(i)));
      }
  }

  const Graph& graph_;
  const OperatorId first_, last_;
  const Limits& limits_;
  int matmuls_ = 0, compute_intensive_ = 0;
  int operands_ = 0;  ///< of the steps since the last product
  std::vector<Reason> reasons_;
};

}  // namespace

std::string_view to_string(ReasonCode code) {
  switch (code) {
    case ReasonCode::kNotAChain:
      return "not_a_chain";
    case ReasonCode::kLayerBoundary:
      return "layer_boundary";
    case ReasonCode::kOtherConsumer:
      return "other_consumer";
    case ReasonCode::kLiveOut:
      return "live_out";
    case ReasonCode::kAlias:
      return "alias";
    case ReasonCode::kOverlap:
      return "overlap";
    case ReasonCode::kBroadcast:
      return "broadcast";
    case ReasonCode::kTooManyMatmuls:
      return "too_many_matmuls";
    case ReasonCode::kMatmulNotFirst:
      return "matmul_not_first";
    case ReasonCode::kRowTooWide:
      return "row_too_wide";
    case ReasonCode::kSharedMemory:
      return "shared_memory";
    case ReasonCode::kRegisters:
      return "registers";
    case ReasonCode::kNotAStoreMap:
      return "not_a_store_map";
    case ReasonCode::kAttentionAlone:
      return "attention_alone";
    case ReasonCode::kTwoNorms:
      return "two_norms";
    case ReasonCode::kEmbeddingTail:
      return "embedding_tail";
    case ReasonCode::kPoolAlone:
      return "pool_alone";
  }
  throw_error(ErrorCode::kInternal, "reason {} has no name", static_cast<int>(code));
}

std::vector<Reason> legality(const Graph& graph, OperatorId first, OperatorId last,
                             const Limits& limits) {
  STOF_CHECK(first >= 0 && first <= last && last < graph.num_operators(), kInvalidArgument,
             "segment: expected operators within 0 to {}, got {} to {}", graph.num_operators() - 1,
             first, last);
  return Legality(graph, first, last, limits).find();
}

}  // namespace stof::fusion
