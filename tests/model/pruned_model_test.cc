// Models under pruners: what each layer chose, put into plain loops, or into masks of layers, gives
// the same.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model/expect_error.h"
#include "model/tiny_bert.h"
#include "model/tiny_llama.h"
#include "stof/mask_set.h"
#include "stof/text_encoder.h"
#include "stof/text_generator.h"

namespace stof::model {
namespace {

using testing::HasSubstr;

/// Keeps what every layer chose.
mask::PruneOptions recorded(const char* pruner, std::vector<mask::PrunedMask>* chosen) {
  return {mask::Pruner::parse(pruner),
          [chosen](const mask::PrunedMask& pruned) { chosen->push_back(pruned); }};
}

TEST(PrunedModel, EncodersAttendToWhatEachLayerChose) {
  const TinyBert tiny(3, {24, 3, 40, 3});
  const TemporaryFolder folder;
  tiny.write(folder);
  const TextEncoder encoder = TextEncoder::load(folder.path());
  const std::vector<std::string> texts = {TinyBert::letters(40, 1), TinyBert::letters(9, 2)};
  for (const char* pruner :
       {"nm(1,4)", "mass(0.5,block=4,sinks=0)",
        "per_head(block_topk(0.4,block=4), nm(2,4), vertical_slash(0.2,block=4,probes=8))"}) {
    std::vector<mask::PrunedMask> chosen;
    EncodeOptions options;
    options.num_threads = 1;
    options.prune = recorded(pruner, &chosen);
    const std::vector<Tensor> found = encoder.encode_tokens(texts, options);
    ASSERT_EQ(chosen.size(), 6U) << pruner;  // layers times texts, the longer text first
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const auto visible = [&](int layer, std::int64_t h, std::int64_t q, std::int64_t k) {
        return chosen[static_cast<std::size_t>(layer) * 2 + i].mask.visible(0, h, q, k);
      };
      const auto expected = tiny.run_where(encoder.tokenize(texts[i]).ids, visible);
      std::size_t at = 0;
      for (const auto& row : expected)
        for (const double value : row)
          ASSERT_NEAR(found[i].as<float>()[at++], value, 2e-5) << pruner << ", text " << i;
    }
    EXPECT_LT(chosen[0].report.kept_fraction(), 0.7) << pruner;
  }
}

TEST(PrunedModel, DecodersAttendToWhatEachLayerChose) {
  const LlamaGolden golden;
  const TemporaryFolder folder;
  golden.write(folder, golden.at("base"), {}, golden.weights(golden.at("base")));
  const TextGenerator model = TextGenerator::load(folder.path());
  const auto logits = [&](const mask::PruneOptions* prune, const mask::MaskSet& masks,
                          std::int64_t chunk) {
    GenerateOptions options = one_thread();
    options.prefill_chunk = chunk;
    options.mask = masks;
    if (prune != nullptr) options.prune = *prune;
    return model.logits(golden.ids(), options);
  };
  std::vector<mask::PrunedMask> chosen;
  const mask::PruneOptions nm = recorded("nm(1,4)", &chosen);
  const Tensor whole = logits(nullptr, {}, 100), pruned = logits(&nm, {}, 100);
  EXPECT_GT(relative_error(pruned, whole), 1e-3);
  ASSERT_EQ(std::ssize(chosen), model.num_layers());
  std::vector<mask::MaskRule> rules;
  for (std::int64_t layer = 0; layer < model.num_layers(); ++layer)
    rules.push_back({{{layer, layer}}, {}, chosen[static_cast<std::size_t>(layer)].mask});
  EXPECT_LT(relative_error(pruned, logits(nullptr, {mask::all(), rules}, 100)), 1e-6);
  // N of M looks at one query: chunks and steps over caches choose the same.
  EXPECT_LT(relative_error(logits(&nm, {}, 4), pruned), kTolerance);
  EXPECT_LT(relative_error(logits(&nm, {}, 1), pruned), kTolerance);
  ScoreOptions scored;
  scored.num_threads = 1;
  const double plain = model.score(golden.ids(), scored).log_likelihood;
  scored.prune = nm;
  EXPECT_GT(std::abs(model.score(golden.ids(), scored).log_likelihood - plain), 1e-3);
  const mask::PruneOptions everything{mask::Pruner::parse("mass(1,block=4)")};
  EXPECT_LT(relative_error(logits(&everything, {}, 4), whole), kTolerance);
}

TEST(PrunedModel, RefusesPrunersByName) {
  const TinyBert tiny;
  const TemporaryFolder folder;
  tiny.write(folder);
  const TextEncoder encoder = TextEncoder::load(folder.path());
  EncodeOptions options;
  options.prune = mask::PruneOptions{mask::Pruner::parse("per_head(nm(2,4), nm(2,4))")};
  EXPECT_THAT(expect_error(ErrorCode::kInvalidArgument, [&] { encoder.embed({"a b"}, options); }),
              HasSubstr("each of 3 query heads, got 2"));
}

}  // namespace
}  // namespace stof::model
