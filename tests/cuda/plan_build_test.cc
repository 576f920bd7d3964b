// The kernels that make plans compile for every target without spills. Needs NVRTC, but neither a
// GPU nor a driver.

#include <gtest/gtest.h>

#include "codegen/plan.h"
#include "jit/nvrtc.h"

namespace stof {
namespace {

class PlanKernelBuild : public testing::TestWithParam<std::string> {};

TEST_P(PlanKernelBuild, CompilesWithoutSpills) {
  for (const auto& [name, text] : {std::pair{"list_blocks", codegen::emit_list_blocks()},
                                   {"order_records", codegen::emit_order_records()}}) {
    const jit::ResourceReport report =
        jit::parse_resources(jit::Nvrtc::instance().compile(name, text, GetParam()).log);
    EXPECT_GT(report.registers, 0) << name;
    EXPECT_LE(report.registers, 64) << name;
    EXPECT_EQ(report.spill_bytes, 0) << name;
    EXPECT_EQ(report.stack_bytes, 0) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, PlanKernelBuild, testing::Values("sm_80", "sm_89", "sm_90a"),
                         [](const auto& target) { return target.param; });

}  // namespace
}  // namespace stof
