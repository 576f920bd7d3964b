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

double apply(PostOp op, double x, double operand) {
  switch (op) {
    case PostOp::kAdd:
      return x + operand;
    case PostOp::kMultiply:
      return x * operand;
    case PostOp::kSilu:
      return x / (1 + std::exp(-x));
    case PostOp::kRelu:
      return x > 0 ? x : 0;
    case PostOp::kGeluErf:
      return x / 2 * (1 + std::erf(x / std::numbers::sqrt2));
    case PostOp::kGeluTanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
  }
  return NAN;
}

struct Case {
  std::int64_t rows, in, out;
  std::vector<PostOp> post_ops = {};
  int num_threads = 0;
  bool has_bias = true;
  PackedWeight::Layout layout = PackedWeight::Layout::kPacked;
};

/// Runs one layer and compares every element with a plain double loop.
void check(const Case& c) {
  SCOPED_TRACE(::testing::Message() << c.rows << "x" << c.in << "x" << c.out << ", "
                                    << c.post_ops.size() << " post-ops, threads " << c.num_threads);
  const auto size = [](std::int64_t a, std::int64_t b) { return static_cast<std::size_t>(a * b); };
  const std::vector<float> x = random_values(size(c.rows, c.in), 1),
                           w = random_values(size(c.out, c.in), 2),
                           b = random_values(size(c.out, 1), 3);
  std::vector<std::vector<float>> operands;
  std::vector<const float*> pointers;
  for (const PostOp op : c.post_ops)
    if (op == PostOp::kAdd || op == PostOp::kMultiply)
      operands.push_back(random_values(size(c.rows, c.out), 4 + static_cast<unsigned>(op)));
  for (const auto& operand : operands) pointers.push_back(operand.data());
  std::vector<float> y(size(c.rows, c.out), std::numeric_limits<float>::quiet_NaN());
  const TensorView weight(w.data(), DType::kFloat32, {c.out, c.in});
  const Linear layer(std::make_shared<const PackedWeight>(weight, c.layout),
                     c.has_bias ? TensorView(b.data(), DType::kFloat32, {c.out}) : TensorView(),
                     c.post_ops);
  const ThreadScope threads(c.num_threads);
  layer.run(x.data(), c.rows, y.data(), pointers);
  for (std::int64_t r = 0; r < c.rows; ++r)
    for (std::int64_t o = 0; o < c.out; ++o) {
      const auto at = static_cast<std::size_t>(r * c.out + o);
      double expected = c.has_bias ? b[static_cast<std::size_t>(o)] : 0;
      for (std::int64_t i = 0; i < c.in; ++i)
        expected += static_cast<double>(x[static_cast<std::size_t>(r * c.in + i)]) *
                    w[static_cast<std::size_t>(o * c.in + i)];
      std::size_t next = 0;
      for (const PostOp op : c.post_ops) {
        const bool reads = op == PostOp::kAdd || op == PostOp::kMultiply;
        expected = apply(op, expected, reads ? operands[next++][at] : 0);
      }
      const double bound = 4e-6 * std::sqrt(static_cast<double>(c.in)) + 1e-6;
      ASSERT_NEAR(y[at], expected, bound * std::max(1.0, std::abs(expected) / 4))
          << "row " << r << " column " << o;
    }
}

TEST(Linear, EqualsAPlainLoopForEveryShape) {
  for (const std::int64_t rows : {1, 2, 7, 33, 130})
    for (const auto& [in, out] : {std::pair{1, 1}, {5, 3}, {24, 40}, {64, 64}, {384, 96}})
      check({rows, in, out});
}

TEST(Linear, AppliesThePostOpsAskedInTheirOrder) {
  for (const PostOp op : {PostOp::kRelu, PostOp::kGeluErf, PostOp::kGeluTanh, PostOp::kSilu,
                          PostOp::kAdd, PostOp::kMultiply})
    check({19, 32, 48, {op}});
  check({1, 7, 5, {PostOp::kAdd}});
  check({19, 32, 48, {PostOp::kSilu, PostOp::kMultiply, PostOp::kAdd}});
  check({19, 32, 48, {PostOp::kAdd, PostOp::kRelu}});
}

TEST(Linear, TakesWeightsAsTheyAreAndNoBias) {
  for (const auto layout : {PackedWeight::Layout::kPacked, PackedWeight::Layout::kPlain})
    for (const bool has_bias : {false, true})
      check({33, 48, 40, {PostOp::kGeluErf, PostOp::kAdd}, 0, has_bias, layout});
}

TEST(Linear, GivesTheSameWithAnyNumberOfThreads) {
  for (const int num_threads : {1, 2, 3}) check({65, 48, 64, {PostOp::kGeluErf}, num_threads});
}

TEST(Linear, TellsErfFromTanh) {
  // Case 31: the two differ by up to 5e-4 near |x| = 2, far above rounding.
  const float one = 1, zero = 0, x = 2;
  const TensorView weight(&one, DType::kFloat32, {1, 1}), bias(&zero, DType::kFloat32, {1});
  float erf = 0, tanh = 0;
  Linear(weight, bias, {PostOp::kGeluErf}).run(&x, 1, &erf);
  Linear(weight, bias, {PostOp::kGeluTanh}).run(&x, 1, &tanh);
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
  float y[4];
  const Linear adds(weight, {data.data(), DType::kFloat32, {4}}, {PostOp::kAdd});
  EXPECT_THROW(adds.run(data.data(), 1, y), Error);
}

}  // namespace
}  // namespace stof::cpu
