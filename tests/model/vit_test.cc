// ViT: the small checkpoints and images of tools/make_golden_vit.py against transformers, and
// checkpoints, settings and images that are wrong.

#include "model/vit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model/expect_error.h"
#include "model/image.h"
#include "model/vit_golden.h"
#include "stof/error.h"
#include "stof/image_classifier.h"

namespace stof::model {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

ClassifyOptions alone() {
  ClassifyOptions options;
  options.num_threads = 1;
  return options;
}

TEST(Vit, GivesTransformersLogitsUnderEveryFieldThatChangesNumbers) {
  const VitGolden golden;
  for (const json& entry : golden.cases()) {
    SCOPED_TRACE(entry.at("name").get<std::string>());
    const TemporaryFolder folder;
    golden.write(folder, entry);
    const ImageClassifier classifier = ImageClassifier::load(folder.path());
    const Tensor image = classifier.pixels(golden.image("vit_rgb.png"));
    // In company: an image gives what it gives alone.
    Tensor images(DType::kFloat32, {3, 3, image.shape()[1], image.shape()[2]});
    for (std::size_t i = 0; i < images.as<float>().size(); ++i)
      images.as<float>()[i] = image.as<float>()[i % image.as<float>().size()];
    images.as<float>()[0] += 1;  // of the first
    const Tensor logits = classifier.logits(images, alone());
    const TensorView expected = golden.tensor("logits." + entry.at("name").get<std::string>());
    const std::int64_t labels = expected.shape[0];
    ASSERT_EQ(logits.shape(), Dims({3, labels}));
    const auto* values = static_cast<const float*>(expected.data);
    for (std::int64_t i = 0; i < labels; ++i)
      for (const std::int64_t row : {1, 2})
        EXPECT_NEAR(logits.as<float>()[static_cast<std::size_t>(row * labels + i)], values[i],
                    2e-5);
  }
}

TEST(Vit, NamesLabelsAndFollowsAMask) {
  const VitGolden golden;
  const TemporaryFolder folder;
  golden.write(folder, golden.at("base"));
  const ImageClassifier classifier = ImageClassifier::load(folder.path());
  EXPECT_THAT(classifier.describe(), HasSubstr("ViT: 2 layers, hidden 24, 3 heads of 8"));
  const std::string path = golden.image("vit_rgb.png");
  ClassifyOptions options = alone();
  options.batch = 2;
  const auto results = classifier.classify({path, golden.image("vit_grey.png"), path}, options);
  ASSERT_EQ(results.size(), 3u);
  ASSERT_EQ(results[0].size(), 4u);  // fewer than the five that were asked for
  const auto* logits = static_cast<const float*>(golden.tensor("logits.base").data);
  double sum = 0;
  for (int i = 0; i < 4; ++i) sum += std::exp(logits[i]);
  for (const ImageLabel& label : results[2]) {
    EXPECT_NEAR(label.probability, std::exp(logits[label.id]) / sum, 1e-5);
    EXPECT_EQ(label.label,
              golden.at("base").at("config").at("id2label").at(std::to_string(label.id)));
  }
  EXPECT_GE(results[0][0].probability, results[0][1].probability);
  EXPECT_NE(results[0][0].probability, results[1][0].probability);
  options.count = 1;
  const auto under = [&](const mask::MaskSet& set) {
    options.mask = set;
    return classifier.classify({path}, options)[0][0].probability;
  };
  const mask::Mask window = mask::window(1, 1);
  const float dense = results[0][0].probability, everywhere = under(window);
  EXPECT_NE(everywhere, dense);
  EXPECT_EQ(under(mask::MaskSet(mask::all(), {{{{0, 1}}, {{0, 2}}, window}})), everywhere);
  const float layer = under(mask::MaskSet(mask::all(), {{{{0, 0}}, {}, window}}));
  const float head = under(mask::MaskSet(mask::all(), {{{{0, 0}}, {{1, 1}}, window}}));
  EXPECT_TRUE(layer != dense && layer != everywhere && head != dense && head != layer);
  EXPECT_THAT(expect_error(ErrorCode::kInvalidArgument,
                           [&] {
                             under(mask::MaskSet(window, {{{{2, 2}}, {}, window}}));
                           }),
              HasSubstr("rules[0].layers: expected layers below 2"));
  options.mask = window;
  options.count = 0;
  EXPECT_THAT(
      expect_error(ErrorCode::kInvalidArgument, [&] { classifier.classify({path}, options); }),
      HasSubstr("count"));
  EXPECT_THAT(expect_error(ErrorCode::kInvalidArgument,
                           [&] {
                             classifier.logits(Tensor(DType::kFloat32, {1, 3, 12, 13}));
                           }),
              AllOf(HasSubstr("[images, 3, 12, 12]"), HasSubstr("[1, 3, 12, 13]")));
}

TEST(Vit, RefusesByNameWhatItCannotHonour) {
  const VitGolden golden;
  const std::tuple<const char*, json, ErrorCode> kCases[] = {
      {"model_type", "swin", ErrorCode::kUnsupported},
      {"hidden_act", "silu", ErrorCode::kUnsupported},
      {"num_channels", 1, ErrorCode::kUnsupported},
      {"patch_size", 5, ErrorCode::kUnsupported},
      {"image_size", {12, 12, 3}, ErrorCode::kCorrupt},
      {"head_dim", 16, ErrorCode::kUnsupported},
      {"num_attention_heads", 5, ErrorCode::kCorrupt},
      {"problem_type", "multi_label_classification", ErrorCode::kUnsupported},
      {"id2label", {{"0", "one"}}, ErrorCode::kUnsupported},
      {"id2label", {{"0", "one"}, {"2", "two"}}, ErrorCode::kCorrupt},
      {"quantization_config", {{"bits", 8}}, ErrorCode::kUnsupported}};
  for (const auto& [field, value, code] : kCases) {
    json config = golden.at("base").at("config");
    config[field] = value;
    EXPECT_THAT(expect_error(code, [&] { parse_vit_config(config.dump(), "dir/config.json"); }),
                AllOf(HasSubstr("dir/config.json"), HasSubstr(field), HasSubstr("expected")));
  }
}

TEST(Vit, NamesTheTensorThatIsMissingOrMisshapen) {
  const VitGolden golden;
  const json& entry = golden.at("base");
  for (const std::string name :
       {"vit.embeddings.cls_token", "classifier.bias", "vit.embeddings.position_embeddings",
        "vit.encoder.layer.1.attention.attention.key.weight"}) {
    auto weights = golden.weights(entry);
    Dims wrong = weights.at(name).shape();
    wrong[wrong.rank() - 1] += 1;
    const std::string expected = weights.at(name).shape().to_string();
    weights[name] = Tensor(DType::kFloat32, wrong);
    const TemporaryFolder folder;
    golden.write(folder, entry, weights);
    EXPECT_THAT(expect_error(ErrorCode::kCorrupt, [&] { ImageClassifier::load(folder.path()); }),
                AllOf(HasSubstr(name), HasSubstr(expected), HasSubstr(wrong.to_string())));
    weights.erase(name);
    golden.write(folder, entry, weights);
    EXPECT_THAT(expect_error(ErrorCode::kNotFound, [&] { ImageClassifier::load(folder.path()); }),
                HasSubstr(name));
  }
  const TemporaryFolder folder;
  golden.write(folder, entry);
  folder.write("preprocessor_config.json", R"({"size": {"height": 12, "width": 16}})");
  EXPECT_THAT(expect_error(ErrorCode::kUnsupported, [&] { ImageClassifier::load(folder.path()); }),
              AllOf(HasSubstr("image_size"), HasSubstr("12x16")));
  folder.write("preprocessor_config.json", R"({"do_resize": false})");
  const ImageClassifier classifier = ImageClassifier::load(folder.path());
  EXPECT_THAT(expect_error(ErrorCode::kUnsupported,
                           [&] { classifier.classify({golden.image("vit_rgb.png")}); }),
              AllOf(HasSubstr("vit_rgb.png"), HasSubstr("[3, 29, 37]")));
}

// --- images -------------------------------------------------------------------------------------

TEST(Image, IsWhatTransformersProcessorMakesOfItUnderEverySetting) {
  const VitGolden golden;
  for (const json& entry : golden.processors()) {
    SCOPED_TRACE(entry.at("name").get<std::string>());
    const ImageProcessor processor = parse_image_processor(entry.at("fields").dump(), "p.json");
    const std::string image = entry.at("image");
    const Tensor found = processor(load_image(golden.image(image)));
    const TensorView expected = golden.tensor("pixels." + entry.at("name").get<std::string>());
    ASSERT_EQ(found.shape(), expected.shape);
    // JPEG decoders differ by one of 256 levels.
    const double bound = image.ends_with(".jpg") ? 1.01 * 2 / 255 : 1e-6;
    for (std::size_t i = 0; i < found.as<float>().size(); ++i)
      ASSERT_NEAR(found.as<float>()[i], static_cast<const float*>(expected.data)[i], bound) << i;
  }
}

TEST(Image, RefusesSettingsItDoesNotHonour) {
  const std::pair<const char*, json> kCases[] = {{"image_processor_type", "CLIPImageProcessor"},
                                                 {"do_center_crop", true},
                                                 {"do_pad", true},
                                                 {"crop_size", 10},
                                                 {"resample", 0},
                                                 {"size", {{"shortest_edge", 10}}}};
  for (const auto& [field, value] : kCases)
    EXPECT_THAT(expect_error(ErrorCode::kUnsupported,
                             [&] {
                               parse_image_processor(json{{field, value}}.dump(), "p.json");
                             }),
                AllOf(HasSubstr("p.json"),
                      HasSubstr(std::string_view(field) == "size" ? "shortest_edge" : field)));
  for (const json& wrong : {json{{"image_mean", {0.5, 0.5}}}, json{{"image_std", {0.5, 0, 0.5}}},
                            json{{"size", {{"height", 0}, {"width", 3}}}}})
    expect_error(ErrorCode::kCorrupt, [&] { parse_image_processor(wrong.dump(), "p.json"); });
}

TEST(Image, RefusesFilesThatAreNoImageOrNotWhole) {
  const VitGolden golden;
  EXPECT_THAT(
      expect_error(ErrorCode::kUnsupported, [&] { load_image(golden.image("vit_turned.jpg")); }),
      AllOf(HasSubstr("vit_turned.jpg"), HasSubstr("orientation 6")));
  EXPECT_THAT(expect_error(ErrorCode::kUnsupported, [] { decode_image("GIF89a", "x.gif"); }),
              AllOf(HasSubstr("x.gif"), HasSubstr("PNG or JPEG")));
  expect_error(ErrorCode::kUnsupported, [] { decode_image("", "empty"); });
  expect_error(ErrorCode::kNotFound, [] { load_image("/no/such.png"); });
  const std::string whole = read_file(golden.image("vit_rgb.png"));
  expect_error(ErrorCode::kCorrupt,
               [&] { decode_image(whole.substr(0, whole.size() / 2), "cut"); });
  for (std::size_t size = 0; size < whole.size(); size += 7) {
    try {
      decode_image(std::string_view(whole).substr(0, size), "cut");
    } catch (const Error& error) {
      EXPECT_TRUE(error.is_user_fault()) << error.what();
    }
  }
  // JPEGs that end where a block of EXIF begins.
  const std::string photo = read_file(golden.image("vit_photo.jpg"));
  for (const std::size_t size : {std::size_t{2}, std::size_t{20}, photo.size() / 2}) {
    try {
      decode_image(photo.substr(0, size) + "\xFF\xE1\xFF", "cut");
      ADD_FAILURE() << size;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("cut: "));
    }
  }
}

}  // namespace
}  // namespace stof::model
