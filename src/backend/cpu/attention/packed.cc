#include "backend/cpu/attention/packed.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/check.h"

namespace stof::cpu {
namespace {

using Lengths = std::vector<std::int64_t>;

void check_cumulative(const char* name, const Lengths& cumulative) {
  STOF_CHECK(cumulative.size() >= 2, kInvalidArgument,
             "{}: expected at least 2 entries (one more than there are sequences), got {}", name,
             cumulative.size());
  STOF_CHECK(cumulative.front() == 0, kInvalidArgument, "{}[0]: expected 0, got {}", name,
             cumulative.front());
  for (std::size_t i = 1; i < cumulative.size(); ++i)
    STOF_CHECK(cumulative[i] >= cumulative[i - 1], kInvalidArgument,
               "{}[{}]: expected at least {} (lengths ascend), got {}", name, i, cumulative[i - 1],
               cumulative[i]);
}

std::int64_t longest(const Lengths& cumulative) {
  std::int64_t length = 0;
  for (std::size_t i = 1; i < cumulative.size(); ++i)
    length = std::max(length, cumulative[i] - cumulative[i - 1]);
  return length;
}

}  // namespace

ExpectedShapes PackedSequences::shapes() const {
  const std::int64_t total_q = cu_seqlens_q.back(), total_kv = cu_seqlens_kv.back();
  return {{total_q, problem.num_heads_q, problem.head_dim_qk},
          {total_kv, problem.num_heads_kv, problem.head_dim_qk},
          {total_kv, problem.num_heads_kv, problem.head_dim_v},
          {total_q, problem.num_heads_q, problem.head_dim_v},
          {problem.num_heads_q, total_q}};
}

PackedSequences pack_sequences(const AttentionProblem& problem, const mask::Mask& mask,
                               const Lengths& cu_seqlens_q, const Lengths& cu_seqlens_kv) {
  check_cumulative("cu_seqlens_q", cu_seqlens_q);
  check_cumulative("cu_seqlens_kv", cu_seqlens_kv);
  STOF_CHECK(cu_seqlens_q.size() == cu_seqlens_kv.size(), kInvalidArgument,
             "cu_seqlens_kv: expected {} entries as in cu_seqlens_q, got {}", cu_seqlens_q.size(),
             cu_seqlens_kv.size());
  STOF_CHECK(!problem.bias, kUnsupported,
             "varlen attention has no bias: its extents are those of one sequence; run the "
             "sequences one by one, or pad them to a batch");
  PackedSequences packed;
  packed.problem = problem;
  packed.problem.batch = static_cast<std::int64_t>(cu_seqlens_q.size()) - 1;
  packed.problem.seq_q = longest(cu_seqlens_q);
  packed.problem.seq_kv = longest(cu_seqlens_kv);
  packed.problem.validate();
  packed.cu_seqlens_q = cu_seqlens_q;
  packed.cu_seqlens_kv = cu_seqlens_kv;

  STOF_CHECK(mask.batch_extent() <= 1 || mask.batch_extent() == packed.problem.batch,
             kInvalidArgument, "mask: expected a batch extent of 1 or {} (the sequences), got {}",
             packed.problem.batch, mask.batch_extent());
  const bool same_for_all = mask.batch_extent() == 1;
  std::map<std::pair<std::int64_t, std::int64_t>, std::size_t> part_of_lengths;
  for (std::size_t i = 0; i + 1 < cu_seqlens_q.size(); ++i) {
    AttentionProblem one = packed.problem;
    one.batch = 1;
    one.seq_q = cu_seqlens_q[i + 1] - cu_seqlens_q[i];
    one.seq_kv = cu_seqlens_kv[i + 1] - cu_seqlens_kv[i];
    const auto [place, is_new] =
        part_of_lengths.try_emplace({one.seq_q, one.seq_kv}, packed.parts.size());
    if (same_for_all && !is_new) {
      packed.part_of.push_back(place->second);
      continue;
    }
    packed.part_of.push_back(packed.parts.size());
    packed.parts.push_back(
        {one, same_for_all ? mask : mask::batch_entry(mask, static_cast<std::int64_t>(i))});
  }
  return packed;
}

}  // namespace stof::cpu
