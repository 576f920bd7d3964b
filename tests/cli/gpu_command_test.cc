// explain and cache: what concerns the GPU and can be said without one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "jit/cubin_cache.h"

namespace stof::cli {
namespace {

using testing::HasSubstr;

TEST(Explain, PredictsEveryWayToRunAMaskCheapestFirst) {
  const auto json = nlohmann::json::parse(run_stof({"explain", "attention", "dilated(512, 2)",
                                                    "--seq", "4096", "--heads", "32", "--json"})
                                              .out);
  double last = 0;
  for (const auto& candidate : json.at("candidates")) {
    if (!candidate.at("only_by_name").get<std::string>().empty()) break;
    EXPECT_GE(candidate.at("predicted_us").get<double>(), last);
    last = candidate.at("predicted_us").get<double>();
  }
  // Sorted by parity the mask has half the tiles.
  EXPECT_THAT(json.at("candidates").at(0).at("kernel").get<std::string>(), HasSubstr("step2"));
}

TEST(Explain, SaysWhichKernelsCannotRunAndWhy) {
  const std::string wide =
      run_stof({"explain", "attention", "causal", "--seq", "256", "--head-dim", "512"}).out;
  EXPECT_THAT(wide, HasSubstr("sm80_bf16_qk512_v512"));
  EXPECT_THAT(wide, HasSubstr("sm90  takes head dimensions up to 256, the problem has 512"));
  const auto json = nlohmann::json::parse(
      run_stof({"explain", "attention", "causal", "--seq", "256", "--capability", "89", "--json"})
          .out);
  EXPECT_EQ(json.at("infeasible").at(0).at("reason"),
            "needs compute capability 9.0, the GPU has 8.9");
}

TEST(Explain, ShowsThePapersRuleBeside) {
  const auto json = nlohmann::json::parse(
      run_stof({"explain", "attention", "chunked(16)", "--seq", "1024", "--json"}).out);
  EXPECT_EQ(json.at("paper_rule").at("picks"), "row-wise");
  EXPECT_NEAR(json.at("paper_rule").at("valid_ratio").get<double>(), 1.0 / 64, 1e-9);
  EXPECT_THAT(run_stof({"explain", "attention", "causal", "--seq", "1024"}).out,
              HasSubstr("the paper's rule, not used: valid 16x16 tiles 0.508"));
}

TEST(Calibrate, NeedsAGpu) {
  EXPECT_THAT(user_error(run_stof({"calibrate"})), HasSubstr("NVIDIA driver"));
}

TEST(Explain, RefusesWhatNoKernelTakes) {
  EXPECT_THAT(
      user_error(run_stof({"explain", "attention", "causal", "--seq", "64", "--head-dim", "12"})),
      HasSubstr("multiples of 8"));
}

TEST(Cache, ListsVerifiesAndClearsTheEntriesOfItsFolder) {
  const TemporaryFolder folder;
  const auto cache = [&folder](const std::string& command) {
    return run_shell("bash", "STOF_CACHE=" + folder.path() + " \"$stof\" cache " + command);
  };
  EXPECT_EQ(cache("ls").out, "0 kernels in " + folder / "cubin" + "\n0 tuning records in " +
                                 folder / "tuning" + "\n");
  jit::CubinCache(folder / "cubin").store({"source", "sm_90a", "13.0"}, "a_kernel", "cubin");
  EXPECT_THAT(cache("ls").out, HasSubstr("a_kernel"));
  EXPECT_EQ(cache("verify").exit_code, 0);

  const std::string entry = jit::CubinCache(folder / "cubin").list().at(0).path;
  std::ofstream(entry, std::ios::app) << "x";
  const Finished damaged = cache("verify");
  EXPECT_EQ(damaged.exit_code, 2);
  EXPECT_THAT(damaged.err, HasSubstr(entry));
  EXPECT_THAT(cache("clear").out, HasSubstr("1 entries removed"));
  EXPECT_TRUE(jit::CubinCache(folder / "cubin").list().empty());
}

TEST(Cache, CarriesEntriesToAnotherMachine) {
  const TemporaryFolder here, there;
  const auto cache = [](const TemporaryFolder& folder, const std::string& command) {
    return run_shell("bash", "STOF_CACHE=" + folder.path() + " \"$stof\" cache " + command);
  };
  const std::string file = here / "kernels.bin";
  EXPECT_THAT(user_error(cache(here, "export " + file)), HasSubstr("no kernels to export"));
  for (const char* source : {"a", "b"})
    jit::CubinCache(here / "cubin").store({source, "sm_90a", "13.0"}, source, "cubin");
  EXPECT_THAT(cache(here, "export " + file).out, HasSubstr("2 kernels"));
  EXPECT_THAT(cache(there, "import " + file).out, HasSubstr("2 kernels imported"));
  EXPECT_EQ(jit::CubinCache(there / "cubin").load({"b", "sm_90a", ""}), "cubin");

  // A damaged file is refused whole.
  cache(there, "clear");
  std::fstream(file, std::ios::in | std::ios::out).seekp(-1, std::ios::end).put('x');
  EXPECT_THAT(user_error(cache(there, "import " + file)), HasSubstr("copy it again"));
  EXPECT_TRUE(jit::CubinCache(there / "cubin").list().empty());
}

TEST(Cache, RefusesToWarmForATargetWithoutKernels) {
  EXPECT_THAT(user_error(run_stof({"cache", "warm", "--target", "sm_10"})), HasSubstr("sm_10"));
}

}  // namespace
}  // namespace stof::cli
