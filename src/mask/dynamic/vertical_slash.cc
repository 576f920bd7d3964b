// Columns and block diagonals that hold most of what some queries attend to.

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <memory>

#include "core/bits.h"
#include "mask/block/row_bits.h"
#include "mask/dynamic/block_grid.h"
#include "mask/dynamic/jobs.h"
#include "mask/node_factories.h"

namespace stof::mask {
namespace {

/// The queries looked at, ascending.
std::vector<std::int64_t> probe_queries(std::int64_t num_queries, const PruneSettings& settings) {
  const std::int64_t count = std::min(settings.probes, num_queries);
  std::vector<std::int64_t> queries;
  for (std::int64_t i = 0; i < count; ++i)
    queries.push_back(settings.probe_rows == PruneProbes::kLast
                          ? num_queries - count + i
                          : (i + 1) * num_queries / count - 1);
  return queries;
}

/// Softmax over a query's visible keys, in place: 0 elsewhere, and for NaN; zeros where no score is
/// above -inf.
void softmax_row(const PruneHead& head, std::int64_t q, float* row) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  float most = -kInfinity;
  for (std::int64_t first = 0; first < head.k.rows; first += 64) {
    const std::int64_t here = std::min<std::int64_t>(64, head.k.rows - first);
    const std::uint64_t bits =
        row_bits_within(*head.base, head.b, head.h, q, first, here, head.k.rows);
    for (std::int64_t i = 0; i < here; ++i) {
      float& score = row[first + i];
      if ((bits >> i & 1) == 0 || score != score) score = -kInfinity;
      most = std::max(most, score);
    }
  }
  double sum = 0;
  for (std::int64_t k = 0; k < head.k.rows; ++k) {
    if (most == kInfinity)
      row[k] = row[k] == most ? 1 : 0;
    else
      row[k] =
          row[k] > -kInfinity ? static_cast<float>(std::exp(double{row[k]} - double{most})) : 0;
    sum += double{row[k]};
  }
  if (sum > 0)
    for (std::int64_t k = 0; k < head.k.rows; ++k)
      row[k] = static_cast<float>(double{row[k]} / sum);
}

/// A column, or a diagonal of blocks.
struct Candidate {
  std::int64_t index = 0;
  double mass = 0;  ///< of all probes
};

/// Most mass first; equal ones nearest to 0 first, those of earlier keys before later.
void sort_candidates(std::vector<Candidate>& candidates) {
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    if (a.mass != b.mass) return a.mass > b.mass;
    const std::int64_t a_far = std::abs(a.index), b_far = std::abs(b.index);
    return a_far != b_far ? a_far < b_far : a.index < b.index;
  });
}

class VerticalSlash {
 public:
  VerticalSlash(const PruneHead& head, const PruneSettings& settings)
      : head_(head),
        settings_(settings),
        grid_(head, settings),
        queries_(probe_queries(head.q.rows, settings)),
        taken_(static_cast<std::size_t>(grid_.num_rows() * grid_.num_cols())),
        columns_(static_cast<std::size_t>(head.k.rows)) {
    for_visible([&](std::int64_t row, std::int64_t col) {
      if (grid_.must_stay(row, col)) take(row, col);
    });
  }

  PrunedHead run() {
    attend();
    const double budget = settings_.keep * static_cast<double>(grid_.total_visible());
    const std::vector<Candidate> slashes = rank_slashes(), columns = rank_columns();
    // Half of what the budget leaves is for diagonals. Neither is ranked by what the other leaves:
    // in the few rows that were looked at, each could stand for the other.
    take_slashes(slashes, spent_ + (budget - spent_) / 2);
    take_columns(columns, budget);
    return result();
  }

 private:
  template <class Visit>
  void for_visible(const Visit& visit) const {
    for (std::int64_t row = 0; row < grid_.num_rows(); ++row)
      for (std::int64_t col = 0; col < grid_.num_cols(); ++col)
        if (grid_.visible(row, col)) visit(row, col);
  }
  bool is_taken(std::int64_t row, std::int64_t col) const {
    return taken_[static_cast<std::size_t>(row * grid_.num_cols() + col)] != 0;
  }
  void take(std::int64_t row, std::int64_t col) {
    std::uint8_t& taken = taken_[static_cast<std::size_t>(row * grid_.num_cols() + col)];
    spent_ += taken == 0 ? 1 : 0;
    taken = 1;
  }
  const float* weights(std::size_t probe) const {
    return weights_.data() + static_cast<std::int64_t>(probe) * padded_;
  }

  /// What each probe attends to: [probes, padded keys].
  void attend() {
    const KeyPanels panels(head_.k);
    padded_ = panels.padded_keys();
    weights_.resize(queries_.size() * static_cast<std::size_t>(padded_));
    run_jobs(std::ssize(queries_), head_.num_threads, [&](std::int64_t i) {
      const std::int64_t q = queries_[static_cast<std::size_t>(i)];
      float* const row = weights_.data() + i * padded_;
      panels.scores(head_.q.row(q), head_.scale, row);
      softmax_row(head_, q, row);
    });
  }

