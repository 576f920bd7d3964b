#include "model/likeliest.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/check.h"

namespace stof::model {

std::vector<Scored> likeliest(std::span<const float> scores, std::int64_t count) {
  for (const float value : scores)
    STOF_CHECK(std::isfinite(value), kUnsupported,
               "scores: expected finite numbers, got {}; are the weights whole?", value);
  std::vector<std::int32_t> ids(scores.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto shown = std::min(ids.size(), static_cast<std::size_t>(count));
  const auto score = [&](std::int32_t id) { return scores[static_cast<std::size_t>(id)]; };
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(shown), ids.end(),
                    [&](std::int32_t a, std::int32_t b) {
                      return score(a) != score(b) ? score(a) > score(b) : a < b;
                    });
  std::vector<Scored> best;
  if (shown == 0) return best;
  double sum = 0;
  const double largest = score(ids[0]);
  for (const float value : scores) sum += std::exp(value - largest);
  for (std::size_t i = 0; i < shown; ++i)
    best.push_back({ids[i], static_cast<float>(std::exp(score(ids[i]) - largest) / sum)});
  return best;
}

}  // namespace stof::model
