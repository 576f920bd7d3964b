#include <gmock/gmock.h>

#include <fstream>
#include <numeric>
#include <string>

#include "mask/prune_oracle.h"
#include "stof/attention.h"
#include "stof/block_mask.h"
#include "stof/error.h"

namespace stof::mask {
namespace {

using namespace testing;
using ::testing::HasSubstr;

template <class Check>
void for_each_head(const PruneCase& c, const Check& check) {
  for (std::int64_t b = 0; b < c.shape.batch; ++b)
    for (std::int64_t h = 0; h < c.shape.num_heads; ++h) check(b, h);
}

const PruneRows& rows_of_head(const PrunedMask& pruned, std::int64_t b, std::int64_t h) {
  return pruned.report.heads[static_cast<std::size_t>(b * pruned.shape.num_heads + h)];
}

PruneSettings random_block_settings(PruneMethod method) {
  PruneSettings s;
  s.method = method;
  s.keep = static_cast<double>(random_int(0, 100)) / 100.37;
  s.block = random_int(1, 12);
  s.pooling = random_int(0, 1) != 0 ? PrunePooling::kMax : PrunePooling::kMean;
  s.sink_blocks = random_int(0, 2);
  s.local_blocks = random_int(0, 2);
  s.balance = 1 + static_cast<double>(random_int(0, 8)) / 7.9;
  return s;
}

RC_GTEST_PROP(PruneNm, KeepsTheLargestOfEachGroup, ()) {
  const PruneCase c = random_prune_case();
  PruneSettings s;
  s.method = PruneMethod::kNm;
  s.group = random_int(2, 9);
  const std::int64_t n = random_int(1, s.group);
  s.keep = static_cast<double>(n) / static_cast<double>(s.group);
  const PrunedMask pruned = prune(c.input(), {{s}}, 1);
  for_each_head(c, [&](std::int64_t b, std::int64_t h) {
    const Kept expected = nm_by_sorting(c, b, h, n, s.group);
    expect_kept(pruned, b, h, expected);
    const PruneRows& rows = rows_of_head(pruned, b, h);
    for (std::size_t q = 0; q < expected.size(); ++q) {
      RC_ASSERT(rows.kept[q] == std::count(expected[q].begin(), expected[q].end(), true));
      // Balance: what is kept follows from how many are visible in each group, never from scores.
      std::int64_t seen = 0, balanced = 0;
      for (std::int64_t first = 0; first < c.shape.seq_kv; first += s.group) {
        std::int64_t here = 0;
        for (std::int64_t k = first; k < std::min(first + s.group, c.shape.seq_kv); ++k)
          here += c.base.visible(b, h, static_cast<std::int64_t>(q), k) ? 1 : 0;
        seen += here;
        balanced += std::min(here, n);
      }
      RC_ASSERT(rows.visible[q] == seen);
      RC_ASSERT(rows.kept[q] == balanced);
    }
  });
}

RC_GTEST_PROP(PruneBlocks, KeepAsManyForEachRow, ()) {
  const PruneCase c = random_prune_case();
  const PruneSettings s = random_block_settings(PruneMethod::kBlockTopK);
  const PrunedMask pruned = prune(c.input(), {{s}}, 1);
  for_each_head(c, [&](std::int64_t b, std::int64_t h) {
    const Blocks blocks = blocks_by_pairs(c, b, h, s);
    std::int64_t all = 0, count = 0;
    for (const auto& order : blocks.order) all += std::ssize(order);
    const auto kept_with = [&](std::int64_t n) {
      std::int64_t kept = 0;
      for (const auto& order : blocks.order) kept += std::min<std::int64_t>(n, std::ssize(order));
      return kept;
    };
    while (static_cast<double>(kept_with(count)) < s.keep * static_cast<double>(all)) ++count;
    count = std::max<std::int64_t>(
        {1, count, *std::max_element(blocks.num_staying.begin(), blocks.num_staying.end())});
    std::vector<std::int64_t> counts;
    for (const auto& order : blocks.order)
      counts.push_back(std::min<std::int64_t>(count, std::ssize(order)));
    RC_ASSERT(rows_of_head(pruned, b, h).kept == counts);
    expect_kept(pruned, b, h, kept_of_blocks(c, b, h, blocks, counts, s.block));
  });
}

RC_GTEST_PROP(PruneMass, KeepsTheShareUnderTheCap, ()) {
  const PruneCase c = random_prune_case();
  const PruneSettings s = random_block_settings(PruneMethod::kMass);
  const PrunedMask pruned = prune(c.input(), {{s}}, 1);
  for_each_head(c, [&](std::int64_t b, std::int64_t h) {
    const Blocks blocks = blocks_by_pairs(c, b, h, s);
    std::vector<std::int64_t> needed;
    for (std::size_t r = 0; r < blocks.order.size(); ++r) {
      std::vector<double> weights;
      double most = -INFINITY, sum = 0, taken = 0;
      for (const std::int64_t col : blocks.order[r]) {
        const double score = blocks.scores[r][static_cast<std::size_t>(col)];
        most = score > most ? score : most;
      }
      for (const std::int64_t col : blocks.order[r]) {
        const double score = blocks.scores[r][static_cast<std::size_t>(col)];
        weights.push_back(score == most ? 1 : score < most ? std::exp(score - most) : 0);
        if (most == -INFINITY) weights.back() = 0;
        sum += weights.back();
      }
      std::int64_t n = 0;
      while (n < std::ssize(weights) && taken < s.keep * sum)
        taken += weights[static_cast<std::size_t>(n++)];
      if (!weights.empty()) n = std::max<std::int64_t>({n, 1, blocks.num_staying[r]});
      needed.push_back(n);
    }
    const auto rows = std::count_if(needed.begin(), needed.end(), [](auto n) { return n > 0; });
    std::int64_t cap = *std::max_element(needed.begin(), needed.end());
    const auto holds = [&] {
      std::int64_t kept = 0;
      for (const std::int64_t n : needed) kept += std::min(n, cap);
      return static_cast<double>(cap * rows) <= s.balance * static_cast<double>(kept);
    };
    while (cap > 1 && !holds()) --cap;
    cap = std::max(cap, *std::max_element(blocks.num_staying.begin(), blocks.num_staying.end()));
    std::vector<std::int64_t> counts;
    for (const std::int64_t n : needed) counts.push_back(std::min(n, cap));
    const PruneRows& report = rows_of_head(pruned, b, h);
    RC_ASSERT(report.kept == counts);
    expect_kept(pruned, b, h, kept_of_blocks(c, b, h, blocks, counts, s.block));
    // Balance, unless what must stay is more.
    const std::int64_t most = *std::max_element(report.kept.begin(), report.kept.end());
    RC_ASSERT(report.imbalance() <= s.balance + 1e-9 ||
              most <= *std::max_element(blocks.num_staying.begin(), blocks.num_staying.end()));
  });
}

RC_GTEST_PROP(PruneVerticalSlash, KeepsWholeColumnsAndDiagonalsWithinItsBudget, ()) {
  const PruneCase c = random_prune_case();
  PruneSettings s = random_block_settings(PruneMethod::kVerticalSlash);
  s.probes = random_int(1, 50);
  s.probe_rows = random_int(0, 1) != 0 ? PruneProbes::kLast : PruneProbes::kSpread;
  const PrunedMask pruned = prune(c.input(), {{s}}, 1);
  for_each_head(c, [&](std::int64_t b, std::int64_t h) {
    const Blocks blocks = blocks_by_pairs(c, b, h, s);
    const auto size = static_cast<std::size_t>(s.block);
    const auto sees = [&](std::int64_t q, std::int64_t k) {
      return pruned.mask.visible(b, h, q, k);
    };
    // A column is whole where every query that may see it does.
    std::vector<bool> column(static_cast<std::size_t>(c.shape.seq_kv), true);
    for (std::int64_t q = 0; q < c.shape.seq_q; ++q)
      for (std::int64_t k = 0; k < c.shape.seq_kv; ++k) {
        RC_ASSERT(!sees(q, k) || c.base.visible(b, h, q, k));
        if (c.base.visible(b, h, q, k) && !sees(q, k)) column[static_cast<std::size_t>(k)] = false;
      }
    double all = 0;
    for (std::int64_t r = 0; r < blocks.rows; ++r)
      for (std::int64_t col = 0; col < blocks.cols; ++col) {
        if (!blocks.visible[static_cast<std::size_t>(r)][static_cast<std::size_t>(col)]) continue;
        all += 1;
        bool whole = true, only_columns = true;
        for (std::size_t k = static_cast<std::size_t>(col) * size;
             k < std::min((static_cast<std::size_t>(col) + 1) * size, column.size()); ++k) {
          for (std::int64_t q = r * s.block; q < std::min((r + 1) * s.block, c.shape.seq_q); ++q) {
            const bool here = sees(q, static_cast<std::int64_t>(k));
            whole &= here == c.base.visible(b, h, q, static_cast<std::int64_t>(k));
            only_columns &= !here || column[k];
          }
        }
        RC_ASSERT(whole || only_columns);
        RC_ASSERT(whole ||
                  !blocks.stays[static_cast<std::size_t>(r)][static_cast<std::size_t>(col)]);
      }
    const double staying = static_cast<double>(
        std::accumulate(blocks.num_staying.begin(), blocks.num_staying.end(), std::int64_t{0}));
    // One diagonal and one column may be begun before the budget is spent.
    const PruneRows& report = rows_of_head(pruned, b, h);
    const double kept = static_cast<double>(
        std::accumulate(report.kept.begin(), report.kept.end(), std::int64_t{0}));
    const double rows = static_cast<double>(blocks.rows), block = static_cast<double>(s.block);
    RC_ASSERT(kept / block <= std::max(staying, s.keep * all) + rows + rows / block + 1e-6);
    for (std::int64_t r = 0; r < blocks.rows; ++r) {
      std::int64_t seen = 0, there = 0;
      for (std::int64_t k = 0; k < c.shape.seq_kv; ++k) {
        seen += sees(r * s.block, k) ? 1 : 0;
        there += c.base.visible(b, h, r * s.block, k) ? 1 : 0;
      }
      if (there == c.shape.seq_kv) RC_ASSERT(report.kept[static_cast<std::size_t>(r)] == seen);
    }
  });
}

/// One head whose query i attends to key i - 8 (a diagonal) and to key 3 (a column).
PruneCase planted() {
  PruneCase c;
  c.shape = {1, 1, 64, 64};
  c.dim = 64;
  c.base = causal().bind(c.shape);
  c.fill([] { return 0.0F; });
  for (std::int64_t i = 0; i < 64; ++i) {
    float* const q = c.q.data() + i * (c.dim + PruneCase::kGap);
    float* const k = c.k.data() + i * (c.dim + PruneCase::kGap);
    k[i] = 1;
    if (i >= 8) q[i - 8] = 20;
    q[3] = 20;
  }
  return c;
}

TEST(PruneVerticalSlash, FindsAPlantedColumnAndDiagonal) {
  const PruneCase c = planted();
  const PrunedMask pruned =
      prune(c.input(), Pruner::parse("vertical_slash(0.45, block=4, sinks=0, probes=16)"));
  for (std::int64_t q = 8; q < 64; ++q) {
    EXPECT_TRUE(pruned.mask.visible(0, 0, q, q - 8)) << q;
    EXPECT_TRUE(pruned.mask.visible(0, 0, q, 3)) << q;
    EXPECT_TRUE(pruned.mask.visible(0, 0, q, q)) << q;
  }
  const PruneRows& rows = pruned.report.heads.front();
  EXPECT_EQ(rows.unit, PruneUnit::kKeysOfBlock);
  EXPECT_LT(rows.kept_fraction(), 0.6);
  // Only what the last queries attend to: the diagonal is the same, and so is the column.
  const PrunedMask last = prune(
      c.input(), Pruner::parse("vertical_slash(0.45, block=4, sinks=0, probes=4, rows=last)"));
  EXPECT_TRUE(last.mask.visible(0, 0, 40, 32));
  EXPECT_TRUE(last.mask.visible(0, 0, 40, 3));
}

TEST(PruneVerticalSlash, LooksOnlyAtItsProbes) {
  // The first half of the queries attends to key 1, the second to key 2: the last sees the latter.
  PruneCase c;
  c.shape = {1, 1, 32, 32};
  c.dim = 2;
  c.base = all();
  c.fill([] { return 0.0F; });
  for (std::int64_t i = 0; i < 32; ++i)
    c.q[static_cast<std::size_t>(i * 5 + (i < 16 ? 0 : 1))] = 30;
  c.k[1 * 5 + 0] = c.k[2 * 5 + 1] = 1;
  const auto sees = [&](const char* text, std::int64_t k) {
    return prune(c.input(), Pruner::parse(text)).mask.visible(0, 0, 20, k);
  };
  // Nothing must stay, and so little is kept that one diagonal and one column are all.
  EXPECT_TRUE(sees("vertical_slash(0.1, block=1, sinks=0, local=0, probes=1, rows=last)", 2));
  EXPECT_FALSE(sees("vertical_slash(0.1, block=1, sinks=0, local=0, probes=1, rows=last)", 1));
  EXPECT_TRUE(sees("vertical_slash(0.1, block=1, sinks=0, local=0, probes=32)", 1));
}

TEST(Prune, KeepsEverythingAtTheKnobsEnd) {
  for (const char* text : {"nm(4,4)", "block_topk(1,block=5)", "mass(1,block=5,balance=1)",
                           "vertical_slash(1,block=5,probes=3)"}) {
    PruneCase c;
    c.shape = {1, 2, 23, 31};
    c.dim = 2;
    c.alignment = Alignment::kBottomRight;
    c.base = causal().bind(c.shape, c.alignment);
    float x = 0;
    c.fill([&] { return x = x > 3 ? -3.0F : x + 0.7F; });
    const PrunedMask pruned = prune(c.input(), Pruner::parse(text));
    for_each_head(c, [&](std::int64_t b, std::int64_t h) {
      for (std::int64_t q = 0; q < c.shape.seq_q; ++q)
        for (std::int64_t k = 0; k < c.shape.seq_kv; ++k)
          ASSERT_EQ(pruned.mask.visible(b, h, q, k), k <= q + 8) << text << q << ", " << k;
    });
    EXPECT_EQ(pruned.report.kept_fraction(), 1) << text;
  }
}

RC_GTEST_PROP(Prune, KeepsNoLessWithTheKnobFurther, ()) {
  const PruneCase c = random_prune_case();
  const double low = static_cast<double>(random_int(0, 100)) / 100,
               high = low + (1 - low) * static_cast<double>(random_int(0, 100)) / 100;
  for (const char* text : {"nm(1,8)", "block_topk(0,block=4)", "mass(0,block=4)"}) {
    const Pruner pruner = Pruner::parse(text);
    const Mask a = prune(c.input(), pruner.with_keep(low), 1).mask;
    const Mask b = prune(c.input(), pruner.with_keep(high), 1).mask;
    for_each_head(c, [&](std::int64_t batch, std::int64_t h) {
      for (std::int64_t q = 0; q < c.shape.seq_q; ++q)
        for (std::int64_t k = 0; k < c.shape.seq_kv; ++k)
          RC_ASSERT(!a.visible(batch, h, q, k) || b.visible(batch, h, q, k));
    });
  }
}

TEST(Prune, TakesSettingsOfEachHead) {
  PruneCase c;
  c.shape = {1, 2, 32, 32};
  c.dim = 1;
  float x = 0;
  c.fill([&] { return x = x > 3 ? -3.0F : x + 0.7F; });
  const PrunedMask pruned =
      prune(c.input(), Pruner::parse("per_head(nm(2,4), block_topk(0,block=8))"));
  EXPECT_EQ(pruned.report.heads[0].unit, PruneUnit::kKeys);
  EXPECT_EQ(pruned.report.heads[0].kept_fraction(), 0.5);
  EXPECT_EQ(pruned.report.heads[1].unit, PruneUnit::kKeyBlocks);
  EXPECT_EQ(pruned.report.heads[1].kept, (std::vector<std::int64_t>{2, 2, 2, 2}));
  EXPECT_THAT(pruned.report.to_json(), HasSubstr("\"unit\":\"key blocks per query block\""));
  EXPECT_THAT(pruned.report.describe(), HasSubstr("2 head(s) keep 50.0 %"));
  EXPECT_THROW(prune(c.input(), Pruner::parse("per_head(nm(2,4), nm(2,4), nm(1,4))")), Error);
}

/// The scores of docs/pruning.md: keys are unit vectors, so that queries are rows of scores.
PruneCase example_of_docs() {
  PruneCase c;
  c.shape = {1, 1, 24, 24};
  c.dim = 24;
  c.base = causal().bind(c.shape);
  c.fill([] { return 0.0F; });
  for (std::int64_t i = 0; i < 24; ++i)
    for (std::int64_t j = 0; j < 24; ++j) {
      const float score = j == 3       ? 4
                          : j == i - 8 ? 3
                          : j == i     ? 2
                                       : static_cast<float>((5 * i + 3 * j) % 7) / 7;
      c.q[static_cast<std::size_t>(i * (c.dim + PruneCase::kGap) + j)] = score;
      c.k[static_cast<std::size_t>(i * (c.dim + PruneCase::kGap) + j)] = i == j ? 1 : 0;
    }
  return c;
}

TEST(Prune, DrawsWhatTheDocumentShows) {
  std::ifstream file(STOF_SOURCE_DIR "/docs/pruning.md");
  const PruneCase c = example_of_docs();
  const std::string opening = "```text ";
  int num_drawn = 0;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(opening)) continue;
    const std::string text = line.substr(opening.size());
    PruneInput input = c.input();
    input.scale = 1;
    const PrunedMask pruned = prune(input, Pruner::parse(text));
    std::string shown, drawn;
    for (std::int64_t q = 0; q < 24; ++q) {
      std::getline(file, line);
      shown += line + "\n";
      for (std::int64_t k = 0; k < 24; ++k)
        drawn += pruned.mask.visible(0, 0, q, k) ? " #" : k <= q ? " ." : "  ";
      drawn.erase(drawn.find_last_not_of(' ') + 1);
      drawn += "\n";
    }
    EXPECT_EQ(shown, drawn) << text;
    ++num_drawn;
  }
  EXPECT_EQ(num_drawn, 4);
}

