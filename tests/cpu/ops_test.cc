#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "backend/cpu/ops/embedding.h"
#include "backend/cpu/ops/layer_norm.h"
#include "backend/cpu/ops/pooling.h"

namespace stof::cpu {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_floats(std::size_t size, unsigned seed, float scale = 1,
                                 float shift = 0) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(shift, scale);
  std::vector<float> values(size);
  for (float& value : values) value = normal(generator);
  return values;
}

std::vector<double> layer_norm_oracle(const std::vector<double>& x, const std::vector<float>& gamma,
                                      const std::vector<float>& beta, double epsilon) {
  double mean = 0, variance = 0;
  for (const double v : x) mean += v / static_cast<double>(x.size());
  for (const double v : x) variance += (v - mean) * (v - mean) / static_cast<double>(x.size());
  std::vector<double> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    y[i] = (x[i] - mean) / std::sqrt(variance + epsilon) * gamma[i] + beta[i];
  return y;
}

TEST(LayerNorm, EqualsTheDefinitionForEveryWidthScaleAndEpsilon) {
  for (const std::size_t width : {1u, 3u, 8u, 24u, 384u})
    for (const float scale : {1e-3f, 1.f, 6e4f})           // Case 32: large activations stay exact
      for (const float epsilon : {1e-12f, 1e-5f, 0.1f}) {  // Case 30: epsilon is not a constant
        const auto gamma = random_floats(width, 1), beta = random_floats(width, 2);
        std::vector<float> x = random_floats(5 * width, 3, scale, scale);
        const std::vector<float> before = x;
        LayerNorm{gamma.data(), beta.data(), static_cast<std::int64_t>(width), epsilon}.rows(
            x.data(), 5);
        for (std::size_t r = 0; r < 5; ++r) {
          const auto from = before.begin() + static_cast<std::ptrdiff_t>(r * width);
          const auto expected = layer_norm_oracle({from, from + static_cast<std::ptrdiff_t>(width)},
                                                  gamma, beta, epsilon);
          for (std::size_t i = 0; i < width; ++i)
            ASSERT_NEAR(x[r * width + i], expected[i], 1e-5)
                << width << " " << scale << " " << epsilon;
        }
      }
}

TEST(Embedding, SumsTheThreeTablesAndNormalises) {
  constexpr std::size_t kWidth = 12;
  const auto words = random_floats(7 * kWidth, 1), positions = random_floats(5 * kWidth, 2),
             segment = random_floats(kWidth, 3), gamma = random_floats(kWidth, 4),
             beta = random_floats(kWidth, 5);
  const EmbeddingTables tables{words.data(), positions.data(), segment.data(),
                               LayerNorm{gamma.data(), beta.data(), kWidth, 1e-6f}};
  const std::vector<std::int32_t> ids = {6, 0, 3, 3}, places = {0, 1, 4, 0};
  std::vector<float> out(ids.size() * kWidth, kNan);
  embed_tokens(tables, ids, places, out.data());
  for (std::size_t t = 0; t < ids.size(); ++t) {
    std::vector<double> sum(kWidth);
    for (std::size_t i = 0; i < kWidth; ++i)
      sum[i] = static_cast<double>(words[static_cast<std::size_t>(ids[t]) * kWidth + i]) +
               positions[static_cast<std::size_t>(places[t]) * kWidth + i] + segment[i];
    const auto expected = layer_norm_oracle(sum, gamma, beta, 1e-6);
    for (std::size_t i = 0; i < kWidth; ++i) ASSERT_NEAR(out[t * kWidth + i], expected[i], 1e-5);
  }
}

TEST(Pooling, TakesMeanFirstOrLargest) {
  const std::vector<float> x = {1, -2, 3, 4, -5, 0};  // 3 tokens of width 2
  std::vector<float> out(2, kNan);
  pool_rows(Pooling::kMean, x.data(), 3, 2, out.data());
  EXPECT_FLOAT_EQ(out[0], -1.f / 3);
  EXPECT_FLOAT_EQ(out[1], 2.f / 3);
  pool_rows(Pooling::kCls, x.data(), 3, 2, out.data());
  EXPECT_EQ(out, (std::vector<float>{1, -2}));
  pool_rows(Pooling::kMax, x.data(), 3, 2, out.data());
  EXPECT_EQ(out, (std::vector<float>{3, 4}));
}

TEST(Pooling, NormalisesToLengthOneAndKeepsZero) {
  std::vector<float> x = {3, -4};
  normalize_l2(x.data(), 2);
  EXPECT_FLOAT_EQ(x[0], 0.6f);
  EXPECT_FLOAT_EQ(x[1], -0.8f);
  std::vector<float> zero = {0, 0};
  normalize_l2(zero.data(), 2);
  EXPECT_EQ(zero, (std::vector<float>{0, 0}));
}

}  // namespace
}  // namespace stof::cpu
