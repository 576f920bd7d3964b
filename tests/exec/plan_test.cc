// Memory layouts, plans and STOF_FUSE.

#include "exec/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "backend/cpu/segments/segments.h"
#include "exec/arena.h"
#include "exec/batch.h"
#include "fusion/initial.h"
#include "model/bert_graph.h"
#include "stof/error.h"

namespace stof::exec {
namespace {

using testing::HasSubstr;

TEST(Arena, NeverGivesBytesToTwoValuesThatLiveAtOnce) {
  std::mt19937 random(1);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 300; ++round) {
    const std::int64_t alignment = 1 << below(9), guard = below(3) * 40;
    std::vector<Lifetime> lifetimes(static_cast<std::size_t>(1 + below(40)));
    std::int64_t sum = 0, most = 0;
    for (Lifetime& lifetime : lifetimes) {
      lifetime.first = below(20);
      lifetime.last = lifetime.first + below(6);
      lifetime.bytes = below(5) == 0 ? 0 : below(5000);
      sum += lifetime.bytes + guard + alignment;
      most = std::max(most, lifetime.bytes);
    }
    const ArenaLayout layout = plan_arena(lifetimes, alignment, guard);
    EXPECT_GE(layout.bytes, most);
    EXPECT_LE(layout.bytes, sum);
    for (std::size_t i = 0; i < lifetimes.size(); ++i) {
      EXPECT_EQ(layout.offsets[i] % alignment, 0);
      EXPECT_GE(layout.offsets[i], 0);
      EXPECT_LE(layout.offsets[i] + lifetimes[i].bytes + guard, layout.bytes);
      for (std::size_t j = 0; j < i; ++j) {
        if (!lifetimes[i].overlaps(lifetimes[j])) continue;
        EXPECT_TRUE(layout.offsets[i] + lifetimes[i].bytes + guard <= layout.offsets[j] ||
                    layout.offsets[j] + lifetimes[j].bytes + guard <= layout.offsets[i])
            << "round " << round << ": " << i << " and " << j;
      }
    }
  }
}

TEST(Arena, ReusesWhatIsFree) {
  const ArenaLayout chain = plan_arena({{100, 0, 1}, {100, 1, 2}, {100, 2, 3}, {100, 3, 4}}, 1);
  EXPECT_EQ(chain.bytes, 200);
}

model::BertConfig tiny_config() {
  model::BertConfig config;
  config.hidden_size = 16;
  config.num_layers = 3;
  config.num_heads = 2;
  config.intermediate_size = 32;
  config.vocab_size = 10;
  config.max_positions = 20;
  config.num_segments = 2;
  config.layer_norm_eps = 1e-5f;
  return config;
}

graph::Graph tiny_graph(std::int64_t rows = 8) {
  return model::build_bert_graph(tiny_config(), rows, DType::kFloat32);
}

SessionOptions options_of(const std::string& fuse) {
  SessionOptions options;
  options.switches = FuseSwitches::parse(fuse);
  return options;
}

TEST(Plan, KeepsWhatIsLiveApartAndGivesLayersTheSameMemory) {
  for (const std::int64_t guard : {0, 100}) {
    SessionOptions options = options_of("");
    options.plan.guard_bytes = guard;
    const ExecutionPlan plan = make_plan(tiny_graph(), options, cpu::candidates);
    plan.validate();
    for (const ArenaSlot& a : plan.slots())
      for (const ArenaSlot& b : plan.slots())
        if (a.offset < b.offset && a.first <= b.last && b.first <= a.last) {
          EXPECT_LE(a.offset + a.bytes + guard, b.offset);
        }
    model::BertConfig deep = tiny_config();
    deep.num_layers = 12;
    EXPECT_EQ(make_plan(model::build_bert_graph(deep, 8, DType::kFloat32), options, cpu::candidates)
                  .arena_bytes(),
              plan.arena_bytes());
  }
}

TEST(Plan, SaysWhatItDoes) {
  const ExecutionPlan plan = make_plan(tiny_graph(), options_of(""), cpu::candidates);
  EXPECT_THAT(plan.describe(), HasSubstr("14 operators a layer in "));
  for (const char* text : {"\"scheme\":\"14:", "onednn packed=1", "\"layer.2.output_norm\"",
                           "\"gelu_erf\"", "\"value\":\"layer.1.attention\"", "\"arena_bytes\":"})
    EXPECT_THAT(plan.to_json(), HasSubstr(text));
  // What attention leaves as it is lies apart from all else.
  for (const ArenaSlot& slot : plan.slots()) {
    const bool attention = plan.graph().value(slot.value).name.ends_with(".attention");
    EXPECT_EQ(slot.offset < plan.attention_bytes(), attention);
  }
}

TEST(Plan, TakesChoicesByContentForEveryLayer) {
  SessionOptions options = options_of("");
  const ExecutionPlan before = make_plan(tiny_graph(), options, cpu::candidates);
  const PlannedSegment* product = nullptr;
  for (const PlannedSegment& planned : before.segments())
    if (planned.choice.family == "onednn" && product == nullptr) product = &planned;
  ASSERT_NE(product, nullptr);
  options.choices[product->hash] = {"onednn", {{"packed", 0}}};
  int changed = 0;
  const ExecutionPlan after = make_plan(tiny_graph(), options, cpu::candidates);
  for (const PlannedSegment& planned : after.segments())
    changed += planned.choice.text() == "onednn packed=0";
  EXPECT_EQ(changed, 3);  // once a layer
}

TEST(Plan, TakesNoChoiceThatTuningRejected) {
  SessionOptions options = options_of("");
  const ExecutionPlan before = make_plan(tiny_graph(), options, cpu::candidates);
  const auto product =
      std::find_if(before.segments().begin(), before.segments().end(),
                   [](const PlannedSegment& planned) { return planned.choice.family == "onednn"; });
  ASSERT_NE(product, before.segments().end());
  options.tuned = [&](const graph::Graph&) {
    return TunedSegments{before.scheme(), {}, {{product->hash, product->choice}}};
  };
  const ExecutionPlan after = make_plan(tiny_graph(), options, cpu::candidates);
  int asked = 0;
  for (const PlannedSegment& planned : after.segments()) {
    if (planned.hash != product->hash) continue;
    ++asked;
    EXPECT_NE(planned.choice, product->choice);
  }
  EXPECT_EQ(asked, 3);  // once a layer
}

TEST(Plan, RefusesASchemeThatNothingRuns) {
  SessionOptions options = options_of("");
  options.scheme = fusion::Scheme::from_sizes({2, 1, 4, 3, 3, 1});  // a norm behind a product
  EXPECT_THROW(make_plan(tiny_graph(), options, cpu::candidates), Error);
  // The same as a wish is cut where it has to be.
  const fusion::Scheme cut =
      runnable_scheme(tiny_graph(), *options.scheme, cpu::candidates, options.switches);
  EXPECT_EQ(cut, fusion::Scheme::from_sizes({2, 1, 3, 1, 3, 3, 1}));
}

/// What the error says that the call throws.
std::string message(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(FuseSwitches, TurnFusionAndFamiliesOff) {
  const ExecutionPlan off = make_plan(tiny_graph(), options_of("off"), cpu::candidates);
  EXPECT_EQ(off.segments().size(), static_cast<std::size_t>(tiny_graph().num_operators()));
  const FuseSwitches switches = FuseSwitches::parse("on,-row,-gemm_sm90");
  EXPECT_TRUE(switches.fuse);
  EXPECT_FALSE(switches.allows("row"));
  EXPECT_FALSE(switches.allows("gemm_sm90"));
  EXPECT_TRUE(switches.allows("onednn"));
  EXPECT_THAT(message([] { FuseSwitches::parse("of"); }), HasSubstr("got \"of\""));
  EXPECT_THAT(message([] { make_plan(tiny_graph(), options_of("-onednn"), cpu::candidates); }),
              HasSubstr("STOF_FUSE leaves families out"));
}

TEST(InstalledCandidates, LeaveOutALibraryThatIsMissing) {
  const graph::Graph graph = tiny_graph();
  const auto all = [](const std::string&) { return true; };
  // "library" offers everything and is not here; "own" runs two operators at most.
  const CandidatesOfFamilies candidates_of = [](const graph::Graph&, const fusion::Segment& segment,
                                                const Allows& allows) {
    if (allows("library")) throw Error(ErrorCode::kNotFound, "library: planted: not installed");
    std::vector<fusion::Choice> list;
    if (allows("own") && segment.last <= segment.first + 1) list.push_back({"own", {}});
    return list;
  };
  ::testing::internal::CaptureStderr();
  const auto of = [&](const Allows& allows) {
    return [&](const graph::Graph& g, const fusion::Segment& segment) {
      return installed_candidates(candidates_of, "library", g, segment, allows);
    };
  };
  const fusion::Scheme scheme = runnable_scheme(graph, fusion::initial_scheme(graph), of(all));
  for (const auto& [first, last] : scheme.segments()) EXPECT_LE(last, first + 1);
  for (const PlannedSegment& planned : choose_segments(graph, scheme, of(all)))
    EXPECT_EQ(planned.choice.family, "own");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "stof: warning: library: planted: not installed; products run without library\n");
  // Where nothing of ours runs an operator, what is missing is the error.
  const auto nothing = [](const std::string& family) { return family == "library"; };
  EXPECT_THAT(message([&] { of(nothing)(graph, fusion::make_segment(graph, 0, 0)); }),
              HasSubstr("not installed"));
}

TEST(BucketRows, PadsByAnEighthAtMostToFewSizes) {
  std::set<std::int64_t> sizes;
  for (std::int64_t rows = 1; rows <= 16384; ++rows) {
    const std::int64_t padded = bucket_rows(rows);
    EXPECT_GE(padded, rows);
    EXPECT_LE(padded, rows + std::max<std::int64_t>(7, rows / 8));
    if (rows > 4) {
      EXPECT_EQ(padded % 8, 0);
    } else {  // decoding pays for rows of padding
      EXPECT_EQ(padded, rows == 3 ? 4 : rows);
    }
    EXPECT_EQ(bucket_rows(padded), padded);
    sizes.insert(padded);
  }
  EXPECT_LE(sizes.size(), 8u * 15);
}

}  // namespace
}  // namespace stof::exec
