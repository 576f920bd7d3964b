// Key blocks of each query block by pooled scores: as many for all (block_topk), or until their
// share of the softmax is reached (mass).

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "mask/dynamic/block_grid.h"
#include "mask/dynamic/jobs.h"

namespace stof::mask {
namespace {

/// Visible key blocks of a query block in the order they are taken, with their scores.
struct Ranking {
  std::vector<std::int32_t> cols;
  std::vector<float> scores;  ///< of cols
};

Ranking rank(const BlockGrid& grid, std::int64_t row, const std::vector<float>& scores) {
  Ranking ranking;
  for (std::int64_t col = 0; col < grid.num_cols(); ++col)
    if (grid.visible(row, col)) ranking.cols.push_back(static_cast<std::int32_t>(col));
  std::sort(ranking.cols.begin(), ranking.cols.end(), [&](std::int32_t a, std::int32_t b) {
    const bool a_stays = grid.must_stay(row, a), b_stays = grid.must_stay(row, b);
    if (a_stays != b_stays) return a_stays;
    return taken_before(scores[static_cast<std::size_t>(a)], a, scores[static_cast<std::size_t>(b)],
                        b);
  });
  for (const std::int32_t col : ranking.cols)
    ranking.scores.push_back(scores[static_cast<std::size_t>(col)]);
  return ranking;
}

/// How many of the ranking reach `share` of its softmax; NaN weighs nothing.
std::int64_t num_for_share(const std::vector<float>& scores, double share) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  float most = -kInfinity;
  for (const float score : scores)
    if (score > most) most = score;
  const auto weight = [most](float score) {
    if (most == kInfinity) return score == most ? 1.0 : 0.0;
    return score > -kInfinity ? std::exp(double{score} - double{most}) : 0.0;
  };
  double all = 0;
  for (const float score : scores) all += weight(score);
  double taken = 0;
  std::int64_t count = 0;
  for (const float score : scores) {
    if (taken >= share * all) break;
    taken += weight(score);
    ++count;
  }
  return std::max<std::int64_t>(count, 1);
}

/// The largest cap under which the fullest row has at most `balance` times the mean of those that
/// keep something. It exists: under a cap of 1 all are equal.
std::int64_t largest_cap(const std::vector<std::int64_t>& needed, double balance) {
  const auto rows = std::count_if(needed.begin(), needed.end(), [](auto n) { return n > 0; });
  if (rows == 0) return 0;
  const std::int64_t most = *std::max_element(needed.begin(), needed.end());
  const auto holds = [&](std::int64_t cap) {
    std::int64_t kept = 0;
    for (const std::int64_t n : needed) kept += std::min(n, cap);
    return static_cast<double>(std::min(cap, most)) * static_cast<double>(rows) <=
           balance * static_cast<double>(kept);
  };
  // The mean under a cap is concave in it, so that what holds, holds for all smaller caps too.
  std::int64_t low = 1, high = most;
  while (low < high) {
    const std::int64_t middle = (low + high + 1) / 2;
    if (holds(middle))
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

}  // namespace

PrunedHead prune_blocks(const PruneHead& head, const PruneSettings& settings) {
  const BlockGrid grid(head, settings);
  const UsedRows used(head);
  const std::vector<float> q = pool_rows(head.q, used.queries, settings.block, settings.pooling);
  const std::vector<float> k = pool_rows(head.k, used.keys, settings.block, settings.pooling);
  const auto rows = static_cast<std::size_t>(grid.num_rows());
  std::vector<Ranking> rankings(rows);
  std::vector<std::int64_t> needed(rows);
  const bool by_mass = settings.method == PruneMethod::kMass;
  const bool keeps_all = settings.keep >= 1;

  run_jobs(grid.num_rows(), head.num_threads, [&](std::int64_t row) {
    const auto r = static_cast<std::size_t>(row);
    std::vector<float> scores(static_cast<std::size_t>(grid.num_cols()));
    for (std::int64_t col = 0; col < grid.num_cols(); ++col)
      if (grid.visible(row, col))
        scores[static_cast<std::size_t>(col)] = score_of(
            q.data() + row * head.q.dim, k.data() + col * head.k.dim, head.q.dim, head.scale);
    rankings[r] = rank(grid, row, scores);
    if (!by_mass || rankings[r].cols.empty()) return;
    needed[r] = std::max(grid.num_staying(row), num_for_share(rankings[r].scores, settings.keep));
  });

  // What stays may be more than the cap: it then is the number.
  std::int64_t count = grid.num_cols();
  if (!by_mass)
    count = blocks_to_keep(grid, settings.keep);
  else if (!keeps_all)
    count = std::max(largest_cap(needed, settings.balance), grid.most_staying());

  PrunedHead result;
  result.rows.unit = PruneUnit::kKeyBlocks;
  std::vector<std::vector<std::int32_t>> columns(rows);
  for (std::size_t r = 0; r < rows; ++r) {
    const std::int64_t visible = grid.num_visible(static_cast<std::int64_t>(r));
    const std::int64_t wanted = by_mass && !keeps_all ? std::min(needed[r], count) : count;
    const std::int64_t kept = std::min(wanted, visible);
    columns[r].assign(rankings[r].cols.begin(), rankings[r].cols.begin() + kept);
    std::sort(columns[r].begin(), columns[r].end());
    result.rows.kept.push_back(kept);
    result.rows.visible.push_back(visible);
  }
  result.mask = mask_of_blocks(std::move(columns), settings.block);
  return result;
}

}  // namespace stof::mask
