#pragma once
// A model as a list of operators over typed values: what fusion cuts up and execution runs.
//
// A graph is in SSA form: every value is made once, by the operator that has it among its outputs,
// or bound from outside. Operators stand in topological order. Rows are concrete: a graph is for
// one number of rows (tokens of a batch) and is cheap to build.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stof/fingerprint.h"
#include "stof/tensor.h"

namespace stof {
class Hasher;
}

namespace stof::graph {

using ValueId = int;     ///< index into Graph::values()
using OperatorId = int;  ///< index into Graph::operators()
inline constexpr int kNoId = -1;

enum class ValueKind : std::uint8_t {
  kInput,       ///< bound at every run
  kWeight,      ///< bound once
  kState,       ///< kept from run to run by who runs the graph, which updates it in place
  kActivation,  ///< made by an operator, or a view of such a value
};

struct Value {
  std::string name;
  ValueKind kind = ValueKind::kActivation;
  DType dtype = DType::kFloat32;
  Dims shape;                   ///< activations: [rows, columns]; weights: [out, in] or [width]
  OperatorId producer = kNoId;  ///< of a view: its base's; kNoId for inputs and weights
  std::vector<OperatorId> consumers;  ///< ascending: who reads it or a view of it
  bool live_out = false;              ///< a result of the graph, read after the last operator
  ValueId view_of = kNoId;            ///< a range of that value's columns; owns no memory
  std::int64_t view_column = 0;       ///< its first column there
  ValueId overwrites = kNoId;         ///< made in that value's memory (an update in place)
};

enum class Op : std::uint8_t {
  /// ids int32 [rows], words [vocabulary, width] (, positions int32 [rows], places [n, width]
  /// (, segments [n, width])) -> [rows, width]: words[ids] + places[positions] + segments[0].
  kEmbedding,
  kMatmul,      ///< x [rows, in], weight [out, in] -> x weight^T [rows, out]; compute-intensive
  kBias,        ///< x [rows, n], bias [n] -> x + bias
  kActivation,  ///< x -> Attributes::activation of x
  kAdd,         ///< a, b -> a + b; b's shape is a's, or has extents of 1 (broadcast)
  kMultiply,    ///< a, b -> a * b; as kAdd
  kLayerNorm,   ///< x [rows, n], gamma [n], beta [n] -> (x - mean) / sqrt(variance + epsilon) ...
  kRmsNorm,     ///< x [rows, n], gamma [n] -> x / sqrt(mean of squares + epsilon) * gamma
  /// x [rows, (heads + 2 kv_heads) head_dim] (queries, keys, values), positions int32 [rows],
  /// frequencies float32 [head_dim / 2], radians a position -> x with queries and keys rotated:
  /// (x[i], x[i + head_dim/2]) by position frequencies[i], a product that is rounded to float32 as
  /// models are trained with.
  kRope,
  /// x as kRope's, gammas of queries and of keys, [head_dim] each -> x with every head of queries
  /// and of keys under an RMSNorm of its own.
  kHeadNorm,
  /// q [rows, heads head_dim], k and v [rows, kv_heads head_dim] (, table float32 [buckets, heads])
  /// -> [rows, heads head_dim]. Masks, and which rows make a sequence, are bound by who runs the
  /// graph; operators with the same Attributes::mask share one, and are alike in all else. Where k
  /// and v are columns of a cache, they have its rows, and who runs the graph binds which of them
  /// are a sequence's keys (CachePages); queries are then its last tokens, or, of cross-attention,
  /// have no place among the keys. A table adds to the score of a key its row of the distance's
  /// bucket (PositionBias).
  kAttention,
  kHeadStore,  ///< x [rows, heads head_dim] -> [heads, rows, head_dim]
  /// x as kRope's, slots int32 [rows], cache [size, 2 kv_heads head_dim] -> the cache, written over
  /// it: its row slots[r] has the keys and values of x's row r. Slots differ; a row with a negative
  /// one is not stored.
  kCacheStore,
  kReshape,  ///< the same elements in row-major order under another shape
  /// x [rows, n], n a multiple of 64 -> float32 [rows, n / 32]: sums of squares, of 32 columns
  /// each.
  kRowSquares,
  /// x [rows, n], squares of rows of any width, float32 [rows, m] -> x / sqrt(their sum / (32 m) +
  /// epsilon): an RMSNorm that was deferred until behind its product.
  kRmsScale,
  kPool,  ///< x [rows, n], offsets int32 [texts + 1] -> [texts, n]: Attributes::pooling
};

enum class Activation : std::uint8_t {
  kNone,
  kRelu,
  kGeluErf,   ///< x/2 (1 + erf(x / sqrt 2))
  kGeluTanh,  ///< x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
  kSilu,      ///< x / (1 + exp(-x))
};

enum class Pooling : std::uint8_t { kNone, kMean, kCls, kMax };

/// What an operator does besides what its values tell; a field that plays no part is 0.
struct Attributes {
  Activation activation = Activation::kNone;  ///< kActivation
  double epsilon = 0;                         ///< kLayerNorm, kRmsNorm, kRmsScale, kHeadNorm
  std::int64_t heads = 0;                     ///< kRope, kHeadNorm, kAttention, kHeadStore,
                                              ///< kCacheStore (0: rows without queries)
  std::int64_t kv_heads = 0;                  ///< as heads, but kHeadStore; divides heads
  std::int64_t head_dim = 0;                  ///< as heads
  double scale = 0;                           ///< kAttention: of q k^T; 0: 1/sqrt(head_dim)
  int mask = 0;                               ///< kAttention: which of the masks that are bound
  bool cross = false;             ///< kAttention: keys of other sequences, in a cache of their own
  bool bidirectional = false;     ///< kAttention with a table: PositionBias::bidirectional
  std::int64_t max_distance = 0;  ///< kAttention with a table: PositionBias::max_distance
  Pooling pooling = Pooling::kNone;  ///< kPool

