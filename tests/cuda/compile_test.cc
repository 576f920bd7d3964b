// Several kernels compiled at once, and the kernels that are compiled ahead. Needs NVRTC.

#include "jit/compile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>

#include "backend/cuda/common_kernels.h"
#include "backend/cuda/rows/row_program.h"
#include "core/env.h"
#include "jit/nvrtc.h"
#include "stof/error.h"

namespace stof::cuda {
namespace {

using testing::HasSubstr;

jit::CubinRequest request(int i) {
  return {"kernel_" + std::to_string(i),
          "extern \"C\" __global__ void f(int* x) { *x = " + std::to_string(i) + "; }", "sm_90a"};
}

/// With a cache folder of its own.
class NvrtcCompile : public testing::Test {
 protected:
  void SetUp() override {
    jit::Nvrtc::instance();  // may lie in the user's cache folder
    previous_ = env_string("STOF_CACHE");
    std::string pattern = testing::TempDir() + "stof_compile_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    ::setenv("STOF_CACHE", folder_.c_str(), 1);
  }
  void TearDown() override {
    if (previous_)
      ::setenv("STOF_CACHE", previous_->c_str(), 1);
    else
      ::unsetenv("STOF_CACHE");
    std::filesystem::remove_all(folder_);
  }
  std::optional<std::string> previous_;
  std::string folder_;
};

TEST_F(NvrtcCompile, CompilesSeveralAtOnceInOrder) {
  std::vector<jit::CubinRequest> requests;
  for (int i = 0; i < 6; ++i) requests.push_back(request(i));
  const std::vector<std::string> together = jit::cubins_for(requests, 3);
  ASSERT_EQ(together.size(), requests.size());
  for (int i = 0; i < 6; ++i) {
    const jit::CubinRequest& one = requests[static_cast<std::size_t>(i)];
    EXPECT_EQ(together[static_cast<std::size_t>(i)],
              jit::cubin_for(one.name, one.source, one.target));
  }
  EXPECT_TRUE(jit::cubins_for({}).empty());
  EXPECT_EQ(jit::CubinCache::standard().list().size(), 6u);
}

TEST_F(NvrtcCompile, ThrowsTheFirstFailureOfSeveral) {
  std::vector<jit::CubinRequest> requests = {request(10), request(11), request(12)};
  requests[1].source = "this is not CUDA";
  requests[2].source = "nor is this";
  try {
    jit::cubins_for(requests, 3);
    FAIL() << "compiled";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kJit);
    EXPECT_THAT(error.what(), HasSubstr("kernel_11 for sm_90a"));
  }
  EXPECT_EQ(jit::CubinCache::standard().list().size(), 1u);  // what did compile is kept
}

TEST(CommonKernels, AreDistinctAndCoverWhatIsAsked) {
  std::set<std::string> names, sources;
  for (const jit::CubinRequest& one : common_kernels({{64}, {384}, {DType::kBFloat16}}, "sm_90a")) {
    EXPECT_TRUE(names.insert(one.name).second) << one.name;
    EXPECT_TRUE(sources.insert(one.source).second) << one.name;
    EXPECT_EQ(one.target, "sm_90a");
  }
  for (const codegen::RowProgramConfig& config : encoder_row_programs(DType::kBFloat16, 384))
    EXPECT_TRUE(names.contains(config.name())) << config.name();
  EXPECT_GT(names.size(), 8u);
  EXPECT_THROW(common_kernels({}, "sm_10"), Error);
}

}  // namespace
}  // namespace stof::cuda
