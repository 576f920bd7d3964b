#include "jit/nvrtc.h"

#include <gtest/gtest.h>

namespace stof::jit {
namespace {

TEST(ParseResources, ReadsTheLargestOfEachFigure) {
  const ResourceReport report = parse_resources(
      "ptxas info    : 152 bytes gmem\n"
      "ptxas         .     192 bytes stack frame, 296 bytes spill stores, 388 bytes spill loads\n"
      "ptxas info    : Used 128 registers, used 16 barriers, 192 bytes cumulative stack size\n"
      "ptxas info    : Used 40 registers\n");
  EXPECT_EQ(report.registers, 128);
  EXPECT_EQ(report.spill_bytes, 388);
  EXPECT_EQ(report.stack_bytes, 192);
  EXPECT_FALSE(report.wgmma_serialized);
}

TEST(ParseResources, SeesSerialisedMatrixInstructions) {
  EXPECT_TRUE(
      parse_resources("ptxas info    : (C7510) Potential Performance Loss").wgmma_serialized);
  EXPECT_EQ(parse_resources("").registers, 0);
}

}  // namespace
}  // namespace stof::jit
