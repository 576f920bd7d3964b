// Caches of sequences: bounded under windows and first keys, and in scattered pages.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "backend/cpu/thread_scope.h"
#include "exec/cpu_session.h"
#include "model/decoder.h"
#include "model/expect_error.h"
#include "model/llama_graph.h"
#include "model/llama_model.h"
#include "model/tiny_llama.h"

namespace stof::model {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<std::int32_t> random_ids(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random() % 48);
  return ids;
}

Tensor rows_at(const Tensor& tensor, std::int64_t row) {
  TensorView view = tensor.view();
  view.data = static_cast<const float*>(view.data) + row * view.strides[0];
  view.shape[0] = 1;
  return Tensor::copy_of(view);
}

/// A case of llama_golden in a folder of its own.
struct Written {
  explicit Written(const char* name) {
    golden.write(folder, golden.at(name), {}, golden.weights(golden.at(name)));
  }
  std::unique_ptr<const DecoderModel> model() const {
    return make_llama_model(Checkpoint::open(folder.path()), load_llama_config(folder.path()));
  }
  LlamaGolden golden;
  TemporaryFolder folder;
};

/// Long texts whose keys are given back have the logits of those that keep all.
TEST(WindowCache, IsBoundedAndChangesNothing) {
  const cpu::ThreadScope one_thread(1);
  constexpr std::int64_t kTokens = 2500, kChunk = 200, kOther = 1900;
  for (const auto& [name, json] :
       {std::pair{"base", R"J({"default": "streaming(3, 90)"})J"},
        {"qwen2 window", R"J({"rules": [{"layers": 0, "mask": "window(300, 0)"}, {"layers": "1-2",
         "mask": "window(20, 0)"}, {"layers": 2, "heads": 1, "mask": "streaming(5, 30)"}]})J"}}) {
    const Written written(name);
    const Decoder decoder(written.model());
    const mask::MaskSet mask = mask::MaskSet::from_json(json);
    const std::vector<std::int32_t> ids = random_ids(kTokens, 1), other = random_ids(kOther, 2);
    exec::RunTiming timing;
    auto bounded = decoder.start({.count = 2, .tokens = kTokens, .chunk = kChunk, .mask = mask});
    EXPECT_LE(bounded->pages_each(), 6) << name;
    EXPECT_EQ(decoder.start({.tokens = 10'000'000, .chunk = kChunk, .mask = mask})->pages_each(),
              bounded->pages_each());
    auto whole = decoder.start({.count = 2, .tokens = kTokens, .mask = mask});
    EXPECT_GE(whole->pages_each() * kCachePage, kTokens);
    std::int64_t most_pages = 0;
    Tensor found;
    const auto step = [&](std::int64_t at, std::int64_t count) {
      std::vector<DecoderSequences::Part> parts = {
          {0,
           std::span(ids).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(count))}};
      if (at + count <= kOther)
        parts.push_back({1, std::span(other).subspan(static_cast<std::size_t>(at),
                                                     static_cast<std::size_t>(count))});
      found = bounded->forward(parts, timing);
      for (const std::int64_t i : {0, 1})
        most_pages = std::max(most_pages, bounded->pages_in_use(i));
    };
    std::int64_t at = 0;
    for (; at + kChunk < kOther; at += kChunk) step(at, kChunk);
    step(at, kOther - at);
    const Tensor both = Tensor::copy_of(found.view());
    for (at = kOther; at < kTokens - 5; at += std::min(kChunk, kTokens - 5 - at))
      step(at, std::min(kChunk, kTokens - 5 - at));
    for (; at < kTokens; ++at) step(at, 1);
    EXPECT_LE(most_pages, bounded->pages_each());
    EXPECT_EQ(bounded->length(0), kTokens);
    whole->forward({{0, std::span(ids).first(kOther)}}, timing);
    EXPECT_LT(relative_error(rows_at(both, 1), whole->forward({{1, other}}, timing)), kTolerance);
    EXPECT_LT(relative_error(found, whole->forward({{0, std::span(ids).subspan(kOther)}}, timing)),
              kTolerance)
        << name;
    EXPECT_EQ(whole->pages_in_use(0), (kTokens + kCachePage - 1) / kCachePage);
  }
}

