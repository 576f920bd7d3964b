// N:M on scores: of each group of M neighbouring keys the N of the largest scores stay.

#include <algorithm>
#include <bit>
#include <memory>

#include "core/bits.h"
#include "mask/block/row_bits.h"
#include "mask/dynamic/head.h"
#include "mask/dynamic/jobs.h"
#include "mask/node_factories.h"

namespace stof::mask {
namespace {

constexpr std::int64_t kRowsPerJob = 16;

/// Of the group's visible keys (bit i = key i of it) the `count` to keep.
std::uint64_t best_of_group(const float* scores, std::uint64_t visible, std::int64_t count) {
  std::uint64_t kept = 0;
  for (std::int64_t n = 0; n < count && visible != 0; ++n) {
    std::int64_t best = std::countr_zero(visible);
    for (std::uint64_t rest = visible & (visible - 1); rest != 0; rest &= rest - 1) {
      const std::int64_t i = std::countr_zero(rest);
      if (taken_before(scores[i], i, scores[best], best)) best = i;
    }
    kept |= std::uint64_t{1} << best;
    visible &= ~(std::uint64_t{1} << best);
  }
  return kept;
}

/// Bits [begin, begin + count) of a row of words, count at most 64.
std::uint64_t read_bits(const std::uint64_t* words, std::int64_t begin, std::int64_t count) {
  const std::int64_t word = begin / 64, offset = begin % 64;
  std::uint64_t bits = words[word] >> offset;
  if (offset > 0 && offset + count > 64) bits |= words[word + 1] << (64 - offset);
  return bits & low_bits(count);
}

void write_bits(std::uint64_t* words, std::int64_t begin, std::int64_t count, std::uint64_t bits) {
  const std::int64_t word = begin / 64, offset = begin % 64;
  words[word] |= bits << offset;
  if (offset > 0 && offset + count > 64) words[word + 1] |= bits >> (64 - offset);
}

}  // namespace

PrunedHead prune_nm(const PruneHead& head, const PruneSettings& settings) {
  const std::int64_t num_keys = head.k.rows, group = settings.group;
  const std::int64_t count = settings.kept_of_group();
  const KeyPanels panels(head.k);
  const bool sees_all = head.sees_all();
  auto kept = std::make_shared<BitArray>();
  kept->shape[2] = head.q.rows;
  kept->shape[3] = num_keys;
  const std::int64_t words = kept->words_per_row();
  kept->words.resize(static_cast<std::size_t>(head.q.rows * words));
  PruneRows rows{0, 0, PruneUnit::kKeys, {}, {}};
  rows.kept.resize(static_cast<std::size_t>(head.q.rows));
  rows.visible.resize(static_cast<std::size_t>(head.q.rows));

  const auto prune_row = [&](std::int64_t q, float* scores, std::uint64_t* visible) {
    const auto row = static_cast<std::size_t>(q);
    for (std::int64_t w = 0; w < words; ++w) {
      const std::int64_t here = std::min<std::int64_t>(64, num_keys - w * 64);
      visible[w] = sees_all
                       ? low_bits(here)
                       : row_bits_within(*head.base, head.b, head.h, q, w * 64, here, num_keys);
      rows.visible[row] += std::popcount(visible[w]);
    }
    if (rows.visible[row] == 0) return;
    panels.scores(head.q.row(q), head.scale, scores);
    std::uint64_t* const out = kept->words.data() + q * words;
    for (std::int64_t first = 0; first < num_keys; first += group) {
      const std::int64_t here = std::min(group, num_keys - first);
      const std::uint64_t best =
          best_of_group(scores + first, read_bits(visible, first, here), count);
      write_bits(out, first, here, best);
      rows.kept[row] += std::popcount(best);
    }
  };
  run_jobs(ceil_div(head.q.rows, kRowsPerJob), head.num_threads, [&](std::int64_t job) {
    std::vector<float> scores(static_cast<std::size_t>(panels.padded_keys()));
    std::vector<std::uint64_t> visible(static_cast<std::size_t>(words));
    const std::int64_t end = std::min((job + 1) * kRowsPerJob, head.q.rows);
    for (std::int64_t q = job * kRowsPerJob; q < end; ++q)
      prune_row(q, scores.data(), visible.data());
  });
  return {dense_of_bits(std::move(kept)), std::move(rows)};
}

}  // namespace stof::mask
