#include "backend/cpu/graph/bindings.h"

#include <algorithm>

#include "backend/cpu/attention/element.h"
#include "backend/cpu/attention/packed.h"
#include "core/check.h"
#include "core/text.h"
#include "stof/attention.h"

namespace stof::cpu {
namespace {

using graph::Operator;
using graph::Value;
using graph::ValueId;

/// Row `row` of a table, by an id that must be in it.
std::int64_t table_row(const Bindings& bindings, ValueId ids, ValueId table, std::int64_t row) {
  const auto id = static_cast<std::int64_t>(load_element(bindings.view(ids), {row}));
  const std::int64_t rows = bindings.view(table).shape[0];
  STOF_CHECK(id >= 0 && id < rows, kInvalidArgument,
             "value {}, row {}: expected a row of {}, 0 to {}, got {}",
             quote_text(bindings.graph().value(ids).name), row,
             quote_text(bindings.graph().value(table).name), rows - 1, id);
  return id;
}

/// [rows, heads * head_dim] rows first .. first + count as [1, heads, count, head_dim].
template <class View>
View heads_of(const View& matrix, std::int64_t first, std::int64_t count, std::int64_t heads) {
  const std::int64_t dim = matrix.shape[1] / heads;
  const auto bytes = static_cast<std::int64_t>(dtype_bytes(matrix.dtype));
  View view = matrix;
  view.shape = {1, heads, count, dim};
  view.strides = {0, dim * matrix.strides[1], matrix.strides[0], matrix.strides[1]};
  using Byte = std::conditional_t<std::is_same_v<View, TensorView>, const char, char>;
  view.data = static_cast<Byte*>(matrix.data) + first * matrix.strides[0] * bytes;
  return view;
}

}  // namespace

Bindings::Bindings(const graph::Graph& graph, const GraphOperands& operands)
    : graph_(graph), operands_(operands) {
  for (const auto& [id, view] : operands.values) bind(id, view);
}

void Bindings::bind(ValueId id, const TensorView& view) {
  const Value& value = graph_.value(id);
  STOF_CHECK(view.defined() && view.dtype == value.dtype && view.shape == value.shape,
             kInvalidArgument, "value {}: expected a tensor of {}{}, got {}",
             quote_text(value.name), to_string(value.dtype), value.shape.to_string(),
             view.defined() ? view.describe() : "none");
  views_[id] = view;
}

TensorView Bindings::view(ValueId id) const {
  if (const auto found = views_.find(id); found != views_.end()) return found->second;
  const Value& value = graph_.value(id);
  const auto base = value.view_of == graph::kNoId ? views_.end() : views_.find(value.view_of);
  STOF_CHECK(base != views_.end(), kInvalidArgument, "value {}: expected a tensor, got none",
             quote_text(value.name));
  TensorView view = base->second;
  view.shape = value.shape;
  view.data =
      static_cast<const char*>(view.data) +
      value.view_column * view.strides[1] * static_cast<std::int64_t>(dtype_bytes(view.dtype));
  return view;
}

Reals embed(const Bindings& bindings, const Operator& op) {
  const TensorView words = bindings.view(op.inputs[1]);
  Reals out(bindings.view(op.inputs[0]).shape[0], words.shape[1]);
  for (std::int64_t r = 0; r < out.rows; ++r) {
    const std::int64_t word = table_row(bindings, op.inputs[0], op.inputs[1], r);
    for (std::int64_t c = 0; c < out.columns; ++c) out.at(r, c) = load_element(words, {word, c});
    if (op.inputs.size() < 4) continue;
    const TensorView places = bindings.view(op.inputs[3]);
    const std::int64_t place = table_row(bindings, op.inputs[2], op.inputs[3], r);
    for (std::int64_t c = 0; c < out.columns; ++c) out.at(r, c) += load_element(places, {place, c});
    if (op.inputs.size() < 5) continue;
    const TensorView segments = bindings.view(op.inputs[4]);
    for (std::int64_t c = 0; c < out.columns; ++c) out.at(r, c) += load_element(segments, {0, c});
  }
  return out;
}

Reals pool(const Bindings& bindings, const Operator& op) {
  const Reals x = bindings.load(op.inputs[0]), offsets = bindings.load(op.inputs[1]);
  Reals out(offsets.columns - 1, x.columns);
  for (std::int64_t t = 0; t < out.rows; ++t) {
    const auto begin = static_cast<std::int64_t>(offsets.at(0, t));
    const auto end = static_cast<std::int64_t>(offsets.at(0, t + 1));
    STOF_CHECK(begin >= 0 && begin < end && end <= x.rows, kInvalidArgument,
               "value {}: expected text {} to own rows within 0 to {}, got {} to {}",
               quote_text(bindings.graph().value(op.inputs[1]).name), t, x.rows, begin, end);
    for (std::int64_t c = 0; c < x.columns; ++c) {
      double result = x.at(begin, c);
      for (std::int64_t r = begin + 1; r < end; ++r) {
        if (op.attributes.pooling == graph::Pooling::kMean) result += x.at(r, c);
        if (op.attributes.pooling == graph::Pooling::kMax) result = std::max(result, x.at(r, c));
      }
      if (op.attributes.pooling == graph::Pooling::kMean)
        result /= static_cast<double>(end - begin);
      out.at(t, c) = result;
    }
  }
  return out;
}

namespace {

/// Rows of a cache one behind the other: the keys of all sequences.
Tensor gathered(const TensorView& cache, const graph::CachePages& pages) {
  const std::int64_t columns = cache.shape[1];
  Tensor out(cache.dtype, {pages.key_offsets().back(), columns});
  std::int64_t to = 0;
  for (std::size_t i = 0; i < pages.lengths.size(); ++i)
    for (std::int64_t key = 0; key < pages.lengths[i]; ++key, ++to)
      for (std::int64_t c = 0; c < columns; ++c)
        store_element(out.view(), {to, c}, load_element(cache, {pages.row(i, key), c}));
  return out;
}

const mask::Mask& mask_of(const GraphOperands& operands, const Operator& op) {
  const int index = op.attributes.mask;
  STOF_CHECK(index <= static_cast<int>(operands.more_masks.size()), kInvalidArgument,
             "operator {} (attention): expected a mask {} to be bound, got {} masks",
             quote_text(op.name), index, operands.more_masks.size() + 1);
  return index == 0 ? operands.mask : operands.more_masks[static_cast<std::size_t>(index) - 1];
}

}  // namespace

Tensor attend(const Bindings& bindings, const Operator& op) {
  const graph::Attributes& attributes = op.attributes;
  const TensorView q = bindings.view(op.inputs[0]);
  TensorView k = bindings.view(op.inputs[1]), v = bindings.view(op.inputs[2]);
  const std::int64_t rows = q.shape[0];
  std::vector<std::int64_t> offsets = bindings.operands().offsets;
  if (offsets.empty()) offsets = {0, rows};
  STOF_CHECK(offsets.back() == rows, kInvalidArgument,
             "operator {} (attention): expected sequences of {} rows in all, got {}",
             quote_text(op.name), rows, offsets.back());
  AttentionProblem problem;
  problem.num_heads_q = attributes.heads;
  problem.num_heads_kv = attributes.kv_heads;
  problem.head_dim_qk = problem.head_dim_v = attributes.head_dim;
  problem.dtype = q.dtype;
  if (attributes.scale != 0) problem.scale = static_cast<float>(attributes.scale);
  Tensor keys, values;
  std::vector<std::int64_t> key_offsets = offsets;
  if (op.inputs.size() > 3)
    problem.position_bias = {bindings.view(op.inputs[3]).shape[0], attributes.bidirectional,
                             attributes.max_distance};
  if (bindings.graph().in_state(op.inputs[1])) {
    const GraphOperands& operands = bindings.operands();
    const graph::CachePages& pages = attributes.cross ? operands.cross_cache : operands.cache;
    if (attributes.cross)
      pages.validate_cross(offsets.size() - 1, k.shape[0]);
    else
      pages.validate(offsets, k.shape[0]);
    keys = gathered(k, pages), values = gathered(v, pages);
    k = std::as_const(keys).view(), v = std::as_const(values).view();
    key_offsets = pages.key_offsets();
    if (!attributes.cross) problem.alignment = mask::Alignment::kBottomRight;
  }
  const PackedSequences packed =
      pack_sequences(problem, mask_of(bindings.operands(), op), offsets, key_offsets);
  Tensor out(q.dtype, {rows, attributes.heads * attributes.head_dim});
  for (std::size_t i = 0; i < packed.part_of.size(); ++i) {
    const PackedSequences::Part& part = packed.parts[packed.part_of[i]];
    const std::int64_t first = offsets[i], count = offsets[i + 1] - first;
    AttentionTensors tensors;
    tensors.q = heads_of(q, first, count, attributes.heads);
    const std::int64_t first_key = key_offsets[i], num_keys = key_offsets[i + 1] - first_key;
    tensors.k = heads_of(k, first_key, num_keys, attributes.kv_heads);
    tensors.v = heads_of(v, first_key, num_keys, attributes.kv_heads);
    tensors.out = heads_of(out.view(), first, count, attributes.heads);
    if (op.inputs.size() > 3) tensors.position_bias = bindings.view(op.inputs[3]);
    attention_reference(part.problem, part.mask, tensors);
  }
  return out;
}

}  // namespace stof::cpu
