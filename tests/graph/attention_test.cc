// Attention with a table of position biases, and cross-attention.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "graph/cache_pages.h"
#include "graph/graph.h"
#include "stof/error.h"

namespace stof::graph {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr DType kRowsType = DType::kFloat32;

std::string said_by(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

/// Attention to a cache, under a table of biases or to another text's keys.
struct CachedParts : GraphBuilder {
  ValueId x = input("x", kRowsType, {6, 8});
  ValueId square = weight("square", kRowsType, {8, 8});
  ValueId cache = state("cache", kRowsType, {12, 16});
  ValueId table = weight("table", kRowsType, {6, 4});
  Attributes attributes() const {
    Attributes a;
    a.heads = a.kv_heads = 4;
    a.head_dim = 2;
    return a;
  }
  ValueId attend(ValueId biases, const Attributes& a) {
    return attention("op", x, columns("k", cache, 0, 8), columns("v", cache, 8, 8), biases, a);
  }
};

TEST(Graph, TellsPositionBiasAndCrossAttentionFromOthers) {
  const auto graph_of = [](std::int64_t max_distance, bool bidirectional, bool cross) {
    CachedParts p;
    Attributes a = p.attributes();
    a.max_distance = max_distance;
    a.bidirectional = bidirectional;
    a.cross = cross;
    p.mark_live_out(p.attend(max_distance > 0 ? p.table : kNoId, a));
    return p.build();
  };
  const Graph plain = graph_of(0, false, false), causal = graph_of(9, false, false),
              both = graph_of(9, true, false), cross = graph_of(0, false, true);
  EXPECT_THAT(causal.print(), HasSubstr("%cache[8:16], %table {heads 4, kv_heads 4, head_dim 2, "
                                        "buckets causal, max_distance 9} : float32[6, 8]"));
  EXPECT_THAT(both.print(), HasSubstr("buckets bidirectional"));
  EXPECT_THAT(cross.print(), HasSubstr("head_dim 2, keys cross}"));
  const auto attributes = nlohmann::json::parse(both.to_json())["operators"][0]["attributes"];
  EXPECT_EQ(attributes["bidirectional"], true);
  EXPECT_EQ(attributes["max_distance"], 9);
  EXPECT_EQ(nlohmann::json::parse(cross.to_json())["operators"][0]["attributes"]["cross"], true);
  std::set<std::string> fingerprints;
  for (const Graph& graph : {plain, causal, both, cross, graph_of(10, false, false)})
    fingerprints.insert(graph.fingerprint().hex());
  EXPECT_EQ(fingerprints.size(), 5u);
}

TEST(GraphBuilder, RefusesTablesOfBiasesThatDoNotFit) {
  struct Case {
    const char* said;
    std::function<ValueId(CachedParts&, Attributes)> make;
  };
  const auto biased = [](Attributes a, std::int64_t max_distance, bool bidirectional) {
    a.max_distance = max_distance;
    a.bidirectional = bidirectional;
    return a;
  };
  const std::vector<Case> cases = {
      {"max_distance: expected a table",
       [&](CachedParts& p, Attributes a) { return p.attend(kNoId, biased(a, 9, false)); }},
      {"bidirectional: expected a table",
       [&](CachedParts& p, Attributes a) { return p.attend(kNoId, biased(a, 0, true)); }},
      {"max_distance: expected at least 4",
       [&](CachedParts& p, Attributes a) { return p.attend(p.table, biased(a, 3, false)); }},
      {"\"square\"",
       [&](CachedParts& p, Attributes a) { return p.attend(p.square, biased(a, 9, false)); }},
      {"an even number",
       [&](CachedParts& p, Attributes a) {
         return p.attend(p.weight("odd", kRowsType, {7, 4}), biased(a, 9, true));
       }},
      {"table: expected none with cross",
       [&](CachedParts& p, Attributes a) {
         a.cross = true;
         return p.attend(p.table, biased(a, 9, false));
       }},
      {"cross: expected keys and values of a cache",
       [&](CachedParts& p, Attributes a) {
         a.cross = true;
         return p.attention("op", p.x, p.x, p.x, kNoId, a);
       }},
  };
  for (const Case& test : cases) {
    CachedParts p;
    EXPECT_THAT(said_by([&] { test.make(p, p.attributes()); }),
                AllOf(HasSubstr("\"op\""), HasSubstr(test.said)));
  }
}

TEST(CachePages, MayBeLongerOrShorterThanThePassWhereKeysAreNotItsOwn) {
  const CachePages pages = {4, {{0}, {2, 1}}, {3, 5}};
  pages.validate_cross(2, 12);
  EXPECT_NO_THROW(pages.validate({0, 3, 8}, 12));
  EXPECT_THAT(said_by([&] { pages.validate({0, 4, 8}, 12); }), HasSubstr("at least its 4 rows"));
  EXPECT_THAT(said_by([&] { pages.validate_cross(3, 12); }), HasSubstr("each of 3 sequences"));
  EXPECT_THAT(said_by([&] { pages.validate_cross(2, 11); }), HasSubstr("got page 2 of 4 rows"));
}

}  // namespace
}  // namespace stof::graph
