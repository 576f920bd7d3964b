// Unit costs: the shipped profile, profiles of the user's own, how costs follow from times; the
// paper's rule.

#include "backend/cuda/attention/calibrate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "backend/cuda/attention/configs.h"
#include "backend/cuda/attention/paper_rule.h"
#include "core/env.h"
#include "core/log.h"
#include "stof/error.h"

namespace stof::cuda {
namespace {

using testing::HasSubstr;

AttentionProblem problem(std::int64_t head_dim) {
  AttentionProblem p;
  p.num_heads_q = 4;
  p.num_heads_kv = 2;
  p.seq_q = p.seq_kv = 1024;
  p.head_dim_qk = p.head_dim_v = head_dim;
  p.dtype = DType::kBFloat16;
  return p;
}

TEST(Calibration, NamesWhatChangesCostsOnly) {
  codegen::AttentionConfig config = sm90_configs(problem(128), true)[0];
  const std::string name = calibration_name(config);
  EXPECT_EQ(name.rfind("sm90_qk128_v128_", 0), 0u) << name;
  config.merge = config.softcap = true;
  config.element = DType::kFloat16;
  EXPECT_EQ(calibration_name(config), name);
  config.tile_kv -= 16;
  EXPECT_NE(calibration_name(config), name);
}

// A renamed configuration would silently be predicted from another one's figures.
TEST(Calibration, ShipsFiguresOfKernelsThatExist) {
  std::set<std::string> names;
  for (const std::int64_t head_dim : {64, 128})
    for (const bool shared_heads : {false, true})
      for (const auto& config : sm90_configs(problem(head_dim), shared_heads))
        names.insert(calibration_name(config));
  for (const CalibratedKernel& kernel : Calibration::shipped().kernels)
    EXPECT_TRUE(names.contains(kernel.kernel)) << kernel.kernel;
}

TEST(Calibration, ReadsBackWhatItWrites) {
  const Calibration& shipped = Calibration::shipped();
  EXPECT_EQ(shipped.gpu, "NVIDIA H200");
  const Calibration again = Calibration::from_json(shipped.to_json(), "copy");
  EXPECT_EQ(again.to_json(), shipped.to_json());
  EXPECT_EQ(again.kernels.size(), shipped.kernels.size());
}

TEST(Calibration, RefusesAProfileByFileAndField) {
  const auto refusal = [](auto change) -> std::string {
    auto json = nlohmann::json::parse(Calibration::shipped().to_json());
    change(json);
    try {
      Calibration::from_json(json.dump(), "mine.json");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refusal([](auto& j) { j["format"] = "other"; }), HasSubstr("mine.json: format"));
  EXPECT_THAT(refusal([](auto& j) { j["version"] = 2; }), HasSubstr("version: expected"));
  EXPECT_THAT(refusal([](auto& j) { j.erase("gpu"); }), HasSubstr("gpu: missing"));
  EXPECT_THAT(refusal([](auto& j) { j["kernels"] = nlohmann::json::array(); }),
              HasSubstr("at least one"));
  EXPECT_THAT(refusal([](auto& j) { j["kernels"][1]["full_ns"] = -5; }),
              HasSubstr("kernels[1]: full_ns: expected a number from 1"));
  EXPECT_THAT(refusal([](auto& j) { j["kernels"][0]["tile_kv"] = 64.5; }), HasSubstr("whole"));
  EXPECT_THAT(refusal([](auto& j) { j["kernels"][0]["pack_heads"] = 1; }), HasSubstr("true or"));
  EXPECT_THAT(refusal([](auto& j) { j["kernels"][0] = "x"; }), HasSubstr("expected an object"));
}

TEST(Calibration, CostsFollowFromFourTimes) {
  const UnitCosts costs{1500, 1700, 2000, 3000};
  const auto time = [&](double items, double tiles, double tile_ns) {
    return (costs.launch_ns + items * (costs.item_ns + tiles * tile_ns)) / 1000;
  };
  using Times = CalibrationTimes;
  const UnitCosts solved =
      solve_costs({time(Times::kFewItems, Times::kFewTiles, costs.full_ns),
                   time(Times::kManyItems, Times::kFewTiles, costs.full_ns),
                   time(Times::kFewItems, Times::kManyTiles, costs.full_ns),
                   time(Times::kFewItems, Times::kManyTiles, costs.partial_ns)});
  EXPECT_NEAR(solved.full_ns, costs.full_ns, 1e-6);
  EXPECT_NEAR(solved.partial_ns, costs.partial_ns, 1e-6);
  EXPECT_NEAR(solved.item_ns, costs.item_ns, 1e-6);
  EXPECT_NEAR(solved.launch_ns, costs.launch_ns, 1e-6);
  // Noise may make a difference negative; a cost never is.
  EXPECT_GE(solve_costs({5, 4, 3, 2}).full_ns, 1);
}

/// With a cache folder of its own.
class OwnProfile : public testing::Test {
 protected:
  void SetUp() override {
    previous_ = env_string("STOF_CACHE");
    std::string pattern = testing::TempDir() + "stof_calibration_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    ::setenv("STOF_CACHE", folder_.c_str(), 1);
    set_log_level(LogLevel::kOff);
  }
  void TearDown() override {
    set_log_level(LogLevel::kWarn);
    if (previous_)
      ::setenv("STOF_CACHE", previous_->c_str(), 1);
    else
      ::unsetenv("STOF_CACHE");
    std::filesystem::remove_all(folder_);
  }
  void write_profile(const std::string& gpu, const std::string& text) const {
    const std::filesystem::path path = Calibration::default_path(gpu);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::optional<std::string> previous_;
  std::string folder_;
};

TEST_F(OwnProfile, ReplacesTheShippedFigures) {
  const codegen::AttentionConfig config = sm90_configs(problem(128), true)[0];
  Calibration own = Calibration::shipped();
  own.gpu = "My GPU (PCIe)";
  ASSERT_NE(own.find(config), nullptr);
  for (CalibratedKernel& kernel : own.kernels) kernel.costs = {7, 8, 9, 10};
  write_profile(own.gpu, own.to_json());
  KernelTarget target;
  const double shipped_ns = unit_costs(config, target).full_ns;
  target.gpu = own.gpu;
  EXPECT_EQ(unit_costs(config, target).full_ns, 7);
  EXPECT_NE(shipped_ns, 7);
  codegen::AttentionConfig merging = config;
  merging.merge = true;
  EXPECT_GT(unit_costs(merging, target).item_ns, 9);
  target.gpu = "another GPU";
  EXPECT_EQ(unit_costs(config, target).full_ns, shipped_ns);
}

TEST_F(OwnProfile, IsPassedOverWhereItCannotBeUsed) {
  write_profile("Broken GPU", "{");
  write_profile("Renamed GPU", Calibration::shipped().to_json());  // says NVIDIA H200
  for (const char* gpu : {"Broken GPU", "Renamed GPU"})
    EXPECT_EQ(Calibration::of_gpu(gpu).to_json(), Calibration::shipped().to_json()) << gpu;
}

TEST(PaperRule, ComparesTheShareOfValidTilesWithItsThreshold) {
  const auto rule = [](const mask::Mask& mask, std::int64_t seq) {
    return paper_rule(compute_stats(build_block_mask(mask, {1, 1, seq, seq})), seq);
  };
  // 64 tiles a side: 1.2 / 36. A diagonal of tiles is 1/64, less than that.
  const PaperRule diagonal = rule(mask::chunked(16), 1024);
  EXPECT_NEAR(diagonal.valid_ratio, 1.0 / 64, 1e-12);
  EXPECT_NEAR(diagonal.threshold, 1.2 / 36, 1e-12);
  EXPECT_TRUE(diagonal.row_wise());
  EXPECT_FALSE(rule(mask::all(), 1024).row_wise());
  EXPECT_FALSE(rule(mask::window(64, 64), 1024).row_wise());
  EXPECT_TRUE(rule(mask::all(), 16).row_wise());
}

}  // namespace
}  // namespace stof::cuda