  bool operator==(const Attributes&) const = default;
};

/// Adds to a content hash what decides how an operator is run: every field but the mask, which is
/// known when the graph runs.
void add_attributes(Hasher& hasher, const Attributes& attributes);

struct Operator {
  Op op = Op::kMatmul;
  std::string name;   ///< "layer.3.attention_output"
  int layer = kNoId;  ///< kNoId: outside of the repeated layers
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;  ///< each is rounded to its dtype, unless a fused segment keeps it
  Attributes attributes;
};

std::string_view to_string(Op op);                  ///< "layer_norm"
std::string_view to_string(Activation activation);  ///< "gelu_erf"
std::string_view to_string(Pooling pooling);
std::string_view to_string(ValueKind kind);

/// Columns that one of kRowSquares' sums is of.
inline constexpr std::int64_t kSquaredColumns = 32;

/// Whether fusion counts it against the limit of compute-intensive operators a segment. Attention
/// is as well, and stands alone.
bool is_compute_intensive(Op op);

/// An immutable value; accumulation and statistics are in float32 or better wherever it runs.
class Graph {
 public:
  /// Takes the parts as they are; validate() tells whether they make a graph. GraphBuilder is the
  /// usual way.
  Graph(std::vector<Value> values, std::vector<Operator> operators);

  const std::vector<Value>& values() const { return values_; }
  const std::vector<Operator>& operators() const { return operators_; }
  /// Throw InvalidArgument naming the id and how many there are.
  const Value& value(ValueId id) const;
  const Operator& op(OperatorId id) const;

  int num_operators() const { return static_cast<int>(operators_.size()); }
  int num_layers() const;
  /// Masks that who runs the graph binds: one more than the largest Attributes::mask; 0 without
  /// attention.
  int num_masks() const;
  /// First and last operator of a layer. Throws InvalidArgument for a layer that is not there.
  std::pair<OperatorId, OperatorId> layer_range(int layer) const;
  /// The value of that name, or kNoId.
  ValueId find(std::string_view name) const;
  /// The value whose memory holds `id`: the base of a view, the overwritten value of an update in
  /// place, else itself.
  ValueId storage(ValueId id) const;
  /// Whether the value lies in a state's memory.
  bool in_state(ValueId id) const { return value(storage(id)).kind == ValueKind::kState; }
  /// Ids of all values of a kind, of live-outs; ascending.
  std::vector<ValueId> of_kind(ValueKind kind) const;
  std::vector<ValueId> live_outs() const;

