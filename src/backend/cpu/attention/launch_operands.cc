#include "backend/cpu/attention/launch_operands.h"

#include <algorithm>
#include <iterator>

#include "backend/cpu/attention/problem.h"
#include "backend/cpu/attention/score_mod.h"
#include "core/check.h"

namespace stof::cpu {
namespace {

Element element_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return Element::kFloat32;
    case DType::kFloat16:
      return Element::kFloat16;
    case DType::kBFloat16:
      return Element::kBFloat16;
    default:
      throw_error(ErrorCode::kInternal, "no attention kernel for {}", to_string(dtype));
  }
}

template <class T>
const void* address(const Operand& operand, std::int64_t b, std::int64_t h) {
  return static_cast<const T*>(operand.data) + b * operand.b_stride + h * operand.h_stride;
}

const void* address_of(DType dtype, const Operand& operand, std::int64_t b, std::int64_t h) {
  return dtype == DType::kFloat32 ? address<float>(operand, b, h)
                                  : address<std::uint16_t>(operand, b, h);
}

template <class T>
void store_rows(const float* from, std::int64_t rows, std::int64_t dim, T* to,
                std::int64_t row_stride) {
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t d = 0; d < dim; ++d) to[row * row_stride + d] = T(from[row * dim + d]);
}

}  // namespace

KernelParams params_of(const AttentionPlan::Impl& plan) {
  const AttentionProblem& problem = plan.problem;
  KernelParams params;
  params.element = element_of(problem.dtype);
  params.seq_q = problem.seq_q;
  params.seq_kv = problem.seq_kv;
  params.head_dim_qk = problem.head_dim_qk;
  params.head_dim_v = problem.head_dim_v;
  params.scale = scale_of(problem);
  params.softcap = problem.softcap;
  params.alibi = problem.alibi;
  params.bias = problem.bias || problem.position_bias.num_buckets > 0;
  if (plan.score_mod) params.change_scores = change_scores;
  params.position_offset = position_offset(problem);
  params.tile_q = plan.mask_plan.config.tile_q;
  params.tile_kv = plan.mask_plan.config.tile_kv;
  params.words_per_row = plan.mask_plan.words_per_row();
  params.payloads = plan.mask_plan.payloads.data();
  return params;
}

void set_position_bias(const std::vector<float>& spread, const Distances& distances,
                       LaunchSequence* sequence) {
  sequence->bias = spread.data() + origin_of(sequence->plan->problem, distances);
  const std::int64_t strides[4] = {0, distances.count, -1, 1};
  std::copy(std::begin(strides), std::end(strides), sequence->bias_strides);
}

KernelHead head_of(const LaunchSequence& sequence, BatchHead place, bool with_sink) {
  const AttentionProblem& problem = sequence.plan->problem;
  const auto [b, h] = place;
  const std::int64_t h_kv = kv_head(problem, h);
  KernelHead head;
  head.q = address_of(problem.dtype, sequence.q, b, h);
  head.k = address_of(problem.dtype, sequence.k, b, h_kv);
  head.v = address_of(problem.dtype, sequence.v, b, h_kv);
  head.q_stride = sequence.q.row_stride;
  head.k_stride = sequence.k.row_stride;
  head.v_stride = sequence.v.row_stride;
  if (sequence.bias != nullptr) {
    head.bias = sequence.bias + b * sequence.bias_strides[0] + h * sequence.bias_strides[1];
    head.bias_q_stride = sequence.bias_strides[2];
    head.bias_k_stride = sequence.bias_strides[3];
  }
  if (problem.sink && with_sink) head.sink = sequence.sink + h * sequence.sink_stride;
  if (problem.alibi) head.slope = sequence.alibi_slopes[h * sequence.alibi_stride];
  return head;
}

ScoreHead score_head_of(const LaunchSequence& sequence, BatchHead place) {
  return {sequence.plan->score_mod.get(), sequence.score_tables, sequence.first_b + place.b,
          place.h};
}

void store_result(const LaunchSequence& sequence, BatchHead place, std::int64_t q_begin,
                  std::int64_t rows, const KernelResult& result) {
  const AttentionProblem& problem = sequence.plan->problem;
  const Operand& out = sequence.out;
  const std::int64_t offset =
      place.b * out.b_stride + place.h * out.h_stride + q_begin * out.row_stride;
  void* data = const_cast<void*>(out.data);
  const std::int64_t dim = problem.head_dim_v;
  switch (problem.dtype) {
    case DType::kFloat32:
      store_rows(result.out, rows, dim, static_cast<float*>(data) + offset, out.row_stride);
      break;
    case DType::kFloat16:
      store_rows(result.out, rows, dim, static_cast<Float16*>(data) + offset, out.row_stride);
      break;
    default:
      store_rows(result.out, rows, dim, static_cast<BFloat16*>(data) + offset, out.row_stride);
  }
  if (sequence.lse.data == nullptr) return;
  const Operand& lse = sequence.lse;
  float* first = static_cast<float*>(const_cast<void*>(lse.data)) + place.b * lse.b_stride +
                 place.h * lse.h_stride + q_begin * lse.row_stride;
  for (std::int64_t row = 0; row < rows; ++row) first[row * lse.row_stride] = result.lse[row];
}

}  // namespace stof::cpu
