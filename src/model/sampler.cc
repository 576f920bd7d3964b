#include "model/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/check.h"

namespace stof::model {
namespace {

/// 53 random bits: every double of [0, 1) that is a multiple of 2^-53.
double uniform(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

}  // namespace

Sampler::Sampler(const SamplingOptions& options) : options_(options), random_(options.seed) {
  STOF_CHECK(std::isfinite(options.temperature) && options.temperature >= 0, kInvalidArgument,
             "temperature: expected 0 or more, got {}", options.temperature);
  STOF_CHECK(options.top_k >= 0, kInvalidArgument, "top_k: expected 0 (all) or more, got {}",
             options.top_k);
  STOF_CHECK(options.top_p > 0 && options.top_p <= 1, kInvalidArgument,
             "top_p: expected above 0 and at most 1, got {}", options.top_p);
}

std::int32_t Sampler::next(std::span<const float> logits) {
  float best = -INFINITY;
  int num_bad = 0;
#pragma omp simd reduction(max : best) reduction(+ : num_bad)
  for (std::size_t i = 0; i < logits.size(); ++i) {
    best = std::max(best, logits[i]);
    num_bad += !(logits[i] < INFINITY);  // NaN as well
  }
  if (num_bad > 0 || best == -INFINITY) {
    const auto bad =
        std::find_if(logits.begin(), logits.end(), [](float x) { return !(x < INFINITY); });
    throw_error(ErrorCode::kInvalidArgument,
                "logits: expected at least one, none of them NaN or infinite, got {} as number {}",
                bad == logits.end() ? -INFINITY : *bad, bad - logits.begin());
  }
  if (options_.temperature == 0)
    return static_cast<std::int32_t>(std::find(logits.begin(), logits.end(), best) -
                                     logits.begin());
  return draw(logits);
}

std::int32_t Sampler::draw(std::span<const float> logits) {
  order_.resize(logits.size());
  std::iota(order_.begin(), order_.end(), 0);
  const auto logit = [&](std::int32_t id) { return logits[static_cast<std::size_t>(id)]; };
  const auto likelier = [&](std::int32_t a, std::int32_t b) {
    return logit(a) > logit(b) || (logit(a) == logit(b) && a < b);
  };
  if (options_.top_k > 0 && options_.top_k < static_cast<std::int64_t>(order_.size())) {
    std::partial_sort(order_.begin(), order_.begin() + options_.top_k, order_.end(), likelier);
    order_.resize(static_cast<std::size_t>(options_.top_k));
  } else {
    std::sort(order_.begin(), order_.end(), likelier);
  }
  const double largest = logit(order_[0]);
  weights_.clear();
  double sum = 0;
  for (const std::int32_t id : order_) {
    weights_.push_back(std::exp((logit(id) - largest) / options_.temperature));
    sum += weights_.back();
  }
  // The first prefix that reaches top_p of the probability.
  double kept = 0;
  std::size_t count = 0;
  while (count < weights_.size() && (count == 0 || kept < options_.top_p * sum))
    kept += weights_[count++];
  double target = uniform(random_) * kept;
  for (std::size_t i = 0; i < count; ++i) {
    target -= weights_[i];
    if (target < 0) return order_[i];
  }
  return order_[count - 1];  // what rounding left over
}

}  // namespace stof::model
