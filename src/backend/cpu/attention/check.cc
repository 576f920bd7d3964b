#include "backend/cpu/attention/check.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/check.h"

namespace stof::cpu {
namespace {

bool missing(const TensorView& tensor) { return !tensor.defined() && tensor.shape.rank() == 0; }

/// An address that elements may have, and strides whose reach in bytes is a number.
void check_address(const char* name, const TensorView& tensor) {
  STOF_CHECK(
      tensor.is_aligned(), kInvalidArgument,
      "{}: expected an address that is a multiple of {} bytes, got {}; copy the tensor first", name,
      dtype_bytes(tensor.dtype), tensor.data);
  constexpr std::int64_t kMaxReach = std::int64_t{1} << 56;  // eight of them fit 64 bits
  for (int i = 0; i < tensor.shape.rank(); ++i) {
    const std::int64_t stride = tensor.strides[i], steps = tensor.shape[i] - 1;
    STOF_CHECK(steps <= 0 || (stride <= kMaxReach / steps && stride >= -kMaxReach / steps),
               kInvalidArgument,
               "{}: expected strides that stay inside memory, got {} for shape {}", name,
               tensor.strides.to_string(), tensor.shape.to_string());
  }
}

/// Extents, dtype and presence of one operand.
void check_operand(const char* name, const TensorView& tensor, DType dtype, const Dims& shape) {
  STOF_CHECK(!missing(tensor), kInvalidArgument, "{}: expected {}{}, got no tensor", name,
             to_string(dtype), shape.to_string());
  STOF_CHECK(tensor.dtype == dtype, kInvalidArgument, "{}: expected dtype {}, got {}", name,
             to_string(dtype), to_string(tensor.dtype));
  STOF_CHECK(tensor.shape.rank() == shape.rank(), kInvalidArgument,
             "{}: expected rank {} (shape {}), got rank {} (shape {})", name, shape.rank(),
             shape.to_string(), tensor.shape.rank(), tensor.shape.to_string());
  STOF_CHECK(tensor.shape == shape, kInvalidArgument, "{}: expected shape {}, got {}", name,
             shape.to_string(), tensor.shape.to_string());
  STOF_CHECK(tensor.strides.rank() == shape.rank(), kInvalidArgument,
             "{}: expected {} strides, got {}", name, shape.rank(), tensor.strides.rank());
  STOF_CHECK(tensor.defined() || num_elements(shape) == 0, kInvalidArgument,
             "{}: expected an address for {} elements, got a null pointer", name,
             num_elements(shape));
  check_address(name, tensor);
}

void check_optional(const char* name, const TensorView& tensor, bool wanted, const char* option,
                    DType dtype, const Dims& shape) {
  if (wanted) return check_operand(name, tensor, dtype, shape);
  STOF_CHECK(missing(tensor), kInvalidArgument,
             "{}: expected no tensor because the plan's problem has {} = false, got {}; plan "
             "again with {} = true",
             name, option, tensor.describe(), option);
}

void check_unit_last_stride(const char* name, const TensorView& tensor) {
  const int last = tensor.shape.rank() - 1;
  STOF_CHECK(tensor.shape[last] <= 1 || tensor.strides[last] == 1, kInvalidArgument,
             "{}: expected a last stride of 1, got {} (strides {}); make the tensor contiguous "
             "first",
             name, tensor.strides[last], tensor.strides.to_string());
}

void check_bias(const AttentionProblem& problem, const TensorView& bias) {
  if (!problem.bias) return check_optional("bias", bias, false, "bias", DType::kFloat32, {});
  const Dims full{problem.batch, problem.num_heads_q, problem.seq_q, problem.seq_kv};
  STOF_CHECK(!missing(bias), kInvalidArgument,
             "bias: expected float32 broadcastable to {}, got no tensor", full.to_string());
  STOF_CHECK(bias.dtype == DType::kFloat32, kInvalidArgument,
             "bias: expected dtype float32, got {}", to_string(bias.dtype));
  const int offset = full.rank() - bias.shape.rank();
  bool fits = offset >= 0 && bias.strides.rank() == bias.shape.rank();
  for (int i = 0; fits && i < bias.shape.rank(); ++i)
    fits = bias.shape[i] == 1 || bias.shape[i] == full[i + offset];
  STOF_CHECK(fits, kInvalidArgument, "bias: expected a shape broadcastable to {}, got {}",
             full.to_string(), bias.shape.to_string());
  STOF_CHECK(bias.defined() || num_elements(bias.shape) == 0, kInvalidArgument,
             "bias: expected an address, got a null pointer");
  check_address("bias", bias);
}

/// Of any strides; a table of rank 0 has an address alone.
void check_score_tables(const AttentionProblem& problem, const std::vector<TensorView>& tables) {
  STOF_CHECK(tables.size() == problem.score_tables.size(), kInvalidArgument,
             "score_tables: expected {} as the plan's problem declares, got {}",
             problem.score_tables.size(), tables.size());
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const expr::TableDecl& declared = problem.score_tables[i];
    check_operand(fmt::format("score table {}", declared.name).c_str(), tables[i], declared.dtype,
                  declared.shape);
  }
}

/// Bytes [first, second) a view touches; equal ends when it has no elements.
std::pair<std::intptr_t, std::intptr_t> byte_range(const TensorView& tensor) {
  const auto base = reinterpret_cast<std::intptr_t>(tensor.data);
  if (num_elements(tensor.shape) == 0) return {base, base};
  std::int64_t low = 0, high = 0;
  for (int i = 0; i < tensor.shape.rank(); ++i) {
    const std::int64_t reach = (tensor.shape[i] - 1) * tensor.strides[i];
    (reach < 0 ? low : high) += reach;
  }
  const auto bytes = static_cast<std::int64_t>(dtype_bytes(tensor.dtype));
  return {base + low * bytes, base + (high + 1) * bytes};
}

void check_apart(const char* output, const TensorView& written, const char* other,
                 const TensorView& tensor) {
  if (missing(tensor) || missing(written)) return;
  const auto [a_begin, a_end] = byte_range(written);
  const auto [b_begin, b_end] = byte_range(tensor);
  STOF_CHECK(a_begin >= a_end || b_begin >= b_end || a_end <= b_begin || b_end <= a_begin,
             kInvalidArgument,
             "{}: expected memory apart from {}, got address ranges that overlap; give it a "
             "buffer of its own",
             output, other);
}

/// Sorted by stride, each dimension must step over everything the smaller ones reach.
void check_writes_once(const char* name, const TensorView& tensor) {
  if (num_elements(tensor.shape) == 0) return;
  std::vector<std::pair<std::int64_t, std::int64_t>> steps;  // |stride|, extent
  for (int i = 0; i < tensor.shape.rank(); ++i)
    if (tensor.shape[i] > 1) steps.emplace_back(std::abs(tensor.strides[i]), tensor.shape[i]);
  std::sort(steps.begin(), steps.end());
  std::int64_t reach = 0;
  for (const auto& [stride, extent] : steps) {
    STOF_CHECK(stride > reach, kInvalidArgument,
               "{}: expected every element at its own address, got strides {} for shape {}", name,
               tensor.strides.to_string(), tensor.shape.to_string());
    reach += stride * (extent - 1);
  }
}

}  // namespace

