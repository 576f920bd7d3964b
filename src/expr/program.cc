#include "expr/program.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"

namespace stof::expr {
namespace {

using I = std::int64_t;
constexpr std::size_t kLanes = Program::kLanes;

/// The element's number along one dimension, or -1 outside: an index below 0 counts from the end.
I wrapped(I index, I extent) {
  const I place = index < 0 ? index + extent : index;
  return place >= 0 && place < extent ? place : -1;
}

template <class Load>
void with_loader(const TensorView& table, Load&& visit) {
  const auto read = [&]<class T>(T*, auto convert) {
    const T* data = static_cast<const T*>(table.data);
    visit([data, convert](I offset) { return convert(data[offset]); });
  };
  const auto whole = [](auto x) { return static_cast<I>(x); };
  const auto real = [](auto x) { return static_cast<float>(x); };
  switch (table.dtype) {
    case DType::kBool:
      return read(static_cast<std::uint8_t*>(nullptr), [](auto x) { return I{x != 0}; });
    case DType::kInt8:
      return read(static_cast<std::int8_t*>(nullptr), whole);
    case DType::kInt16:
      return read(static_cast<std::int16_t*>(nullptr), whole);
    case DType::kInt32:
      return read(static_cast<std::int32_t*>(nullptr), whole);
    case DType::kInt64:
      return read(static_cast<std::int64_t*>(nullptr), whole);
    case DType::kFloat16:
      return read(static_cast<Float16*>(nullptr), real);
    case DType::kBFloat16:
      return read(static_cast<BFloat16*>(nullptr), real);
    case DType::kFloat32:
      return read(static_cast<float*>(nullptr), real);
    default:
      throw_error(ErrorCode::kInternal, "a table of {}; please report it", to_string(table.dtype));
  }
}

Value read_table(const Node& node, const TensorView& table, const Value* values) {
  Value out;
  I offset = 0;
  for (int d = 0; d < node.num_args; ++d) {
    const I place = wrapped(values[node.args[static_cast<std::size_t>(d)]].i, table.shape[d]);
    if (place < 0) return out;
    offset += place * table.strides[d];
  }
  with_loader(table, [&](auto load) {
    if constexpr (std::is_same_v<decltype(load(0)), float>)
      out.f = load(offset);
    else
      out.i = load(offset);
  });
  return out;
}

Value leaf(const Node& node, float score, I b, I h, I q, I k) {
  switch (node.op) {
    case Op::kConstant:
      return {node.integer, node.real};
    case Op::kScore:
      return {0, score};
    case Op::kBatch:
      return {b, 0};
    case Op::kHead:
      return {h, 0};
    case Op::kQuery:
      return {q, 0};
    default:
      return {k, 0};
  }
}

Value evaluate_node(const Expression& expression, const Node& node, const Value* values,
                    std::span<const TensorView> tables) {
  if (node.op == Op::kTable)
    return read_table(node, tables[static_cast<std::size_t>(node.integer)], values);
  Value operands[3];  // no operation has more
  for (std::size_t i = 0; i < 3; ++i)
    if (i < node.num_args) operands[i] = values[node.args[i]];
  return apply(node, expression.nodes()[static_cast<std::size_t>(node.operands().back())].type,
               operands);
}

/// The lanes of one row: where the operands of a vertex lie.
struct Lanes {
  const std::vector<std::int32_t>& slot;
  Program::Scratch& scratch;