TEST(Prune, RunsInAttention) {
  PruneCase c;
  c.shape = {2, 4, 150, 150};
  c.kv_heads = 2;
  c.dim = 8;
  c.base = causal();
  std::uint64_t seed = 1;
  c.fill([&] {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<float>(seed >> 40) / (1 << 23) - 1;
  });
  AttentionProblem problem;
  problem.batch = 2;
  problem.num_heads_q = 4;
  problem.num_heads_kv = 2;
  problem.seq_q = problem.seq_kv = 150;
  problem.head_dim_qk = problem.head_dim_v = 8;
  for (const char* text : {"nm(2,4)", "block_topk(0.3,block=16)", "mass(0.5,block=16)",
                           "vertical_slash(0.3,block=16)"}) {
    const PrunedMask pruned = prune(c.input(), Pruner::parse(text), 1);
    // Whatever the number of threads.
    EXPECT_EQ(pruned.mask.fingerprint(),
              prune(c.input(), Pruner::parse(text), 3).mask.fingerprint());
    const PruneInput input = c.input();
    Tensor fast(DType::kFloat32, {2, 4, 150, 8}), exact(DType::kFloat32, {2, 4, 150, 8});
    AttentionTensors tensors;
    tensors.q = input.q;
    tensors.k = tensors.v = input.k;
    tensors.out = fast.view();
    run_attention(plan_attention(problem, pruned.mask), tensors);
    tensors.out = exact.view();
    attention_reference(problem, pruned.mask, tensors);
    for (std::size_t i = 0; i < fast.as<float>().size(); ++i)
      ASSERT_NEAR(fast.as<float>()[i], exact.as<float>()[i], 1e-5) << text;
  }
}

