#include "backend/cpu/gemm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <random>
#include <thread>
#include <vector>

#include "backend/cpu/thread_scope.h"
#include "stof/error.h"

namespace stof::cpu {
namespace {

std::vector<float> random_values(std::size_t size, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(size);
  for (float& value : values) value = normal(generator);
  return values;
}

double activate(Activation activation, double x) {
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kRelu:
      return x > 0 ? x : 0;
    case Activation::kGeluErf:
      return x / 2 * (1 + std::erf(x / std::numbers::sqrt2));
    case Activation::kGeluTanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
  }
  return NAN;
}

struct Case {
  std::int64_t rows, in, out;
  Activation activation = Activation::kNone;
  Store store = Store::kReplace;
  int num_threads = 0;
};

/// Runs one layer and compares every element with a plain double loop.
void check(const Case& c) {
  SCOPED_TRACE(::testing::Message()
               << c.rows << "x" << c.in << "x" << c.out << " activation "
               << static_cast<int>(c.activation) << " threads " << c.num_threads);
  const auto size = [](std::int64_t a, std::int64_t b) { return static_cast<std::size_t>(a * b); };
  const std::vector<float> x = random_values(size(c.rows, c.in), 1),
                           w = random_values(size(c.out, c.in), 2),
                           b = random_values(size(c.out, 1), 3);
  std::vector<float> y(size(c.rows, c.out), std::numeric_limits<float>::quiet_NaN());
  if (c.store == Store::kAdd) y = random_values(y.size(), 4);
  const std::vector<float> before = y;
  const Linear layer({w.data(), DType::kFloat32, {c.out, c.in}},
                     {b.data(), DType::kFloat32, {c.out}}, c.activation, c.store);
  const ThreadScope threads(c.num_threads);
  layer.run(x.data(), c.rows, y.data());
  for (std::int64_t r = 0; r < c.rows; ++r)
    for (std::int64_t o = 0; o < c.out; ++o) {
      const auto at = static_cast<std::size_t>(r * c.out + o);
      double sum = b[static_cast<std::size_t>(o)];
      for (std::int64_t i = 0; i < c.in; ++i)
        sum += static_cast<double>(x[static_cast<std::size_t>(r * c.in + i)]) *
               w[static_cast<std::size_t>(o * c.in + i)];
      double expected = activate(c.activation, sum);
      if (c.store == Store::kAdd) expected += before[at];
      ASSERT_NEAR(y[at], expected, 4e-6 * std::sqrt(static_cast<double>(c.in)) + 1e-6)
          << "row " << r << " column " << o;
    }
}

TEST(Linear, EqualsAPlainLoopForEveryShape) {
  for (const std::int64_t rows : {1, 2, 7, 33, 130})
    for (const auto& [in, out] : {std::pair{1, 1}, {5, 3}, {24, 40}, {64, 64}, {384, 96}})
      check({rows, in, out});
}

TEST(Linear, AppliesTheActivationAsked) {
  for (const Activation activation :
       {Activation::kRelu, Activation::kGeluErf, Activation::kGeluTanh})
    check({19, 32, 48, activation});
}

TEST(Linear, AddsToWhatIsThere) {
  check({19, 32, 48, Activation::kNone, Store::kAdd});
  check({1, 7, 5, Activation::kNone, Store::kAdd});
}

TEST(Linear, GivesTheSameWithAnyNumberOfThreads) {
  for (const int num_threads : {1, 2, 3})
    check({65, 48, 64, Activation::kGeluErf, Store::kReplace, num_threads});
}

TEST(Linear, TellsErfFromTanh) {
  // Case 31: the two differ by up to 5e-4 near |x| = 2, far above rounding.
  const float one = 1, zero = 0, x = 2;
  const TensorView weight(&one, DType::kFloat32, {1, 1}), bias(&zero, DType::kFloat32, {1});
  float erf = 0, tanh = 0;
  Linear(weight, bias, Activation::kGeluErf).run(&x, 1, &erf);
  Linear(weight, bias, Activation::kGeluTanh).run(&x, 1, &tanh);
  EXPECT_NEAR(erf, 1.9544997, 1e-6);
  EXPECT_NEAR(tanh, 1.9545977, 1e-6);
}

TEST(Linear, RunsOnNoRowsAndFromManyThreadsAtOnce) {
  const std::vector<float> w = random_values(64 * 32, 1), b = random_values(64, 2);
  const Linear layer({w.data(), DType::kFloat32, {64, 32}}, {b.data(), DType::kFloat32, {64}});
  layer.run(nullptr, 0, nullptr);
  const std::vector<float> x = random_values(200 * 32, 3);
  std::vector<float> expected(200 * 64);
  layer.run(x.data(), 200, expected.data());
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (std::size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      const ThreadScope one(1);
      for (std::int64_t rows = 1; rows <= 200; rows += 3) {  // more than the layer remembers
        std::vector<float> y(static_cast<std::size_t>(rows) * 64, NAN);
        layer.run(x.data(), rows, y.data());
        for (std::size_t i = 0; i < y.size(); ++i)
          if (!(std::abs(y[i] - expected[i]) < 1e-5)) ++wrong[t];
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, ::testing::Each(0));
}

TEST(Linear, RefusesOperandsThatDoNotMatch) {
  const std::vector<float> data(64);
  const TensorView weight(data.data(), DType::kFloat32, {4, 8});
  EXPECT_THROW(Linear(weight, {data.data(), DType::kFloat32, {8}}), Error);
  EXPECT_THROW(Linear({data.data(), DType::kFloat16, {4, 8}}, {data.data(), DType::kFloat32, {4}}),
               Error);
  EXPECT_THROW(
      Linear({data.data(), DType::kFloat32, {4, 8}, {1, 4}}, {data.data(), DType::kFloat32, {4}}),
      Error);
  EXPECT_THROW(Linear(weight, {data.data(), DType::kFloat32, {4}}, Activation::kRelu, Store::kAdd),
               Error);
}

}  // namespace
}  // namespace stof::cpu
