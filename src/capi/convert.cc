#include "capi/convert.h"

#include <cstddef>
#include <span>
#include <string>

#include "capi/guard.h"
#include "capi/sized.h"

namespace stof::capi {
namespace {

static_assert(STOF_FLOAT32 == static_cast<int>(DType::kFloat32));
static_assert(STOF_FLOAT16 == static_cast<int>(DType::kFloat16));
static_assert(STOF_BFLOAT16 == static_cast<int>(DType::kBFloat16));
static_assert(STOF_FLOAT64 == static_cast<int>(DType::kFloat64));
static_assert(STOF_FLOAT8_E4M3 == static_cast<int>(DType::kFloat8E4M3));
static_assert(STOF_FLOAT8_E5M2 == static_cast<int>(DType::kFloat8E5M2));
static_assert(STOF_BOOL == static_cast<int>(DType::kBool));
static_assert(STOF_UINT8 == static_cast<int>(DType::kUInt8));
static_assert(STOF_INT8 == static_cast<int>(DType::kInt8));
static_assert(STOF_UINT16 == static_cast<int>(DType::kUInt16));
static_assert(STOF_INT16 == static_cast<int>(DType::kInt16));
static_assert(STOF_UINT32 == static_cast<int>(DType::kUInt32));
static_assert(STOF_INT32 == static_cast<int>(DType::kInt32));
static_assert(STOF_UINT64 == static_cast<int>(DType::kUInt64));
static_assert(STOF_INT64 == static_cast<int>(DType::kInt64));

constexpr std::size_t kFirstProblemSize = offsetof(stof_attention_problem, score_mod);
constexpr std::size_t kFirstTensorsSize = offsetof(stof_attention_tensors, num_score_tables);

/// Checks a count and its array; what is in it is checked by the caller.
void check_tables(std::int64_t count, const void* tables, const char* owner) {
  constexpr std::int64_t kMost = 16;  // AttentionProblem::validate() says the same
  STOF_CHECK(count >= 0 && count <= kMost, kInvalidArgument,
             "{}.num_score_tables: expected 0 to {}, got {}", owner, kMost, count);
  STOF_CHECK((tables != nullptr) == (count > 0), kInvalidArgument,
             "{}.score_tables: expected {} num_score_tables = {}, got {}", owner,
             count > 0 ? "an array beside" : "null beside", count,
             tables == nullptr ? "null" : "one");
}

std::vector<expr::TableDecl> score_tables_of(const stof_attention_problem& given) {
  check_tables(given.num_score_tables, given.score_tables, "problem");
  std::vector<expr::TableDecl> tables;
  const SizedArray<stof_score_table> elements(given.score_tables, "problem.score_tables");
  for (std::int64_t i = 0; i < given.num_score_tables; ++i) {
    const std::string name = fmt::format("problem.score_tables[{}]", i);
    const stof_score_table table = elements.read(i);
    STOF_CHECK(table.rank >= 0 && table.rank <= Dims::kMaxRank, kInvalidArgument,
               "{}.rank: expected 0 to {}, got {}", name, Dims::kMaxRank, table.rank);
    STOF_CHECK(table.name != nullptr, kInvalidArgument, "{}.name: expected a name, got null", name);
    STOF_CHECK(table.shape != nullptr || table.rank == 0, kInvalidArgument,
               "{}.shape: expected {} extents, got null", name, table.rank);
    const auto rank = static_cast<std::size_t>(table.rank);
    tables.push_back({table.name, dtype_of(table.dtype, name.c_str()),
                      rank == 0 ? Dims{} : Dims(std::span(table.shape, rank))});
  }
  return tables;
}

/// All but batch and lengths.
AttentionProblem options_of(const stof_attention_problem& given) {
  AttentionProblem problem;
  problem.num_heads_q = given.num_heads_q;
  problem.num_heads_kv = given.num_heads_kv;
  problem.head_dim_qk = given.head_dim_qk;
  problem.head_dim_v = given.head_dim_v;
  problem.dtype = dtype_of(given.dtype, "problem");
  problem.alignment = alignment_of(given.alignment, "problem.alignment");
  if (flag_of(given.has_scale, "problem.has_scale"))
    problem.scale = given.scale;
  else
    STOF_CHECK(given.scale == 0, kInvalidArgument,
               "problem.scale: expected 0 because has_scale is 0, got {}; set has_scale to 1",
               given.scale);
  problem.softcap = given.softcap;
  problem.alibi = flag_of(given.alibi, "problem.alibi");
  problem.bias = flag_of(given.bias, "problem.bias");
  problem.sink = flag_of(given.sink, "problem.sink");
  problem.return_lse = flag_of(given.return_lse, "problem.return_lse");
  const bool bidirectional =
      flag_of(given.position_bidirectional, "problem.position_bidirectional");
  if (given.position_buckets != 0)
    problem.position_bias = {given.position_buckets, bidirectional, given.position_max_distance};
  else
    STOF_CHECK(given.position_max_distance == 0 && !bidirectional, kInvalidArgument,
               "problem.position_buckets: expected at least 2 beside position_max_distance = {} "
               "and position_bidirectional = {}, got 0",
               given.position_max_distance, given.position_bidirectional);
  STOF_CHECK(given.reserved == 0, kInvalidArgument, "problem.reserved: expected 0, got {}",
             given.reserved);
  if (given.score_mod != nullptr) problem.score_mod = given.score_mod;
  STOF_CHECK(given.score_mod == nullptr || !problem.score_mod.empty(), kInvalidArgument,
             "problem.score_mod: expected an expression, or null for none, got \"\"");
  problem.score_tables = score_tables_of(given);
  return problem;
}

}  // namespace

bool flag_of(std::int32_t value, const char* name) {
  STOF_CHECK(value == 0 || value == 1, kInvalidArgument, "{}: expected 0 or 1, got {}", name,
             value);
  return value == 1;
}

mask::Alignment alignment_of(std::int32_t value, const char* name) {
  STOF_CHECK(value == STOF_TOP_LEFT || value == STOF_BOTTOM_RIGHT, kInvalidArgument,
             "{}: expected {} (STOF_TOP_LEFT) or {} (STOF_BOTTOM_RIGHT), got {}", name,
             static_cast<int>(STOF_TOP_LEFT), static_cast<int>(STOF_BOTTOM_RIGHT), value);
  return value == STOF_TOP_LEFT ? mask::Alignment::kTopLeft : mask::Alignment::kBottomRight;
}

mask::ScoreShape shape_of(const stof_score_shape& shape) {
  return {shape.batch, shape.num_heads, shape.seq_q, shape.seq_kv};
}

DType dtype_of(std::int32_t value, const char* name) {
  STOF_CHECK(value >= STOF_FLOAT32 && value <= STOF_INT64, kInvalidArgument,
             "{}.dtype: expected {} (STOF_FLOAT32) to {} (STOF_INT64), got {}", name,
             static_cast<int>(STOF_FLOAT32), static_cast<int>(STOF_INT64), value);
  return static_cast<DType>(value);
}

TensorView tensor_of(const stof_tensor* tensor, const char* name) try {
  const stof_tensor given = read_sized(tensor, name);
  STOF_CHECK(given.rank >= 0 && given.rank <= Dims::kMaxRank, kInvalidArgument,
             "{}.rank: expected 0 to {}, got {}", name, Dims::kMaxRank, given.rank);
  STOF_CHECK(given.rank == 0 || given.shape != nullptr, kInvalidArgument,
             "{}.shape: expected {} extents, got null", name, given.rank);
  const auto rank = static_cast<std::size_t>(given.rank);
  const Dims shape(std::span(given.shape, rank));
  const Dims strides =
      given.strides == nullptr ? contiguous_strides(shape) : Dims(std::span(given.strides, rank));
  for (const std::int64_t extent : shape)
    STOF_CHECK(extent >= 0, kInvalidArgument, "{}.shape: expected extents of at least 0, got {}",
               name, shape.to_string());
  STOF_CHECK(given.data != nullptr || num_elements(shape) == 0, kInvalidArgument,
             "{}.data: expected an address, got null", name);
  return {given.data, dtype_of(given.dtype, name), shape, strides};
} catch (const Error& error) {
  const std::string message = error.what();
  if (message.starts_with(name)) throw;
  throw Error(error.code(), std::string(name) + ": " + message);
}

TensorView optional_of(const stof_tensor* tensor, const char* name) {
  return tensor == nullptr ? TensorView{} : tensor_of(tensor, name);
}

MutableTensorView output_of(const stof_tensor* tensor, const char* name) {
  if (tensor == nullptr) return {};
  const TensorView view = tensor_of(tensor, name);
  return {tensor->data, view.dtype, view.shape, view.strides};
}

AttentionProblem problem_of(const stof_attention_problem* problem) {
  const stof_attention_problem given = read_sized(problem, "problem", kFirstProblemSize);
  AttentionProblem result = options_of(given);
  result.batch = given.batch;
  result.seq_q = given.seq_q;
  result.seq_kv = given.seq_kv;
  return result;
}

AttentionProblem varlen_problem_of(const stof_attention_problem* problem) {
  const stof_attention_problem given = read_sized(problem, "problem", kFirstProblemSize);
  STOF_CHECK(given.batch == 0 && given.seq_q == 0 && given.seq_kv == 0, kInvalidArgument,
             "problem.batch, seq_q, seq_kv: expected 0 because the cumulative lengths give them, "
             "got {}, {}, {}",
             given.batch, given.seq_q, given.seq_kv);
  return options_of(given);
}

std::vector<std::int64_t> lengths_of(const std::int64_t* cu_seqlens, std::int64_t num_sequences,
                                     const char* name) {
  constexpr std::int64_t kMaxSequences = 2147483647;  // a batch index is 32-bit
  STOF_CHECK(num_sequences >= 1 && num_sequences <= kMaxSequences, kInvalidArgument,
             "num_sequences: expected 1 to {}, got {}", kMaxSequences, num_sequences);
  return {&required(cu_seqlens, name), cu_seqlens + num_sequences + 1};
}

AttentionTensors tensors_of(const stof_attention_tensors* tensors) {
  const stof_attention_tensors given = read_sized(tensors, "tensors", kFirstTensorsSize);
  STOF_CHECK(given.reserved == 0, kInvalidArgument, "tensors.reserved: expected 0, got {}",
             given.reserved);
  AttentionTensors result;
  result.q = optional_of(given.q, "q");
  result.k = optional_of(given.k, "k");
  result.v = optional_of(given.v, "v");
  result.out = output_of(given.out, "out");
  result.lse = output_of(given.lse, "lse");
  result.alibi_slopes = optional_of(given.alibi_slopes, "alibi_slopes");
  result.bias = optional_of(given.bias, "bias");
  result.sink = optional_of(given.sink, "sink");
  result.position_bias = optional_of(given.position_bias, "position_bias");
  check_tables(given.num_score_tables, given.score_tables, "tensors");
  for (std::int64_t i = 0; i < given.num_score_tables; ++i)
    result.score_tables.push_back(
        tensor_of(given.score_tables[i], fmt::format("tensors.score_tables[{}]", i).c_str()));
  return result;
}

}  // namespace stof::capi
