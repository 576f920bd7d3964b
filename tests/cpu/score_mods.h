#pragma once
// Score modifications for attention checks, for the problems of CPU and GPU alike.

#include <algorithm>
#include <string>

#include "stof/attention.h"

namespace stof::cpu {

inline constexpr int kNumScoreMods = 12;

/// Sets the problem's score_mod to one of kNumScoreMods, whose tables fit its extents. `batch`: how
/// the text names the batch entry, where a problem is one entry of another.
inline void set_score_mod(AttentionProblem* p, int which, const std::string& batch = "b") {
  const std::int64_t heads = p->num_heads_q, keys = p->seq_kv;
  const std::int64_t longest = std::max(p->seq_q, p->seq_kv);
  const auto set = [&](std::string text, std::vector<expr::TableDecl> tables) {
    for (std::size_t at = 0; (at = text.find('@', at)) != std::string::npos; at += batch.size())
      text.replace(at, 1, batch);
    p->score_mod = std::move(text);
    p->score_tables = std::move(tables);
  };
  switch (which) {
    case 0:
      return set("score * 2", {});
    case 1:  // ALiBi
      return set("score + slopes[h] * (k - q)", {{"slopes", DType::kFloat32, {heads}}});
    case 2:  // softcap
      return set("3 * tanh(score / 3)", {});
    case 3:  // reads past both ends of the table give 0
      return set("score + rel[q - k + 50]", {{"rel", DType::kFloat16, {101}}});
    case 4:  // T5's buckets; off whole numbers, which logarithms of other libraries may miss
      return set(
          "score + bias[where(q < k, 16, 0) + where(abs(k - q) < 8, abs(k - q), min(15, 8 + "
          "int(log(float(abs(k - q)) / 8) / log(16.0) * 8 + 0.001))), h]",
          {{"bias", DType::kBFloat16, {32, heads}}});
    case 5:
      return set("where((q - k) % 3 == 0, score, score - 1)", {});
    case 6:
      return set("score * gain[@, h] + shift",
                 {{"gain", DType::kFloat32, {p->batch, heads}}, {"shift", DType::kFloat32, {}}});
    case 7:  // hides, in some rows all
      return set("where(doc[@, q] == doc[@, k] + 1, score, -inf)",
                 {{"doc", DType::kInt32, {p->batch, longest}}});
    case 8:
      return set("score + full[@, h, q, k]",
                 {{"full", DType::kBFloat16, {p->batch, heads, longest, longest}}});
    case 9:
      return set("where(seen[k] | (q == k), score, -inf)", {{"seen", DType::kBool, {keys}}});
    case 10:
      return set("min(max(score, -1.5), 2) + sigmoid(score) / (1 + (q + h) // 7 % 3)", {});
    default:
      return set("score - 0.25 * abs(at[k] - at[q]) ** 0.5 + ids[k % 5] * exp2(-abs(score)) * @",
                 {{"at", DType::kFloat32, {longest}}, {"ids", DType::kInt64, {5}}});
  }
}

}  // namespace stof::cpu
