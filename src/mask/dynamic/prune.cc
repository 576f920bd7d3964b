// prune(): every head by its settings, and the report.

#include "stof/prune.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/cancel.h"
#include "core/check.h"
#include "core/threads.h"
#include "mask/dynamic/head.h"

namespace stof::mask {
namespace {

void check_operand(const char* name, const TensorView& view) {
  STOF_CHECK(view.dtype == DType::kFloat32 && view.shape.rank() == 4, kInvalidArgument,
             "{}: expected float32 [batch, heads, rows, head_dim], got {}", name, view.describe());
  STOF_CHECK(view.defined() && view.is_aligned(), kInvalidArgument,
             "{}: expected data at a multiple of 4 bytes", name);
  for (int i = 0; i < 4; ++i)
    STOF_CHECK(view.shape[i] >= 1, kInvalidArgument, "{}: expected extents of at least 1, got {}",
               name, view.describe());
  STOF_CHECK(view.strides[3] == 1 || view.shape[3] == 1, kInvalidArgument,
             "{}: expected a last stride of 1, got {}", name, view.describe());
}

ScoreShape checked_shape(const PruneInput& input) {
  check_operand("q", input.q);
  check_operand("k", input.k);
  const Dims &q = input.q.shape, &k = input.k.shape;
  STOF_CHECK(q[0] == k[0] && q[3] == k[3], kInvalidArgument,
             "k: expected the batch and head_dim of q {}, got {}", q.to_string(), k.to_string());
  STOF_CHECK(q[1] % k[1] == 0, kInvalidArgument,
             "k: expected a number of heads that divides the {} of q, got {}", q[1], k[1]);
  STOF_CHECK(std::isfinite(input.scale), kInvalidArgument, "scale: expected a number, got {}",
             input.scale);
  return {q[0], q[1], q[2], k[2]};
}

FloatRows rows_of(const TensorView& view, std::int64_t b, std::int64_t h) {
  const auto* const data = static_cast<const float*>(view.data);
  return {data + b * view.strides[0] + h * view.strides[1], view.shape[2], view.shape[3],
          view.strides[2]};
}

PrunedHead prune_head(const PruneHead& head, const PruneSettings& settings) {
  switch (settings.method) {
    case PruneMethod::kNm:
      return prune_nm(head, settings);
    case PruneMethod::kBlockTopK:
    case PruneMethod::kMass:
      return prune_blocks(head, settings);
    case PruneMethod::kVerticalSlash:
      break;
  }
  return prune_vertical_slash(head, settings);
}

struct RowFigures {
  std::int64_t rows = 0, fewest = 0, most = 0;
  double mean = 0;
};

/// Of rows that see something.
RowFigures figures_of(const PruneRows& rows) {
  RowFigures figures;
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < rows.kept.size(); ++i) {
    if (rows.visible[i] == 0) continue;
    figures.fewest = figures.rows == 0 ? rows.kept[i] : std::min(figures.fewest, rows.kept[i]);
    figures.most = std::max(figures.most, rows.kept[i]);
    figures.rows += 1;
    sum += rows.kept[i];
  }
  if (figures.rows > 0) figures.mean = static_cast<double>(sum) / static_cast<double>(figures.rows);
  return figures;
}

}  // namespace

double PruneRows::kept_fraction() const {
  const std::int64_t all = std::accumulate(visible.begin(), visible.end(), std::int64_t{0});
  const std::int64_t some = std::accumulate(kept.begin(), kept.end(), std::int64_t{0});
  return all == 0 ? 1 : static_cast<double>(some) / static_cast<double>(all);
}

double PruneRows::imbalance() const {
  const RowFigures figures = figures_of(*this);
  return figures.most == 0 ? 1 : static_cast<double>(figures.most) / figures.mean;
}

double PruneReport::kept_fraction() const {
  if (heads.empty()) return 1;
  double sum = 0;
  for (const PruneRows& head : heads) sum += head.kept_fraction();
  return sum / static_cast<double>(heads.size());
}

double PruneReport::imbalance() const {
  double worst = 1;
  for (const PruneRows& head : heads) worst = std::max(worst, head.imbalance());
  return worst;
}

std::string PruneReport::describe() const {
  return fmt::format("{} head(s) keep {:.1f} % of what they may; fullest row / mean at most {:.2f}",
                     heads.size(), 100 * kept_fraction(), imbalance());
}

std::string PruneReport::to_json() const {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const PruneRows& head : heads) {
    const RowFigures figures = figures_of(head);
    all.push_back({{"batch", head.batch},
                   {"head", head.head},
                   {"unit", to_string(head.unit)},
                   {"kept_fraction", head.kept_fraction()},
                   {"rows", figures.rows},
                   {"fewest", figures.fewest},
                   {"mean", figures.mean},
                   {"most", figures.most},
                   {"imbalance", head.imbalance()}});
  }
  return nlohmann::ordered_json{
      {"kept_fraction", kept_fraction()}, {"imbalance", imbalance()}, {"heads", all}}
      .dump();
}

PrunedMask prune(const PruneInput& input, const Pruner& pruner, int num_threads) {
  const ScoreShape shape = checked_shape(input);
  pruner.validate(shape.num_heads);
  check_num_threads(num_threads);
  const Mask base = input.base.bind(shape, input.alignment);
  PruneHead head;
  head.scale = input.scale != 0 ? input.scale : 1 / std::sqrt(static_cast<float>(input.q.shape[3]));
  head.base = &base;
  head.query_offset = input.alignment == Alignment::kBottomRight ? shape.seq_kv - shape.seq_q : 0;
  head.num_threads = num_threads > 0 ? num_threads : omp_get_max_threads();
  const std::int64_t group = shape.num_heads / input.k.shape[1];

  PrunedMask pruned;
  pruned.shape = shape;
  pruned.alignment = input.alignment;
  std::vector<Mask> entries;
  for (head.b = 0; head.b < shape.batch; ++head.b) {
    std::vector<Mask> heads;
    for (head.h = 0; head.h < shape.num_heads; ++head.h) {
      check_cancelled();
      head.q = rows_of(input.q, head.b, head.h);
      head.k = rows_of(input.k, head.b, head.h / group);
      const auto own = static_cast<std::size_t>(pruner.heads.size() == 1 ? 0 : head.h);
      PrunedHead made = prune_head(head, pruner.heads[own]);
      made.rows.batch = head.b;
      made.rows.head = head.h;
      heads.push_back(std::move(made.mask));
      pruned.report.heads.push_back(std::move(made.rows));
    }
    entries.push_back(heads.size() == 1 ? heads.front() : per_head(heads));
  }
  const Mask chosen = entries.size() == 1 ? entries.front() : per_batch(entries);
  // The base may hide pairs inside a block; of N:M the bits leave them out already.
  pruned.mask = (chosen & base).bind(shape, input.alignment);
  return pruned;
}

}  // namespace stof::mask