TEST(WindowCache, LetsTextsBeLongerThanTheModelsPositions) {
  const Written written("base");
  const TextGenerator model = TextGenerator::load(written.folder.path());
  const std::string prompt(1500, 'a');
  GenerateOptions options = one_thread();
  options.max_tokens = 3;
  const auto refusal = [&] {
    return expect_error(ErrorCode::kInvalidArgument, [&] { model.generate(prompt, options); });
  };
  EXPECT_THAT(refusal(), AllOf(HasSubstr(std::to_string(model.max_positions())),
                               HasSubstr("got 1500"), HasSubstr("streaming(4, 1024)")));
  // One layer that sees all is enough to need them all.
  options.mask = mask::MaskSet(mask::streaming(2, 50), {{{{1, 1}}, {}, mask::all()}});
  EXPECT_THAT(refusal(), HasSubstr("streaming(4, 1024)"));
  options.mask = mask::streaming(2, 50);
  options.prefill_chunk = 100;
  const GeneratedText bounded = model.generate(prompt, options);
  EXPECT_EQ(bounded.prompt_tokens, 1500);
  EXPECT_EQ(bounded.ids.size(), 3u);
  EXPECT_LE(bounded.cached_tokens, 5 * kCachePage);
  options.prefill_chunk = 1500;
  const GeneratedText whole = model.generate(prompt, options);
  EXPECT_EQ(whole.ids, bounded.ids);
  EXPECT_GE(whole.cached_tokens, 1500);
}

/// Runs in other pages than it is told.
class ScatteredSession final : public DecoderSession {
 public:
  ScatteredSession(exec::GraphOf graph, std::shared_ptr<exec::CpuWeights> weights,
                   std::vector<std::int32_t> places)
      : session_(std::move(graph), std::move(weights)), places_(std::move(places)) {}

  Tensor run(const exec::Batch& batch, exec::RunTiming* timing) override {
    exec::Batch moved = batch;
    for (auto& pages : moved.cache.pages)
      for (std::int32_t& page : pages) page = places_.at(static_cast<std::size_t>(page));
    const std::vector<std::int32_t> slots = moved.cache.slots(moved.offsets);
    for (auto& [name, view] : moved.inputs)
      if (name == "slots") view.data = slots.data();
    return session_.run(moved, timing);
  }
  void move_rows(std::int64_t, std::int64_t, std::int64_t) override { FAIL() << "nothing to move"; }

 private:
  exec::CpuSession session_;
  std::vector<std::int32_t> places_;
};

TEST(PagedCache, GivesTheTextOfAContiguousOne) {
  const cpu::ThreadScope one_thread(1);
  const Written written("qwen2 window");
  LlamaConfig config = load_llama_config(written.folder.path());
  config.max_positions = 1024;
  const LlamaWeights weights(Checkpoint::open(written.folder.path()), config);
  const auto graph_of = [&](std::int64_t rows) {
    return with_layer_masks(
        build_llama_graph(config, rows, DType::kFloat32,
                          {.cache_size = 6 * kCachePage, .reads_cache = true, .head_rows = 2}));
  };
  const graph::Graph graph = graph_of(1);
  const GraphWeights bound = bind_llama_weights(graph, weights);
  const auto shared = std::make_shared<exec::CpuWeights>(graph, bound.values);
  const LayerMasks masks = combine_masks(
      masks_of_layers(build_llama_graph(config, 1, DType::kFloat32)),
      [&](const mask::Mask& also) { return llama_masks(config, also); }, mask::MaskSet(),
      config.num_heads);
  const auto model = written.model();
  const std::vector<std::int32_t> first = random_ids(600, 3), second = random_ids(255, 4);
  const auto text = [&](std::vector<std::int32_t> places) {
    ScatteredSession session(graph_of, shared, std::move(places));
    CacheRows rows;
    rows.each = 3 * kCachePage;
    rows.most_tokens = config.max_positions;
    DecoderSequences sequences(*model, session, 2, rows, masks);
    exec::RunTiming timing;
    std::vector<std::int32_t> ids;
    Tensor logits = sequences.forward({{0, first}, {1, second}}, timing);
    for (int step = 0; step < 6; ++step) {
      for (const std::size_t row : {0u, 1u}) {
        const auto values = logits.as<float>().subspan(row * 50, 50);
        ids.push_back(static_cast<std::int32_t>(std::ranges::max_element(values) - values.begin()));
      }
      logits = sequences.forward(
          {{0, std::span(ids).last(2).first(1)}, {1, std::span(ids).last(1)}}, timing);
    }
    return std::pair(ids, std::move(logits));
  };
  const auto contiguous = text({0, 1, 2, 3, 4, 5}), paged = text({4, 1, 5, 2, 0, 3});
  EXPECT_EQ(paged.first, contiguous.first);
  EXPECT_LT(relative_error(paged.second, contiguous.second), kTolerance);
}

}  // namespace
}  // namespace stof::model
