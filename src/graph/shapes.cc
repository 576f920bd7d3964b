#include "graph/shapes.h"

#include "core/check.h"
#include "core/text.h"

namespace stof::graph {
namespace {

bool is_float(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

/// One operator's inputs, checked with messages that name operator and value.
class Checker {
 public:
  Checker(const std::vector<Value>& values, const Operator& op) : values_(values), op_(op) {}

  [[noreturn]] void refuse(const std::string& what, const std::string& expected,
                           const std::string& got) const {
    throw_error(ErrorCode::kInvalidArgument, "operator {} ({}): {}: expected {}, got {}",
                quote_text(op_.name), to_string(op_.op), what, expected, got);
  }

  void count(std::size_t least, std::size_t most) const {
    const std::size_t got = op_.inputs.size();
    if (got >= least && got <= most) return;
    refuse("inputs",
           least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most),
           fmt::format("{}", got));
  }

  const Value& input(std::size_t i) const {
    return values_[static_cast<std::size_t>(op_.inputs[i])];
  }

  [[noreturn]] void refuse(std::size_t i, const std::string& expected) const {
    const Value& value = input(i);
    refuse(fmt::format("value {}", quote_text(value.name)), expected,
           fmt::format("{}{}", to_string(value.dtype), value.shape.to_string()));
  }

  /// Whether it lies in a state's memory.
  bool in_state(std::size_t i) const {
    ValueId id = op_.inputs[i];
    for (;;) {
      const Value& value = values_[static_cast<std::size_t>(id)];
      if (value.view_of == kNoId && value.overwrites == kNoId)
        return value.kind == ValueKind::kState;
      id = value.view_of != kNoId ? value.view_of : value.overwrites;
    }
  }

  /// A matrix of floats.
  const Value& matrix(std::size_t i) const {
    const Value& value = input(i);
    if (!is_float(value.dtype) || value.shape.rank() != 2)
      refuse(i, "a matrix of float32, float16 or bfloat16");
    return value;
  }

  void of(std::size_t i, DType dtype, const Dims& shape) const {
    const Value& value = input(i);
    if (value.dtype != dtype || !(value.shape == shape))
      refuse(i, fmt::format("{}{}", to_string(dtype), shape.to_string()));
  }

  /// A vector of x's type or float32: norms and what they add keep float32 beside 16-bit rows.
  void vector(std::size_t i, DType dtype, std::int64_t width) const {
    const Value& value = input(i);
    if ((value.dtype != dtype && value.dtype != DType::kFloat32) || !(value.shape == Dims({width})))
      refuse(i, fmt::format("{} or float32 [{}]", to_string(dtype), width));
  }

  void attribute(const char* name, std::int64_t value, std::int64_t least) const {
    if (value < least) refuse(name, fmt::format("at least {}", least), fmt::format("{}", value));
  }

 private:
  const std::vector<Value>& values_;
  const Operator& op_;
};

Dims embedding(const Checker& check, std::size_t inputs) {
  check.count(2, 5);
  if (inputs == 3) check.refuse("inputs", "positions with their table", "positions alone");
  if (check.input(0).shape.rank() != 1) check.refuse(0, "int32 [rows]");
  const std::int64_t rows = check.input(0).shape[0];
  check.of(0, DType::kInt32, {rows});
  const Value& words = check.matrix(1);
  const std::int64_t width = words.shape[1];
  if (inputs >= 4) check.of(2, DType::kInt32, {rows});
  for (std::size_t i = 3; i < inputs; ++i) {
    const Value& table = check.matrix(i);
    if (table.dtype != words.dtype || table.shape[1] != width || table.shape[0] < 1)
      check.refuse(i, fmt::format("{}[at least 1, {}]", to_string(words.dtype), width));
  }
  return {rows, width};
}

Dims matmul(const Checker& check) {
  check.count(2, 2);
  const Value& x = check.matrix(0);
  const Value& weight = check.matrix(1);
  if (weight.dtype != x.dtype || weight.shape[1] != x.shape[1])
    check.refuse(1, fmt::format("{}[out, {}]", to_string(x.dtype), x.shape[1]));
  return {x.shape[0], weight.shape[0]};
}

Dims elementwise(const Checker& check) {
  check.count(2, 2);
  const Value& a = check.matrix(0);
  const Value& b = check.matrix(1);
  const bool fits = b.dtype == a.dtype && (b.shape[0] == a.shape[0] || b.shape[0] == 1) &&
                    (b.shape[1] == a.shape[1] || b.shape[1] == 1);
  if (!fits)
    check.refuse(1,
                 fmt::format("{}{}, or an extent of 1", to_string(a.dtype), a.shape.to_string()));
  return a.shape;
}

void epsilon(const Checker& check, const Attributes& attributes) {
  if (!(attributes.epsilon >= 0 && attributes.epsilon < 1))
    check.refuse("epsilon", "at least 0 and below 1", fmt::format("{}", attributes.epsilon));
}

Dims norm(const Checker& check, const Operator& op) {
  const bool layer = op.op == Op::kLayerNorm;
  check.count(layer ? 3 : 2, layer ? 3 : 2);
  const Value& x = check.matrix(0);
  for (std::size_t i = 1; i < op.inputs.size(); ++i) check.vector(i, x.dtype, x.shape[1]);
  epsilon(check, op.attributes);
  return x.shape;
}

void heads(const Checker& check, const Attributes& attributes, std::int64_t least = 1) {
  check.attribute("heads", attributes.heads, least);
  check.attribute("kv_heads", attributes.kv_heads, 1);
  check.attribute("head_dim", attributes.head_dim, 1);
  if (attributes.heads % attributes.kv_heads != 0)
    check.refuse("kv_heads", fmt::format("a divisor of heads, {}", attributes.heads),
                 fmt::format("{}", attributes.kv_heads));
}

/// Queries, keys and values side by side.
const Value& heads_side_by_side(const Checker& check, const Attributes& attributes,
                                std::int64_t least_heads) {
  check.count(3, 3);
  heads(check, attributes, least_heads);
  const Value& x = check.matrix(0);
  const std::int64_t columns = (attributes.heads + 2 * attributes.kv_heads) * attributes.head_dim;
  if (x.shape[1] != columns) check.refuse(0, fmt::format("{} columns", columns));
  return x;
}

Dims head_norm(const Checker& check, const Attributes& attributes) {
  const Value& x = heads_side_by_side(check, attributes, 1);
  for (const std::size_t i : {std::size_t{1}, std::size_t{2}})
    check.vector(i, x.dtype, attributes.head_dim);
  epsilon(check, attributes);
  return x.shape;
}

/// The same, and a number for each row.
const Value& heads_of_rows(const Checker& check, const Attributes& attributes,
                           std::int64_t least_heads) {
  const Value& x = heads_side_by_side(check, attributes, least_heads);
  check.of(1, DType::kInt32, {x.shape[0]});
  return x;
}

Dims rope(const Checker& check, const Attributes& attributes) {
  const Value& x = heads_of_rows(check, attributes, 1);
  if (attributes.head_dim % 2 != 0)
    check.refuse("head_dim", "an even number", fmt::format("{}", attributes.head_dim));
  check.of(2, DType::kFloat32, {attributes.head_dim / 2});
  return x.shape;
}

Dims cache_store(const Checker& check, const Attributes& attributes) {
  const Value& x = heads_of_rows(check, attributes, 0);
  const Value& cache = check.matrix(2);
  const std::int64_t columns = 2 * attributes.kv_heads * attributes.head_dim;
  if (cache.dtype != x.dtype || cache.shape[1] != columns)
    check.refuse(2, fmt::format("{}[size, {}]", to_string(x.dtype), columns));
  return cache.shape;
}

/// A table of biases, and what only counts with one.
void position_table(const Checker& check, const Attributes& attributes, bool there) {
  if (!there) {
    if (attributes.bidirectional) check.refuse("bidirectional", "a table with it", "none");
    if (attributes.max_distance != 0) check.refuse("max_distance", "a table with it", "none");
    return;
  }
  const Value& table = check.input(3);
  const std::int64_t buckets = table.shape.rank() == 2 ? table.shape[0] : 0;
  const std::int64_t sides = attributes.bidirectional ? 2 : 1;
  if (table.dtype != DType::kFloat32 || buckets < 2 * sides || buckets % sides != 0 ||
      table.shape[1] != attributes.heads)
    check.refuse(
        3, fmt::format("float32[{}, {}]", sides == 2 ? "an even number from 4 on" : "2 or more",
                       attributes.heads));
  check.attribute("max_distance", attributes.max_distance, buckets / sides / 2 + 1);
  if (attributes.cross)
    check.refuse("table", "none with cross-attention, whose queries have no place among the keys",
                 "one");
}

Dims attention(const Checker& check, const Attributes& attributes, bool has_table) {
  check.count(3, 4);
  heads(check, attributes);
  const Value& q = check.matrix(0);
  const std::int64_t columns = attributes.heads * attributes.head_dim;
  if (q.shape[1] != columns) check.refuse(0, fmt::format("{} columns", columns));
  // Keys and values of the rows themselves, or a cache's.
  const std::int64_t keys = check.in_state(1) ? check.matrix(1).shape[0] : q.shape[0];
  for (const std::size_t i : {std::size_t{1}, std::size_t{2}})
    check.of(i, q.dtype, {keys, attributes.kv_heads * attributes.head_dim});
  if (check.in_state(1) != check.in_state(2))
    check.refuse("values", "columns of a cache, as the keys are", "others");
  if (attributes.cross && !check.in_state(1))
    check.refuse("cross", "keys and values of a cache", "others");
  position_table(check, attributes, has_table);
  if (!(attributes.scale >= 0))
    check.refuse("scale", "at least 0", fmt::format("{}", attributes.scale));
  check.attribute("mask", attributes.mask, 0);
  return q.shape;
}

Dims head_store(const Checker& check, const Attributes& attributes) {
  check.count(1, 1);
  check.attribute("heads", attributes.heads, 1);
  const Value& x = check.matrix(0);
  if (attributes.heads * attributes.head_dim != x.shape[1])
    check.refuse(0, fmt::format("a multiple of {} heads as columns", attributes.heads));
  return {attributes.heads, x.shape[0], attributes.head_dim};
}

Dims reshape(const Checker& check, const Dims& stated) {
  check.count(1, 1);
  const Value& x = check.input(0);
  if (!is_float(x.dtype)) check.refuse(0, "float32, float16 or bfloat16");
  if (x.view_of != kNoId) check.refuse(0, "a value with memory of its own, no view");
  if (num_elements(x.shape) != num_elements(stated))
    check.refuse(0, fmt::format("as many elements as {}", stated.to_string()));
  return stated;
}

Dims row_squares(const Checker& check) {
  check.count(1, 1);
  const Dims& shape = check.matrix(0).shape;
  if (shape[1] % (2 * kSquaredColumns) != 0)
    check.refuse(0, fmt::format("a multiple of {} columns", 2 * kSquaredColumns));
  return {shape[0], shape[1] / kSquaredColumns};
}

Dims rms_scale(const Checker& check, const Operator& op) {
  check.count(2, 2);
  const Dims& x = check.matrix(0).shape;
  const Value& squares = check.matrix(1);
  if (squares.dtype != DType::kFloat32 || squares.shape[0] != x[0] || squares.shape[1] % 2 != 0)
    check.refuse(1, fmt::format("float32[{}, an even number], sums of squares", x[0]));
  epsilon(check, op.attributes);
  return x;
}

Dims pool(const Checker& check, const Attributes& attributes) {
  check.count(2, 2);
  const Value& x = check.matrix(0);
  const Value& offsets = check.input(1);
  if (offsets.dtype != DType::kInt32 || offsets.shape.rank() != 1 || offsets.shape[0] < 2)
    check.refuse(1, "int32 [texts + 1]");
  if (attributes.pooling == Pooling::kNone) check.refuse("pooling", "mean, cls or max", "none");
  return {offsets.shape[0] - 1, x.shape[1]};
}

}  // namespace

Dims infer_shape(const std::vector<Value>& values, const Operator& op, const Dims& stated) {
  const Checker check(values, op);
  switch (op.op) {
    case Op::kEmbedding:
      return embedding(check, op.inputs.size());
    case Op::kMatmul:
      return matmul(check);
    case Op::kBias: {
      check.count(2, 2);
      const Value& x = check.matrix(0);
      check.vector(1, x.dtype, x.shape[1]);
      return x.shape;
    }
    case Op::kActivation:
      check.count(1, 1);
      if (op.attributes.activation == Activation::kNone)
        check.refuse("activation", "relu, gelu_erf, gelu_tanh or silu", "none");
      return check.matrix(0).shape;
    case Op::kAdd:
    case Op::kMultiply:
      return elementwise(check);
    case Op::kLayerNorm:
    case Op::kRmsNorm:
      return norm(check, op);
    case Op::kRope:
      return rope(check, op.attributes);
    case Op::kHeadNorm:
      return head_norm(check, op.attributes);
    case Op::kAttention:
      return attention(check, op.attributes, op.inputs.size() > 3);
    case Op::kHeadStore:
      return head_store(check, op.attributes);
    case Op::kCacheStore:
      return cache_store(check, op.attributes);
    case Op::kReshape:
      return reshape(check, stated);
    case Op::kPool:
      return pool(check, op.attributes);
    case Op::kRowSquares:
      return row_squares(check);
    case Op::kRmsScale:
      return rms_scale(check, op);
  }
  throw_error(ErrorCode::kInternal, "operator kind {} has no shape", static_cast<int>(op.op));
}

DType infer_dtype(const std::vector<Value>& values, const Operator& op) {
  if (op.op == Op::kRowSquares) return DType::kFloat32;
  const std::size_t source = op.op == Op::kEmbedding ? 1 : 0;
  STOF_CHECK(op.inputs.size() > source, kInvalidArgument,
             "operator {} ({}): inputs: expected more than {}, got {}", quote_text(op.name),
             to_string(op.op), source, op.inputs.size());
  return values[static_cast<std::size_t>(op.inputs[source])].dtype;
}

}  // namespace stof::graph
