// Parts of the kernels by themselves, and memory beyond 2^31 elements.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "cpu/attention_support.h"
#include "stof/error.h"

namespace stof::cpu {
namespace {

using testing::HasSubstr;

class EveryLevel : public testing::TestWithParam<CpuIsa> {};
INSTANTIATE_TEST_SUITE_P(Kernel, EveryLevel, testing::ValuesIn(supported_isas()),
                         [](const auto& isa) { return std::string(to_string(isa.param)); });

TEST_P(EveryLevel, ExponentialIsWithinTwoUlp) {
  std::vector<float> x;
  for (float value = 0; value > -88; value -= 0.000731f) x.push_back(value);
  for (float value = 1e-30f; value < 1; value *= 1.37f) x.push_back(-value);
  std::vector<float> y(x.size(), NAN);
  attention_kernels(GetParam()).exp_array(x.data(), y.data(), static_cast<std::int64_t>(x.size()));
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(static_cast<double>(x[i]));
    if (exact < 0x1p-126) {
      EXPECT_EQ(y[i], 0) << x[i];
      continue;
    }
    const double ulp = std::ldexp(1.0, std::ilogb(exact) - 23);
    worst = std::max(worst, std::abs(y[i] - exact) / ulp);
  }
  EXPECT_LE(worst, 2);
  EXPECT_GT(worst, 0);  // a float can't be exact everywhere
}

TEST_P(EveryLevel, ExponentialKeepsSpecialValues) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {0.0f,
                                -0.0f,
                                -infinity,
                                -std::numeric_limits<float>::max(),
                                -88.0f,
                                NAN,
                                -std::numeric_limits<float>::denorm_min(),
                                -87.3f};
  std::vector<float> y(x.size(), 7);
  attention_kernels(GetParam()).exp_array(x.data(), y.data(), static_cast<std::int64_t>(x.size()));
  EXPECT_EQ(y[0], 1);
  EXPECT_EQ(y[1], 1);
  EXPECT_EQ(y[2], 0);
  EXPECT_EQ(y[3], 0);
  EXPECT_EQ(y[4], 0);
  EXPECT_TRUE(std::isnan(y[5]));
  EXPECT_EQ(y[6], 1);
  EXPECT_GT(y[7], 0);
}

TEST(CpuFeatures, SelectsTheLevelAskedFor) {
  const char* before = std::getenv("STOF_CPU_ISA");
  const std::string kept = before == nullptr ? "" : before;
  for (const CpuIsa isa : supported_isas()) {
    ::setenv("STOF_CPU_ISA", to_string(isa), 1);
    EXPECT_EQ(selected_isa(), isa);
  }
  ::setenv("STOF_CPU_ISA", "sse9", 1);
  EXPECT_EQ(error_of([] { selected_isa(); }),
            "environment variable STOF_CPU_ISA: expected scalar, avx2 or avx512, got \"sse9\"");
  for (const CpuIsa isa : {CpuIsa::kAvx2, CpuIsa::kAvx512}) {
    if (cpu_supports(isa)) continue;
    ::setenv("STOF_CPU_ISA", to_string(isa), 1);
    EXPECT_THAT(error_of([] { selected_isa(); }), HasSubstr("cannot run"));
    EXPECT_THAT(error_of([&] { attention_kernels(isa); }), HasSubstr("cannot run"));
  }
  ::unsetenv("STOF_CPU_ISA");
  EXPECT_EQ(selected_isa(), supported_isas().back());
  if (!kept.empty()) ::setenv("STOF_CPU_ISA", kept.c_str(), 1);
}

// Case 9: K as [rows, batch, dim] with row * stride >= 2^31 elements. The memory is reserved, not
// used: only the pages of the rows touched exist.
TEST_P(EveryLevel, ReadsKeysPastTwoToThe31Elements) {
  constexpr std::int64_t kRows = 130, kDim = 8, kStride = (std::int64_t{1} << 31) / 128;
  static_assert((kRows - 1) * kStride >= (std::int64_t{1} << 31));
  const std::size_t bytes = static_cast<std::size_t>(kRows * kStride) * sizeof(float);
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  AttentionProblem problem;
  problem.seq_q = 3;
  problem.seq_kv = kRows;
  problem.head_dim_qk = problem.head_dim_v = kDim;
  Operands operands(problem, 9), far(problem, 9);
  const std::vector<double> keys = operands.k.values();
  auto* far_keys = static_cast<float*>(memory);
  for (std::int64_t row = 0; row < kRows; ++row)
    for (std::int64_t d = 0; d < kDim; ++d)
      far_keys[row * kStride + d] =
          static_cast<float>(keys[static_cast<std::size_t>(row * kDim + d)]);
  AttentionTensors tensors = far.tensors();
  tensors.k = TensorView(memory, DType::kFloat32, {1, 1, kRows, kDim}, {kDim, kDim, kStride, 1});
  const AttentionPlan plan = plan_attention(problem, mask::all());
  run_attention_with(plan, operands.tensors(), {}, GetParam());
  run_attention_with(plan, tensors, {}, GetParam());
  EXPECT_EQ(far.out.bytes(), operands.out.bytes());
  far.out.poison();
  attention_reference(problem, mask::all(), tensors);
  const std::vector<double> expected = far.out.values(), actual = operands.out.values();
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-6);
  ::munmap(memory, bytes);
}

}  // namespace
}  // namespace stof::cpu
