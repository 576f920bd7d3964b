// explain and cache: what concerns the GPU and can be said without one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/program.h"

namespace stof::cli {
namespace {

using testing::HasSubstr;

TEST(Explain, PredictsEveryWayToRunAMaskCheapestFirst) {
  const auto json = nlohmann::json::parse(
      run_stof({"explain", "attention", "dilated(512, 2)", "--seq", "4096", "--heads", "32", "--json"})
          .out);
  double last = 0;
  for (const auto& candidate : json.at("candidates")) {
    EXPECT_GE(candidate.at("predicted_us").get<double>(), last);
    last = candidate.at("predicted_us").get<double>();
  }
  // Sorted by parity the mask has half the tiles.
  EXPECT_THAT(json.at("candidates").at(0).at("kernel").get<std::string>(), HasSubstr("step2"));
}

TEST(Explain, RefusesWhatNoKernelTakes) {
  EXPECT_THAT(user_error(run_stof({"explain", "attention", "causal", "--seq", "64", "--head-dim", "12"})),
              HasSubstr("multiples of 8"));
}

TEST(Cache, ListsNothingInANewFolder) {
  const Finished finished = run_stof({"cache", "ls"});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.out, HasSubstr("kernels in "));
}

}  // namespace
}  // namespace stof::cli