  I* ints(std::int32_t node) const {
    return scratch.ints.data() + slot[static_cast<std::size_t>(node)] * Program::kLanes;
  }
  float* floats(std::int32_t node) const {
    return scratch.reals.data() + slot[static_cast<std::size_t>(node)] * Program::kLanes;
  }
  std::uint64_t& mask(std::int32_t node) const {
    return scratch.masks[static_cast<std::size_t>(node)];
  }
};

template <class T, class F>
std::uint64_t compare_lanes(const T* a, const T* b, F f) {
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < kLanes; ++i) bits |= std::uint64_t{f(a[i], b[i])} << i;
  return bits;
}

std::uint64_t combine_masks(Op op, std::uint64_t a, std::uint64_t b) {
  switch (op) {
    case Op::kAnd:
      return a & b;
    case Op::kOr:
      return a | b;
    case Op::kXor:
    case Op::kNotEqual:
      return a ^ b;
    default:
      return ~(a ^ b);
  }
}

/// A vertex whose operands are booleans.
void run_masks(const Lanes& lanes, const Node& node, std::int32_t at) {
  const std::uint64_t a = lanes.mask(node.args[0]);
  if (node.op == Op::kToInt) {
    I* out = lanes.ints(at);
    for (std::size_t i = 0; i < kLanes; ++i) out[i] = static_cast<I>(a >> i & 1);
  } else if (node.op == Op::kNot) {
    lanes.mask(at) = ~a;
  } else {
    lanes.mask(at) = combine_masks(node.op, a, lanes.mask(node.args[1]));
  }
}

void run_ints(const Lanes& lanes, const Node& node, std::int32_t at) {
  const I* a = lanes.ints(node.args[0]);
  if (node.op == Op::kToFloat) {
    float* out = lanes.floats(at);
    for (std::size_t i = 0; i < kLanes; ++i) out[i] = static_cast<float>(a[i]);
  } else if (is_comparison(node.op)) {
    const I* b = lanes.ints(node.args[1]);
    with_comparison(node.op, [&](auto f) { lanes.mask(at) = compare_lanes(a, b, f); });
  } else if (node.num_args == 1) {
    I* out = lanes.ints(at);
    with_int_unary(node.op, [&](auto f) {
      for (std::size_t i = 0; i < kLanes; ++i) out[i] = f(a[i]);
    });
  } else {
    const I* b = lanes.ints(node.args[1]);
    I* out = lanes.ints(at);
    with_int_binary(node.op, [&](auto f) {
      for (std::size_t i = 0; i < kLanes; ++i) out[i] = f(a[i], b[i]);
    });
  }
}

void run_floats(const Lanes& lanes, const Node& node, std::int32_t at) {
  const float* a = lanes.floats(node.args[0]);
  if (node.op == Op::kToInt) {
    I* out = lanes.ints(at);
    for (std::size_t i = 0; i < kLanes; ++i) out[i] = arithmetic::to_int(a[i]);
  } else if (is_comparison(node.op)) {
    const float* b = lanes.floats(node.args[1]);
    with_comparison(node.op, [&](auto f) { lanes.mask(at) = compare_lanes(a, b, f); });
  } else if (node.num_args == 1) {
    float* out = lanes.floats(at);
    with_float_unary(node.op, [&](auto f) {
      for (std::size_t i = 0; i < kLanes; ++i) out[i] = f(a[i]);
    });
  } else {
    const float* b = lanes.floats(node.args[1]);
    float* out = lanes.floats(at);
    with_float_binary(node.op, [&](auto f) {
      for (std::size_t i = 0; i < kLanes; ++i) out[i] = f(a[i], b[i]);
    });
  }
}

void run_where(const Lanes& lanes, const Node& node, std::int32_t at) {
  const std::uint64_t condition = lanes.mask(node.args[0]);
  const auto select = [&](auto* out, const auto* a, const auto* b) {
    for (std::size_t i = 0; i < kLanes; ++i) out[i] = condition >> i & 1 ? a[i] : b[i];
  };
  if (node.type == Type::kBool)
    lanes.mask(at) =
        (condition & lanes.mask(node.args[1])) | (~condition & lanes.mask(node.args[2]));
  else if (node.type == Type::kInt)
    select(lanes.ints(at), lanes.ints(node.args[1]), lanes.ints(node.args[2]));
  else
    select(lanes.floats(at), lanes.floats(node.args[1]), lanes.floats(node.args[2]));
}

void run_table(const Lanes& lanes, const Node& node, std::int32_t at, const TensorView& table) {
  I offsets[kLanes] = {};
  std::uint64_t outside = 0;
  for (int d = 0; d < node.num_args; ++d) {
    const I* index = lanes.ints(node.args[static_cast<std::size_t>(d)]);
    const I extent = table.shape[d], stride = table.strides[d];
    for (std::size_t i = 0; i < kLanes; ++i) {
      const I place = wrapped(index[i], extent);
      outside |= std::uint64_t{place < 0} << i;
      offsets[i] += (place < 0 ? 0 : place) * stride;
    }
  }
  // Outside nothing is read, not even a first element that may not exist.
  with_loader(table, [&](auto load) {
    const auto fill = [&](auto* out) {
      for (std::size_t i = 0; i < kLanes; ++i)
        out[i] = outside >> i & 1 ? decltype(load(0)){} : load(offsets[i]);
    };
    if constexpr (std::is_same_v<decltype(load(0)), float>)
      fill(lanes.floats(at));
    else
      fill(lanes.ints(at));
  });
}

}  // namespace

