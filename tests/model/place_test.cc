// Where an encoder computes, as far as that can be said without a GPU.

#include "model/place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/tiny_bert.h"
#include "stof/error.h"
#include "stof/gpu_info.h"

namespace stof::model {
namespace {

using testing::HasSubstr;

class PlaceTest : public testing::Test {
 protected:
  PlaceTest() { TinyBert().write(folder_); }
  std::string message(const LoadOptions& options, ErrorCode code) const {
    try {
      TextEncoder::load(folder_.path(), options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      return error.what();
    }
    return "loaded";
  }
  TemporaryFolder folder_;
};

TEST_F(PlaceTest, ComputesOnTheCpuUnlessAskedOtherwise) {
  EXPECT_EQ(TextEncoder::load(folder_.path()).place(), "CPU, float32");
  EXPECT_EQ(TextEncoder::load(folder_.path(), {Place::kAuto, DType::kFloat32}).place(),
            "CPU, float32");
}

TEST_F(PlaceTest, RefusesTypesThatThePlaceDoesNotHave) {
  EXPECT_THAT(message({Place::kCpu, DType::kBFloat16}, ErrorCode::kUnsupported),
              HasSubstr("float32, got bfloat16"));
  EXPECT_THAT(message({Place::kCuda, DType::kFloat32}, ErrorCode::kUnsupported),
              HasSubstr("float16 or bfloat16, got float32"));
}

TEST_F(PlaceTest, SaysWhatIsMissingOfAGpu) {
  if (!gpu_info().devices.empty()) {
    // A machine with a GPU says other things; encoder_gpu_check covers it.
    EXPECT_NO_THROW(TextEncoder::load(folder_.path(), {Place::kAuto, {}}));
    return;
  }
  for (const Place place : {Place::kCuda, Place::kAuto})
    EXPECT_THAT(message({place, DType::kFloat16}, ErrorCode::kNotFound),
                HasSubstr("NVIDIA driver"));
  const TextEncoder encoder = TextEncoder::load(folder_.path(), {Place::kAuto, {}});
  EXPECT_EQ(encoder.place(), "CPU, float32");
  EXPECT_EQ(encoder.place_note(), "");  // nothing to say where there is no GPU
}

}  // namespace
}  // namespace stof::model
