// Masks of layers and heads of their own: encoders against plain loops, decoders over caches
// against the whole pass, images.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/expect_error.h"
#include "model/tiny_bert.h"
#include "model/tiny_llama.h"
#include "stof/mask_set.h"
#include "stof/text_encoder.h"
#include "stof/text_generator.h"

namespace stof::model {
namespace {

using mask::MaskSet;
using testing::AllOf;
using testing::HasSubstr;

double worst_difference(const Tensor& found, const std::vector<std::vector<double>>& expected) {
  double worst = 0;
  std::size_t at = 0;
  for (const auto& row : expected)
    for (const double value : row) {
      const double off = std::abs(found.as<float>()[at++] - value);
      worst = std::isfinite(off) ? std::max(worst, off) : INFINITY;
    }
  EXPECT_EQ(at, found.as<float>().size());
  return worst;
}

EncodeOptions encode_under(MaskSet set) {
  EncodeOptions options;
  options.num_threads = 1;
  options.mask = std::move(set);
  return options;
}

TEST(LayerMasks, OfLayersAndHeadsEqualPlainLoops) {
  const TinyBert tiny(3, {24, 3, 40, 4});
  const TemporaryFolder folder;
  tiny.write(folder);
  folder.write("blocks.json", R"J({"block_q": 2, "block_kv": 2, "heads": [[[0], [0, 1], [2]]]})J");
  folder.write("masks.json", R"J({
    "default": "window(6, 6)",
    "rules": [
      {"layers": "0-1, 3", "mask": "causal"},
      {"layers": [1], "heads": "0-1", "mask": {"op": "window", "left": 1, "right": 2}},
      {"heads": 2, "layers": [1, "3"], "mask": "sink(2)"}
    ]})J");
  const TextEncoder encoder = TextEncoder::load(folder.path());
  const std::vector<std::string> texts = {TinyBert::letters(11, 1), TinyBert::letters(90, 2), "b"};
  const MaskSet set = MaskSet::load(folder.path() + "/masks.json");
  const std::vector<Tensor> found = encoder.encode_tokens(texts, encode_under(set));
  const auto visible = [](int layer, std::int64_t head, std::int64_t q, std::int64_t k) {
    if (layer == 2) return std::abs(q - k) <= 6;
    if (layer == 0) return k <= q;
    if (head == 2) return k < 2;
    if (layer == 1) return q - 1 <= k && k <= q + 2;
    return k <= q;
  };
  for (std::size_t i = 0; i < texts.size(); ++i)
    EXPECT_LT(worst_difference(found[i], tiny.run_where(encoder.tokenize(texts[i]).ids, visible)),
              2e-5)
        << i;
  // Block lists by file, of a text of six tokens, beside the set.
  folder.write("more.json", R"J({"rules": [{"layers": 2, "heads": "1", "mask":
                               "blocks(\"blocks.json\")"}]})J");
  const MaskSet blocks = MaskSet::load(folder.path() + "/more.json");
  const auto of_blocks = [](int layer, std::int64_t head, std::int64_t q, std::int64_t k) {
    return layer != 2 || head != 1 || k / 2 == q / 2 || (q / 2 == 1 && k / 2 == 0);
  };
  EXPECT_LT(worst_difference(encoder.encode_tokens({"a b c d"}, encode_under(blocks))[0],
                             tiny.run_where(encoder.tokenize("a b c d").ids, of_blocks)),
            2e-5);
  EXPECT_THAT(expect_error(ErrorCode::kInvalidArgument,
                           [&] { encoder.embed({"a b c d e"}, encode_under(blocks)); }),
              AllOf(HasSubstr("more.json: layers 2: "), HasSubstr("block_list")));
}