Program::Program(Expression expression) : expression_(std::move(expression)) {
  const std::span<const Node> nodes = expression_.nodes();
  varying_.resize(nodes.size());
  std::vector<bool> in_lanes(nodes.size());  // varies, or is read by what does
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const auto operands = nodes[i].operands();
    varying_[i] = nodes[i].op == Op::kKey || nodes[i].op == Op::kScore ||
                  std::any_of(operands.begin(), operands.end(), [&](std::int32_t operand) {
                    return varying_[static_cast<std::size_t>(operand)];
                  });
    in_lanes[i] = varying_[i] || i + 1 == nodes.size();
    if (varying_[i])
      for (const std::int32_t operand : operands)
        in_lanes[static_cast<std::size_t>(operand)] = true;
  }
  // A slot is free again after the last user of its vertex; those of a row's constants stay.
  std::vector<std::size_t> last_use(nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    last_use[i] = varying_[i] && i + 1 < nodes.size() ? i : nodes.size();
    for (const std::int32_t operand : nodes[i].operands())
      if (varying_[static_cast<std::size_t>(operand)])
        last_use[static_cast<std::size_t>(operand)] = i;
  }
  slot_.assign(nodes.size(), -1);
  std::vector<std::int32_t> free;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (in_lanes[i] && nodes[i].type != Type::kBool) {
      if (!varying_[i] || free.empty()) {
        slot_[i] = num_slots_++;
      } else {
        slot_[i] = free.back();
        free.pop_back();
      }
    }
    // After this vertex has its own, so that it never writes where it still reads.
    for (const std::int32_t operand : nodes[i].operands()) {
      const auto o = static_cast<std::size_t>(operand);
      if (slot_[o] < 0 || last_use[o] != i) continue;
      free.push_back(slot_[o]);
      last_use[o] = nodes.size();
    }
  }
}

void Program::set_row(Scratch& scratch, std::span<const TensorView> tables, std::int64_t b,
                      std::int64_t h, std::int64_t q) const {
  const std::span<const Node> nodes = expression_.nodes();
  scratch.tables = tables;
  scratch.uniform.resize(std::max(scratch.uniform.size(), nodes.size()));
  scratch.masks.resize(std::max(scratch.masks.size(), nodes.size()));
  const std::size_t size =
      std::max(scratch.ints.size(), static_cast<std::size_t>(num_slots_ * kLanes));
  scratch.ints.resize(size);
  scratch.reals.resize(size);
  const Lanes lanes{slot_, scratch};
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (varying_[i]) continue;
    const Node& node = nodes[i];
    const bool is_leaf = node.num_args == 0 && node.op != Op::kTable;
    const Value value = is_leaf ? leaf(node, 0, b, h, q, 0)
                                : evaluate_node(expression_, node, scratch.uniform.data(), tables);
    scratch.uniform[i] = value;
    if (node.type == Type::kBool) scratch.masks[i] = value.i != 0 ? ~std::uint64_t{0} : 0;
    if (slot_[i] < 0) continue;
    const auto at = static_cast<std::int32_t>(i);
    if (node.type == Type::kFloat)
      std::fill_n(lanes.floats(at), kLanes, value.f);
    else
      std::fill_n(lanes.ints(at), kLanes, value.i);
  }
}

void Program::run(Scratch& scratch, std::int64_t k_begin, const float* scores,
                  std::int64_t count) const {
  const std::span<const Node> nodes = expression_.nodes();
  const Lanes lanes{slot_, scratch};
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (!varying_[i]) continue;
    const Node& node = nodes[i];
    const auto at = static_cast<std::int32_t>(i);
    if (node.op == Op::kKey) {
      I* out = lanes.ints(at);
      for (std::size_t lane = 0; lane < kLanes; ++lane) out[lane] = k_begin + static_cast<I>(lane);
    } else if (node.op == Op::kScore) {
      float* out = lanes.floats(at);
      std::copy_n(scores, count, out);
      std::fill(out + count, out + kLanes, 0.0f);
    } else if (node.op == Op::kTable) {
      run_table(lanes, node, at, scratch.tables[static_cast<std::size_t>(node.integer)]);
    } else if (node.op == Op::kWhere) {
      run_where(lanes, node, at);
    } else {
      const Type type = nodes[static_cast<std::size_t>(node.args[0])].type;
      if (type == Type::kBool) run_masks(lanes, node, at);
      if (type == Type::kInt) run_ints(lanes, node, at);
      if (type == Type::kFloat) run_floats(lanes, node, at);
    }
  }
}

std::uint64_t Program::bits(Scratch& scratch, std::int64_t k_begin) const {
  run(scratch, k_begin, nullptr, 0);
  return scratch.masks[expression_.nodes().size() - 1];
}

void Program::scores(Scratch& scratch, float* scores, std::int64_t k_begin,
                     std::int64_t count) const {
  const Lanes lanes{slot_, scratch};
  const auto root = static_cast<std::int32_t>(expression_.nodes().size()) - 1;
  for (std::int64_t done = 0; done < count; done += kLanes) {
    const std::int64_t now = std::min(kLanes, count - done);
    run(scratch, k_begin + done, scores + done, now);
    std::copy_n(lanes.floats(root), now, scores + done);
  }
}

Value Program::evaluate(std::span<const TensorView> tables, float score, std::int64_t b,
                        std::int64_t h, std::int64_t q, std::int64_t k) const {
  std::vector<Value> values;
  for (const Node& node : expression_.nodes()) {
    const bool is_leaf = node.num_args == 0 && node.op != Op::kTable;
    values.push_back(is_leaf ? leaf(node, score, b, h, q, k)
                             : evaluate_node(expression_, node, values.data(), tables));
  }
  return values.back();
}

}  // namespace stof::expr