  std::vector<Candidate> rank_slashes() const {
    std::map<std::int64_t, Candidate> slashes;
    for_visible([&](std::int64_t row, std::int64_t col) {
      if (is_taken(row, col)) return;
      const std::int64_t distance = col - grid_.diagonal(row);
      slashes[distance].index = distance;
    });
    for (std::size_t probe = 0; probe < queries_.size(); ++probe) {
      const std::int64_t row = queries_[probe] / settings_.block;
      for (std::int64_t k = 0; k < head_.k.rows; ++k) {
        const std::int64_t col = k / settings_.block;
        if (!is_taken(row, col) && grid_.visible(row, col))
          slashes[col - grid_.diagonal(row)].mass += double{weights(probe)[k]};
      }
    }
    std::vector<Candidate> candidates;
    candidates.reserve(slashes.size());
    for (const auto& [distance, slash] : slashes) candidates.push_back(slash);
    sort_candidates(candidates);
    return candidates;
  }

  void take_slashes(const std::vector<Candidate>& candidates, double budget) {
    for (const Candidate& slash : candidates) {
      if (spent_ >= budget) break;
      for (std::int64_t row = 0; row < grid_.num_rows(); ++row) {
        const std::int64_t col = grid_.diagonal(row) + slash.index;
        if (col >= 0 && col < grid_.num_cols() && grid_.visible(row, col)) take(row, col);
      }
    }
  }

  std::vector<Candidate> rank_columns() const {
    std::vector<Candidate> candidates;
    candidates.reserve(static_cast<std::size_t>(head_.k.rows));
    for (std::int64_t k = 0; k < head_.k.rows; ++k) {
      Candidate column{k, 0};
      for (std::size_t probe = 0; probe < queries_.size(); ++probe)
        if (!is_taken(queries_[probe] / settings_.block, k / settings_.block))
          column.mass += double{weights(probe)[k]};
      candidates.push_back(column);
    }
    sort_candidates(candidates);
    return candidates;
  }

  /// A column costs what the diagonals have left of it.
  void take_columns(const std::vector<Candidate>& candidates, double budget) {
    std::vector<std::int64_t> open(static_cast<std::size_t>(grid_.num_cols()));
    for_visible([&](std::int64_t row, std::int64_t col) {
      if (!is_taken(row, col)) open[static_cast<std::size_t>(col)] += 1;
    });
    for (const Candidate& column : candidates) {
      if (spent_ >= budget) break;
      const std::int64_t blocks = open[static_cast<std::size_t>(column.index / settings_.block)];
      if (blocks == 0) continue;
      columns_[static_cast<std::size_t>(column.index)] = 1;
      spent_ += static_cast<double>(blocks) / static_cast<double>(settings_.block);
    }
  }

  PrunedHead result() const {
    PrunedHead result;
    result.rows.unit = PruneUnit::kKeysOfBlock;
    std::vector<std::vector<std::int32_t>> blocks(static_cast<std::size_t>(grid_.num_rows()));
    result.rows.kept.resize(blocks.size());
    result.rows.visible.resize(blocks.size());
    std::vector<std::int64_t> of_block(static_cast<std::size_t>(grid_.num_cols()));
    auto bits = std::make_shared<BitArray>();
    bits->shape[3] = head_.k.rows;
    bits->words.resize(static_cast<std::size_t>(bits->words_per_row()));
    for (std::size_t k = 0; k < columns_.size(); ++k) {
      if (columns_[k] == 0) continue;
      bits->words[k / 64] |= std::uint64_t{1} << (k % 64);
      of_block[k / static_cast<std::size_t>(settings_.block)] += 1;
    }
    for_visible([&](std::int64_t row, std::int64_t col) {
      const auto r = static_cast<std::size_t>(row);
      const std::int64_t keys = std::min(settings_.block, head_.k.rows - col * settings_.block);
      result.rows.visible[r] += keys;
      if (is_taken(row, col)) blocks[r].push_back(static_cast<std::int32_t>(col));
      result.rows.kept[r] += is_taken(row, col) ? keys : of_block[static_cast<std::size_t>(col)];
    });
    result.mask =
        mask_of_blocks(std::move(blocks), settings_.block) | dense_of_bits(std::move(bits));
    return result;
  }

  const PruneHead& head_;
  const PruneSettings& settings_;
  BlockGrid grid_;
  std::vector<std::int64_t> queries_;
  std::int64_t padded_ = 0;
  std::vector<float> weights_;
  std::vector<std::uint8_t> taken_;    ///< [rows, cols]: blocks
  std::vector<std::uint8_t> columns_;  ///< [keys]
  double spent_ = 0;                   ///< blocks
};

}  // namespace

PrunedHead prune_vertical_slash(const PruneHead& head, const PruneSettings& settings) {
  return VerticalSlash(head, settings).run();
}

}  // namespace stof::mask
