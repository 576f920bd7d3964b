// The row kernels compile for every target without spills; names and limits of their
// configurations.

#include "backend/cuda/rows/row_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "jit/nvrtc.h"
#include "stof/error.h"

namespace stof::cuda {
namespace {

using codegen::RowConfig;
using codegen::RowOperator;
using testing::HasSubstr;

void expect_clean(DType element, std::int64_t width, const char* target) {
  for (const KernelSource& source : RowKernels::sources(element, width)) {
    const auto module = jit::Nvrtc::instance().compile(source.name, source.text, target);
    const jit::ResourceReport report = jit::parse_resources(module.log);
    EXPECT_GT(report.registers, 0) << source.name;
    EXPECT_EQ(report.spill_bytes, 0) << source.name;
    EXPECT_EQ(report.stack_bytes, 0) << source.name;
  }
}

TEST(RowKernelBuild, CompilesRowsOfOneWarp) { expect_clean(DType::kFloat16, 384, "sm_90a"); }
TEST(RowKernelBuild, CompilesRowsOfSeveralWarps) { expect_clean(DType::kBFloat16, 1032, "sm_80"); }

TEST(RowKernels, NamesTellAllConfigurationsApart) {
  std::set<std::string> names, texts;
  for (const DType element : {DType::kFloat16, DType::kBFloat16})
    for (const std::int64_t width : {24, 384, 1032})
      for (const KernelSource& source : RowKernels::sources(element, width)) {
        EXPECT_EQ(names.insert(source.name).second, texts.insert(source.text).second)
            << source.name;
      }
}

TEST(RowConfig, GivesARowAsManyWarpsAsItsRegistersNeed) {
  const auto config = [](int width) {
    return RowConfig{RowOperator::kResidualNorm, DType::kFloat16, width};
  };
  EXPECT_EQ(config(8).warps(), 1);
  EXPECT_EQ(config(1024).warps(), 1);
  EXPECT_EQ(config(1024).rows_per_block(), 4);
  EXPECT_EQ(config(1032).warps(), 2);
  EXPECT_EQ(config(1032).rows_per_block(), 1);
  EXPECT_EQ(config(RowConfig::kMaxWidth).threads(), 1024);
}

TEST(RowConfig, RefusesWidthsAndTypesItHasNoKernelFor) {
  const auto message = [](DType element, std::int64_t width) -> std::string {
    try {
      RowKernels::sources(element, width);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message(DType::kFloat16, 12), HasSubstr("multiples of 8 from 8 to 32768, got 12"));
  EXPECT_THAT(message(DType::kFloat16, 0), HasSubstr("got 0"));
  EXPECT_THAT(message(DType::kFloat16, std::int64_t{1} << 40), HasSubstr("row width"));
  EXPECT_THAT(message(DType::kFloat32, 384), HasSubstr("float16 and bfloat16, got float32"));
}

}  // namespace
}  // namespace stof::cuda
