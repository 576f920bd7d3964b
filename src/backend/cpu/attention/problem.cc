#include "backend/cpu/attention/problem.h"

#include "backend/cpu/attention/score_mod.h"
#include "core/check.h"

namespace stof {
namespace {

constexpr std::int64_t kMaxLength = 2147483647;  // tile indices are 32-bit
constexpr std::int64_t kMaxHeadDim = 512;

void check_range(const char* field, std::int64_t value, std::int64_t low, std::int64_t high) {
  STOF_CHECK(value >= low && value <= high, kInvalidArgument,
             "attention problem {}: expected {} to {}, got {}", field, low, high, value);
}

}  // namespace

void AttentionProblem::validate() const {
  check_range("batch", batch, 1, kMaxLength);
  check_range("num_heads_q", num_heads_q, 1, kMaxLength);
  check_range("num_heads_kv", num_heads_kv, 1, kMaxLength);
  STOF_CHECK(num_heads_q % num_heads_kv == 0, kInvalidArgument,
             "attention problem num_heads_kv: expected a divisor of num_heads_q = {}, got {}",
             num_heads_q, num_heads_kv);
  // A plan lists them. Each is below 2^31, so their product is no overflow.
  STOF_CHECK(batch * num_heads_q <= kMaxLength, kInvalidArgument,
             "attention problem batch * num_heads_q: expected at most {}, got {} * {}", kMaxLength,
             batch, num_heads_q);
  check_range("seq_q", seq_q, 0, kMaxLength);
  check_range("seq_kv", seq_kv, 0, kMaxLength);
  check_range("head_dim_qk", head_dim_qk, 1, kMaxHeadDim);
  check_range("head_dim_v", head_dim_v, 1, kMaxHeadDim);
  STOF_CHECK(dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16,
             kInvalidArgument,
             "attention problem dtype: expected float32, float16 or bfloat16, got {}",
             to_string(dtype));
  STOF_CHECK(!scale || std::isfinite(*scale), kInvalidArgument,
             "attention problem scale: expected a finite number, got {}", *scale);
  STOF_CHECK(std::isfinite(softcap) && softcap >= 0, kInvalidArgument,
             "attention problem softcap: expected 0 (none) or a finite positive number, got {}",
             softcap);
  if (score_mod.empty())
    STOF_CHECK(score_tables.empty(), kInvalidArgument,
               "attention problem score_tables: expected none beside an empty score_mod, got {}",
               score_tables.size());
  else
    cpu::score_expression(*this);
  STOF_CHECK(score_tables.size() <= cpu::kMaxScoreTables, kInvalidArgument,
             "attention problem score_tables: expected at most {}, got {}; stack tables of one "
             "type and shape to one of a rank more",
             cpu::kMaxScoreTables, score_tables.size());
  if (position_bias.num_buckets == 0) return;
  const auto& [buckets, bidirectional, max_distance] = position_bias;
  const std::int64_t sides = bidirectional ? 2 : 1;
  STOF_CHECK(
      buckets >= 2 * sides && buckets % sides == 0 && buckets <= kMaxLength, kInvalidArgument,
      "attention problem position_bias.num_buckets: expected 0 (none) or {} from {} on, got {}",
      bidirectional ? "an even number" : "a number", 2 * sides, buckets);
  check_range("position_bias.max_distance", max_distance, buckets / sides / 2 + 1, kMaxLength);
  STOF_CHECK(!bias, kInvalidArgument,
             "attention problem position_bias: expected none beside bias = true; add the table's "
             "values to the bias tensor");
}

std::string AttentionProblem::describe() const {
  std::string text =
      fmt::format("attention {} q[{}, {}, {}, {}] kv[{}, {}, {}, {}]", to_string(dtype), batch,
                  num_heads_q, seq_q, head_dim_qk, batch, num_heads_kv, seq_kv, head_dim_qk);
  if (head_dim_v != head_dim_qk) text += fmt::format(" v head_dim {}", head_dim_v);
  text += fmt::format(" {} scale {}", mask::to_string(alignment), cpu::scale_of(*this));
  if (softcap > 0) text += fmt::format(" softcap {}", softcap);
  if (alibi) text += " alibi";
  if (bias) text += " bias";
  if (position_bias.num_buckets > 0)
    text += fmt::format(" position_bias {} {} to {}", position_bias.num_buckets,
                        position_bias.bidirectional ? "bidirectional" : "causal",
                        position_bias.max_distance);
  if (!score_mod.empty()) text += fmt::format(" score_mod \"{}\"", score_mod);
  if (sink) text += " sink";
  if (return_lse) text += " lse";
  return text;
}

}  // namespace stof