TEST(LayerMasks, AreThePlainMaskWhereAllLayersShareIt) {
  const LlamaGolden golden;
  for (const char* name : {"base", "qwen2 window"}) {
    const TemporaryFolder folder;
    golden.write(folder, golden.at(name), {}, golden.weights(golden.at(name)));
    const TextGenerator model = TextGenerator::load(folder.path());
    GenerateOptions plain = one_thread(), sets = one_thread();
    plain.prefill_chunk = sets.prefill_chunk = 5;
    plain.mask = mask::parse("sink(2) | window(5, 0)");
    sets.mask = MaskSet(mask::none(), {{{{0, 1}}, {}, plain.mask.otherwise()},
                                       {{}, {{0, 0}}, mask::none()},
                                       {{}, {}, plain.mask.otherwise()}});
    const Tensor a = model.logits(golden.ids(), plain), b = model.logits(golden.ids(), sets);
    EXPECT_EQ(relative_error(b, a), 0) << name;
  }
}

/// Chunks and steps over caches under windows of layers and heads give what the whole pass does.
TEST(LayerMasks, HoldOverCaches) {
  const LlamaGolden golden;
  for (const char* name : {"base", "qwen2 window"}) {
    const TemporaryFolder folder;
    golden.write(folder, golden.at(name), {}, golden.weights(golden.at(name)));
    const TextGenerator model = TextGenerator::load(folder.path());
    const auto logits = [&](const char* json, std::int64_t chunk) {
      GenerateOptions options = one_thread();
      options.prefill_chunk = chunk;
      options.mask = MaskSet::from_json(json);
      return model.logits(golden.ids(), options);
    };
    const char* const set = R"J({"rules": [{"layers": 0, "mask": "window(2, 0)"},
        {"layers": "1-2", "heads": "1", "mask": "window(1, 0) | sink(3)"}]})J";
    const Tensor whole = logits(set, 100);
    for (const std::int64_t chunk : {1, 4})
      EXPECT_LT(relative_error(logits(set, chunk), whole), kTolerance);
    // Each rule is felt.
    for (const char* const other :
         {R"J({"rules": [{"layers": 0, "mask": "window(2, 0)"}]})J",
          R"J({"rules": [{"layers": "1-2", "heads": "1", "mask": "window(1, 0) | sink(3)"}]})J",
          R"J({"rules": [{"layers": 0, "mask": "window(2, 0)"},
              {"layers": "1-2", "heads": "0", "mask": "window(1, 0) | sink(3)"}]})J",
          R"J({"rules": [{"layers": 0, "mask": "window(2, 0)"},
              {"layers": 1, "heads": "1", "mask": "window(1, 0) | sink(3)"}]})J"})
      EXPECT_GT(relative_error(logits(other, 100), whole), 1e-3) << other;
  }
}

TEST(LayerMasks, NameFileLayerHeadAndField) {
  const TinyBert tiny;
  const TemporaryFolder folder;
  tiny.write(folder);
  const TextEncoder encoder = TextEncoder::load(folder.path());
  const auto message = [&](const std::string& json) {
    folder.write("m.json", json);
    return expect_error(ErrorCode::kInvalidArgument, [&] {
      encoder.embed({"a b"}, encode_under(MaskSet::load(folder.path() + "/m.json")));
    });
  };
  const std::string file = folder.path() + "/m.json: ";
  EXPECT_THAT(message(R"J({"rules": [{"layers": "0-2", "mask": "all"}]})J"),
              AllOf(HasSubstr(file + "rules[0].layers"), HasSubstr("below 2"), HasSubstr("0-2")));
  EXPECT_THAT(message(R"J({"rules": [{"mask": "all"}, {"heads": [3], "mask": "all"}]})J"),
              AllOf(HasSubstr(file + "rules[1].heads"), HasSubstr("below 3"), HasSubstr("got 3")));
  EXPECT_THAT(message(R"J({"rules": [{"mask": "per_head([all, causal])"}]})J"),
              AllOf(HasSubstr(file + "rules[0].mask"), HasSubstr("each of 3, got 2")));
  EXPECT_THAT(message(R"J({"default": "per_batch([all, causal])", "rules": [{"mask": "all"}]})J"),
              AllOf(HasSubstr(file + "default"), HasSubstr("2 batch entries")));
  EXPECT_THAT(message(R"J({"op": "per_batch", "of": [{"op": "all"}, {"op": "causal"}]})J"),
              AllOf(HasSubstr(file + "expected one mask for all texts"), HasSubstr("2 batch")));
}

}  // namespace
}  // namespace stof::model
