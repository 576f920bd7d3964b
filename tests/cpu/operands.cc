#include "cpu/operands.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "backend/cpu/attention/element.h"

namespace stof::cpu {
namespace {

constexpr std::int64_t kGuard = 32;  // elements before and behind

Dims table_strides(const Dims& shape, std::uint64_t kind) {
  Dims strides = contiguous_strides(shape);
  if (shape.rank() == 0) return strides;
  const int last = shape.rank() - 1;
  if (kind == 1)
    for (int i = 0; i <= last; ++i) strides[i] = strides[i] * 3 + (i < last ? 1 : 0);
  if (kind == 2) strides[last] = -strides[last];
  if (kind == 3) strides[0] = 0;
  return strides;
}

}  // namespace

GuardedTensor::GuardedTensor(DType dtype, const Dims& shape, Layout layout)
    : dtype_(dtype), shape_(shape), strides_(contiguous_strides(shape)) {
  if (shape.rank() == 4) {
    const std::int64_t heads = shape[1], rows = shape[2], dim = shape[3];
    switch (layout) {
      case Layout::kContiguous:
        break;
      case Layout::kRowsFirst:
        strides_ = {rows * heads * dim, dim, heads * dim, 1};
        break;
      case Layout::kSliced:
        strides_ = {heads * (rows + 2) * (dim + 5), (rows + 2) * (dim + 5), dim + 5, 1};
        break;
      case Layout::kPadded:
        strides_ = {heads * (rows + 1) * (dim + 8), (rows + 1) * (dim + 8), dim + 8, 1};
        break;
      case Layout::kTransposed:
        strides_ = {heads * rows * dim, rows * dim, 1, rows};
        break;
      case Layout::kExpandedRows:
        strides_[2] = 0;
        break;
      case Layout::kExpandedBatch:
        strides_[0] = strides_[1] = 0;
        break;
    }
  }
  allocate();
}

GuardedTensor::GuardedTensor(DType dtype, const Dims& shape, const Dims& strides)
    : dtype_(dtype), shape_(shape), strides_(strides) {
  allocate();
}

void GuardedTensor::allocate() {
  std::int64_t low = 0, high = 0;
  for (int i = 0; i < shape_.rank(); ++i) {
    const std::int64_t reach = std::max<std::int64_t>(shape_[i] - 1, 0) * strides_[i];
    (reach < 0 ? low : high) += reach;
  }
  base_ = kGuard - low;
  bytes_.assign(static_cast<std::size_t>(high - low + 1 + 2 * kGuard) * dtype_bytes(dtype_), 0xff);
}

MutableTensorView GuardedTensor::view() {
  return {bytes_.data() + static_cast<std::size_t>(base_) * dtype_bytes(dtype_), dtype_, shape_,
          strides_};
}

std::vector<std::int64_t> GuardedTensor::offsets() const {
  std::vector<std::int64_t> result = {0};
  for (int i = 0; i < shape_.rank(); ++i) {
    std::vector<std::int64_t> next;
    next.reserve(result.size() * static_cast<std::size_t>(shape_[i]));
    for (const std::int64_t offset : result)
      for (std::int64_t j = 0; j < shape_[i]; ++j) next.push_back(offset + j * strides_[i]);
    result = std::move(next);
  }
  return result;
}

void GuardedTensor::fill(const std::function<double()>& next) {
  MutableTensorView flat = view();
  flat.strides = {1};
  for (const std::int64_t offset : offsets()) store_element(flat, {offset}, next());
}

std::vector<double> GuardedTensor::values() {
  TensorView flat = view();
  flat.strides = {1};
  std::vector<double> result;
  for (const std::int64_t offset : offsets()) result.push_back(load_element(flat, {offset}));
  return result;
}

bool GuardedTensor::guards_intact() {
  std::vector<std::uint8_t> rest = bytes_;
  const std::size_t size = dtype_bytes(dtype_);
  for (const std::int64_t offset : offsets())
    std::fill_n(rest.begin() + static_cast<std::int64_t>(size) * (base_ + offset), size, 0xff);
  return std::all_of(rest.begin(), rest.end(), [](std::uint8_t byte) { return byte == 0xff; });
}

void GuardedTensor::poison() { std::fill(bytes_.begin(), bytes_.end(), 0xff); }

Operands::Operands(const AttentionProblem& p, std::uint64_t seed, const Layouts& layouts,
                   const Dims& bias_shape)
    : problem(p),
      q(p.dtype, {p.batch, p.num_heads_q, p.seq_q, p.head_dim_qk}, layouts.q),
      k(p.dtype, {p.batch, p.num_heads_kv, p.seq_kv, p.head_dim_qk}, layouts.k),
      v(p.dtype, {p.batch, p.num_heads_kv, p.seq_kv, p.head_dim_v}, layouts.v),
      out(p.dtype, {p.batch, p.num_heads_q, p.seq_q, p.head_dim_v}, layouts.out) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<double> normal;
  const auto next = [&] { return normal(generator); };
  q.fill(next);
  k.fill(next);
  v.fill(next);
  if (p.return_lse) lse = GuardedTensor(DType::kFloat32, {p.batch, p.num_heads_q, p.seq_q});
  if (p.alibi) {
    slopes = GuardedTensor(DType::kFloat32, {p.num_heads_q});
    slopes.fill([&] { return std::abs(next()) / 8; });
  }
  if (p.bias) {
    bias = GuardedTensor(
        DType::kFloat32,
        bias_shape.rank() > 0 ? bias_shape : Dims{p.batch, p.num_heads_q, p.seq_q, p.seq_kv},
        layouts.bias);
    bias.fill([&] {
      const double x = next();
      return x > 1.5 ? -std::numeric_limits<double>::infinity() : x;
    });
  }
  if (p.position_bias.num_buckets > 0) {
    position_bias = GuardedTensor(DType::kFloat32, {p.position_bias.num_buckets, p.num_heads_q});
    position_bias.fill(next);
  }
  for (const expr::TableDecl& table : p.score_tables) {
    const Dims strides = table_strides(table.shape, (seed + score_tables.size()) % 4);
    score_tables.emplace_back(table.dtype, table.shape, strides);
    const bool real = dtype_bytes(table.dtype) == 2 || table.dtype == DType::kFloat32;
    score_tables.back().fill([&] { return real ? next() : static_cast<double>(generator() % 3); });
  }
  if (p.sink) {
    sink = GuardedTensor(DType::kFloat32, {p.num_heads_q});
    sink.fill(next);
  }
}

AttentionTensors Operands::tensors() {
  AttentionTensors tensors;
  tensors.q = q.view();
  tensors.k = k.view();
  tensors.v = v.view();
  tensors.out = out.view();
  if (lse.defined()) tensors.lse = lse.view();
  if (slopes.defined()) tensors.alibi_slopes = slopes.view();
  if (bias.defined()) tensors.bias = bias.view();
  if (sink.defined()) tensors.sink = sink.view();
  for (GuardedTensor& table : score_tables) tensors.score_tables.push_back(table.view());
  if (position_bias.defined()) tensors.position_bias = position_bias.view();
  return tensors;
}

Result reference_of(const mask::Mask& mask, Operands& operands) {
  operands.out.poison();
  operands.lse.poison();
  attention_reference(operands.problem, mask, operands.tensors());
  Result result{operands.out.values(), {}};
  if (operands.lse.defined()) result.lse = operands.lse.values();
  return result;
}

}  // namespace stof::cpu