  /// Throws InvalidArgument naming operator and value, what was expected and what was got.
  void validate() const;
  /// "graph of 170 operators in 12 layers, 200 inputs and weights, 1 result"
  std::string describe() const;
  /// One line an operator: "%7 = layer_norm %6, gamma, beta {epsilon 1e-12} : bfloat16[128, 768]".
  std::string print() const;
  std::string to_json() const;
  /// Of everything, names included; fusion::segment_hash leaves names out.
  Fingerprint fingerprint() const;

 private:
  std::vector<Value> values_;
  std::vector<Operator> operators_;
};

/// Makes a graph operator by operator; every call infers the shape of what it returns, and throws
/// InvalidArgument naming operator and value where something does not fit. Names of operators are
/// unique; the output of an operator has its name.
class GraphBuilder {
 public:
  ValueId input(const std::string& name, DType dtype, const Dims& shape);
  ValueId weight(const std::string& name, DType dtype, const Dims& shape);
  ValueId state(const std::string& name, DType dtype, const Dims& shape);

  /// Matrices are of x's dtype; vectors (bias, gamma, beta) of x's or float32. Results are of the
  /// first operand's dtype.
  ValueId embedding(const std::string& name, ValueId ids, ValueId words, ValueId positions = kNoId,
                    ValueId places = kNoId, ValueId segments = kNoId);
  ValueId matmul(const std::string& name, ValueId x, ValueId weight);
  ValueId bias(const std::string& name, ValueId x, ValueId bias);
  ValueId activation(const std::string& name, ValueId x, Activation activation);
  ValueId add(const std::string& name, ValueId a, ValueId b);
  ValueId multiply(const std::string& name, ValueId a, ValueId b);
  ValueId layer_norm(const std::string& name, ValueId x, ValueId gamma, ValueId beta,
                     double epsilon);
  ValueId rms_norm(const std::string& name, ValueId x, ValueId gamma, double epsilon);
  ValueId rope(const std::string& name, ValueId x, ValueId positions, ValueId frequencies,
               std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim);
  ValueId head_norm(const std::string& name, ValueId x, ValueId query_gamma, ValueId key_gamma,
                    std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
                    double epsilon);
  ValueId attention(const std::string& name, ValueId q, ValueId k, ValueId v, std::int64_t heads,
                    std::int64_t kv_heads, std::int64_t head_dim, double scale = 0, int mask = 0);
  /// `table`: kNoId for none; of the attributes those of kAttention count.
  ValueId attention(const std::string& name, ValueId q, ValueId k, ValueId v, ValueId table,
                    const Attributes& attributes);
  ValueId head_store(const std::string& name, ValueId x, std::int64_t heads, std::int64_t head_dim);
  /// The cache after it; `cache` itself is read by nothing later.
  ValueId cache_store(const std::string& name, ValueId x, ValueId slots, ValueId cache,
                      std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim);
  ValueId reshape(const std::string& name, ValueId x, const Dims& shape);
  ValueId row_squares(const std::string& name, ValueId x);
  ValueId rms_scale(const std::string& name, ValueId x, ValueId squares, double epsilon);
  ValueId pool(const std::string& name, ValueId x, ValueId offsets, Pooling pooling);

  /// Columns [column, column + count) of a matrix; no operator, no copy.
  ValueId columns(const std::string& name, ValueId base, std::int64_t column, std::int64_t count);
  void mark_live_out(ValueId value);
  /// `value`, an activation, is written over `target`'s memory: same dtype and shape, and nothing
  /// reads `target` after the operator that makes `value`.
  void overwrite(ValueId value, ValueId target);

  /// Operators made between these two are layer 0; its names and weights start with "layer.0.".
  void begin_layer(ValueId input);
  void end_layer(ValueId output);
  /// Appends the layer count - 1 times more, each reading the output of the one before where the
  /// first read its input, with weights of its own; returns the last output. Attention of layer i
  /// is under mask `masks[i]`, without under the first layer's.
  ValueId stamp_layers(int count, const std::vector<int>& masks = {});

  /// Validates. The builder is empty afterwards.
  Graph build();

 private:
  ValueId add_value(Value value);
  ValueId append(Operator op, const Dims& stated = {});
  Value& at(ValueId id);

  std::vector<Value> values_;
  std::vector<Operator> operators_;
  int layer_ = kNoId;
  ValueId layer_input_ = kNoId, layer_output_ = kNoId;
  struct Place {
    std::size_t values = 0, operators = 0;
  };
  Place layer_begin_, layer_end_;
};

}  // namespace stof::graph