TEST(Pruner, IsReadBackFromItsText) {
  for (const char* text :
       {"nm(2, 4)", "nm(1, 3)", "block_topk(0.25)", "block_topk(0.25, block=32, pool=max)",
        "mass(0.9, sinks=0, local=2, balance=1.5)", "vertical_slash(0.1, probes=8, rows=last)",
        "per_head(nm(2, 8), mass(0.5))"})
    EXPECT_EQ(Pruner::parse(text).to_text(), text);
  EXPECT_EQ(Pruner::parse("nm(m=8,n=2)").heads[0].keep, 0.25);
  EXPECT_EQ(Pruner::parse("block_topk(1, 16, max, 2, 3)").to_text(),
            "block_topk(1, block=16, pool=max, sinks=2, local=3)");
}

TEST(Pruner, SaysWhatIsWrongWithAText) {
  const auto message = [](const char* text) -> std::string {
    try {
      Pruner::parse(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(message("topk(1)"), HasSubstr("column 1: expected nm, block_topk"));
  EXPECT_THAT(message("nm(5,4)"), HasSubstr("expected n of 1 to m"));
  EXPECT_THAT(message("nm(2)"), HasSubstr("nm: expected m"));
  EXPECT_THAT(message("mass(2)"), HasSubstr("mass: keep: expected 0 to 1, got 2"));
  EXPECT_THAT(message("mass(0.5, blok=3)"), HasSubstr("did you mean \"block\"?"));
  EXPECT_THAT(message("mass(0.5, block=0.5)"), HasSubstr("block: expected a whole number"));
  EXPECT_THAT(message("mass(0.5, pool=sum)"), HasSubstr("pool: expected mean or max"));
  EXPECT_THAT(message("mass(0.5, keep=0.5)"), HasSubstr("keep is given twice"));
  EXPECT_THAT(message("mass(0.5, balance=0.5)"), HasSubstr("balance: expected 1 to"));
  EXPECT_THAT(message("mass(0.5) nm(2,4)"), HasSubstr("expected the end of the text"));
  EXPECT_THAT(message("block_topk(0.5, 64, mean, 1, 1, 7)"), HasSubstr("expected name=value"));
}

TEST(Prune, RefusesOperandsByName) {
  PruneCase c;
  c.shape = {1, 2, 4, 4};
  c.dim = 2;
  c.fill([] { return 1.0F; });
  const auto message = [&](const std::function<void(PruneInput&)>& change) -> std::string {
    PruneInput input = c.input();
    change(input);
    try {
      prune(input, Pruner{});
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(message([](PruneInput& in) { in.q.dtype = DType::kFloat16; }),
              HasSubstr("q: expected float32"));
  EXPECT_THAT(message([](PruneInput& in) { in.k.strides[3] = 2; }),
              HasSubstr("k: expected a last stride"));
  EXPECT_THAT(message([](PruneInput& in) { in.k.shape[3] = 1; }),
              HasSubstr("k: expected the batch and head_dim"));
  EXPECT_THAT(message([](PruneInput& in) { in.k.shape[1] = 3; }), HasSubstr("divides the 2 of q"));
  EXPECT_THAT(message([](PruneInput& in) { in.q.shape[2] = 0; }),
              HasSubstr("extents of at least 1"));
  EXPECT_THAT(message([](PruneInput& in) { in.scale = INFINITY; }),
              HasSubstr("scale: expected a number"));
}

}  // namespace
}  // namespace stof::mask