ExpectedShapes dense_shapes(const AttentionProblem& p) {
  return {{p.batch, p.num_heads_q, p.seq_q, p.head_dim_qk},
          {p.batch, p.num_heads_kv, p.seq_kv, p.head_dim_qk},
          {p.batch, p.num_heads_kv, p.seq_kv, p.head_dim_v},
          {p.batch, p.num_heads_q, p.seq_q, p.head_dim_v},
          {p.batch, p.num_heads_q, p.seq_q}};
}

void check_tensors(const AttentionProblem& problem, const ExpectedShapes& shapes,
                   const AttentionTensors& tensors) {
  check_operand("q", tensors.q, problem.dtype, shapes.q);
  check_operand("k", tensors.k, problem.dtype, shapes.k);
  check_operand("v", tensors.v, problem.dtype, shapes.v);
  check_operand("out", tensors.out, problem.dtype, shapes.out);
  check_unit_last_stride("q", tensors.q);
  check_unit_last_stride("k", tensors.k);
  check_unit_last_stride("v", tensors.v);
  check_unit_last_stride("out", tensors.out);
  check_optional("lse", tensors.lse, problem.return_lse, "return_lse", DType::kFloat32, shapes.lse);
  check_optional("alibi_slopes", tensors.alibi_slopes, problem.alibi, "alibi", DType::kFloat32,
                 {problem.num_heads_q});
  check_bias(problem, tensors.bias);
  check_optional("sink", tensors.sink, problem.sink, "sink", DType::kFloat32,
                 {problem.num_heads_q});
  const std::int64_t buckets = problem.position_bias.num_buckets;
  if (buckets > 0)
    check_operand("position_bias", tensors.position_bias, DType::kFloat32,
                  {buckets, problem.num_heads_q});
  else
    STOF_CHECK(
        missing(tensors.position_bias), kInvalidArgument,
        "position_bias: expected no tensor because the plan's problem has "
        "position_bias.num_buckets = 0, got {}; plan again with the table's number of buckets",
        tensors.position_bias.describe());
  check_score_tables(problem, tensors.score_tables);

  check_writes_once("out", tensors.out);
  if (problem.return_lse) check_writes_once("lse", tensors.lse);
  const std::pair<const char*, TensorView> inputs[] = {{"q", tensors.q},
                                                       {"k", tensors.k},
                                                       {"v", tensors.v},
                                                       {"alibi_slopes", tensors.alibi_slopes},
                                                       {"bias", tensors.bias},
                                                       {"sink", tensors.sink},
                                                       {"position_bias", tensors.position_bias}};
  for (const auto& [name, input] : inputs) {
    check_apart("out", tensors.out, name, input);
    check_apart("lse", tensors.lse, name, input);
  }
  for (std::size_t i = 0; i < tensors.score_tables.size(); ++i) {
    const std::string name = "score table " + problem.score_tables[i].name;
    check_apart("out", tensors.out, name.c_str(), tensors.score_tables[i]);
    check_apart("lse", tensors.lse, name.c_str(), tensors.score_tables[i]);
  }
  check_apart("lse", tensors.lse, "out", tensors.out);
}

TensorView expand_bias(const AttentionProblem& problem, const TensorView& bias) {
  TensorView full = bias;
  full.shape = {problem.batch, problem.num_heads_q, problem.seq_q, problem.seq_kv};
  full.strides = {0, 0, 0, 0};
  const int offset = full.shape.rank() - bias.shape.rank();
  for (int i = 0; i < bias.shape.rank(); ++i)
    if (bias.shape[i] != 1) full.strides[i + offset] = bias.strides[i];
  return full;
}

}  // namespace stof::cpu
