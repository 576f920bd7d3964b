// The registry's primitives that are a formula over (query, key).

#include "core/check.h"
#include "mask/node_factories.h"
#include "mask/registry.h"

namespace stof::mask {
namespace {

using enum ParamType;
using enum FunctionKind;
using Args = Arguments;

Mask build_neighbourhood(const Args& a) {
  Neighbourhood params;
  params.grid = a.integers("grid");
  params.kernel = a.integers("kernel");
  params.dilation = a.integers("dilation");
  params.tile = a.integers("tile");
  params.shift = a.integers("shift");
  return neighbourhood(params);
}

Mask build_random_blocks(const Args& a) {
  STOF_CHECK(a.given("count") != a.given("rate"), kInvalidArgument,
             "random_blocks: expected either count (block columns per block row) or rate (0 to 1), "
             "got {}",
             a.given("count") ? "both" : "neither");
  const std::int64_t heads = a.integer("heads");
  const std::int64_t q_blocks = a.integer("q_blocks");
  const std::int64_t kv_blocks = a.integer("kv_blocks");
  if (a.given("count")) {
    return random_blocks_of_grid(a.integer("block"), a.integer("count"), a.seed("seed"),
                                 a.flag("per_head"), heads, q_blocks, kv_blocks);
  }
  STOF_CHECK(heads == 0 && q_blocks == 0 && kv_blocks == 0, kInvalidArgument,
             "random_blocks: heads, q_blocks and kv_blocks go with count, not with rate");
  return random_blocks_rate(a.integer("block"), a.real("rate"), a.seed("seed"), a.flag("per_head"));
}

}  // namespace

std::vector<Function> primitive_functions() {
  return {
      {"all", kPrimitive, {}, "every pair", "all", [](const Args&) { return all(); }},
      {"none", kPrimitive, {}, "no pair", "none", [](const Args&) { return none(); }},
      {"causal",
       kPrimitive,
       {{"offset", kInt, "0"}},
       "k <= q + offset",
       "causal(2)",
       [](const Args& a) { return causal(a.integer("offset")); }},
      {"window",
       kPrimitive,
       {{"left", kInt, ""}, {"right", kInt, ""}},
       "q - left <= k <= q + right, both inclusive; -1 = unbounded",
       "window(3, 0)",
       [](const Args& a) { return window(a.integer("left"), a.integer("right")); }},
      {"chunked",
       kPrimitive,
       {{"n", kInt, ""}},
       "q and k in the same chunk of n tokens",
       "chunked(4)",
       [](const Args& a) { return chunked(a.integer("n")); }},
      {"block_causal",
       kPrimitive,
       {{"n", kInt, ""}},
       "floor(q/n) >= floor(k/n): causal between blocks of n tokens, full inside one",
       "block_causal(4)",
       [](const Args& a) { return block_causal(a.integer("n")); }},
      {"block_window",
       kPrimitive,
       {{"block", kInt, ""}, {"left", kInt, ""}, {"right", kInt, ""}},
       "the block of k is at most `left` blocks before and `right` after that of q; -1 = unbounded",
       "block_window(4, 1, 1)",
       [](const Args& a) {
         return block_window(a.integer("block"), a.integer("left"), a.integer("right"));
       }},
      {"prefix",
       kPrimitive,
       {{"n", kInt, ""}},
       "the first n keys, for every query",
       "prefix(4)",
       [](const Args& a) { return prefix(a.integer("n")); }},
      {"sink",
       kPrimitive,
       {{"n", kInt, ""}},
       "prefix(n) under its streaming name",
       "sink(4)",
       [](const Args& a) { return sink(a.integer("n")); }},
      {"global",
       kPrimitive,
       {{"rows", kInt, "0"}, {"cols", kInt, "0"}},
       "the first `rows` queries see everything, the first `cols` keys are seen by all",
       "global(rows=2, cols=2)",
       [](const Args& a) { return global(a.integer("rows"), a.integer("cols")); }},
      {"global_tokens",
       kPrimitive,
       {{"tokens", kIntList, ""}, {"rows", kFlag, "true"}, {"cols", kFlag, "true"}},
       "the listed tokens see everything (rows) and are seen by all (cols)",
       "global_tokens([0, 5])",
       [](const Args& a) {
         return global_tokens(a.integers("tokens"), a.flag("rows"), a.flag("cols"));
       }},
      {"dilated",
       kPrimitive,
       {{"window", kInt, ""}, {"rate", kInt, ""}},
       "|q - k| <= window and q - k a multiple of rate",
       "dilated(4, 2)",
       [](const Args& a) { return dilated(a.integer("window"), a.integer("rate")); }},
      {"strided",
       kPrimitive,
       {{"local", kInt, ""}, {"stride", kInt, ""}},
       "|q - k| <= local or q - k a multiple of stride",
       "strided(1, 4)",
       [](const Args& a) { return strided(a.integer("local"), a.integer("stride")); }},
      {"summary",
       kPrimitive,
       {{"stride", kInt, ""}, {"count", kInt, ""}},
       "the last `count` keys of every `stride`",
       "summary(4, 1)",
       [](const Args& a) { return summary(a.integer("stride"), a.integer("count")); }},
      {"neighbourhood",
       kPrimitive,
       {{"grid", kIntList, ""},
        {"kernel", kIntList, ""},
        {"dilation", kIntList, "[]"},
        {"tile", kIntList, "[]"},
        {"shift", kIntList, "[]"}},
       "`kernel` neighbours per dimension of a 1- to 3-D token grid, clamped at the border",
       "neighbourhood([4, 4], [3, 3])",
       build_neighbourhood},
      {"random_blocks",
       kPrimitive,
       {{"block", kInt, ""},
        {"count", kInt, Param::kNoDefault},
        {"rate", kReal, Param::kNoDefault},
        {"seed", kSeed, "0"},
        {"per_head", kFlag, "false"},
        {"heads", kInt, "0"},
        {"q_blocks", kInt, "0"},
        {"kv_blocks", kInt, "0"}},
       "seeded blocks: `count` per block row, or each with probability `rate`; the grid is drawn "
       "for heads, q_blocks and kv_blocks, which a bound mask prints",
       "random_blocks(4, count=2, seed=7)",
       build_random_blocks},
      {"random",
       kPrimitive,
       {{"rate", kReal, ""}, {"seed", kSeed, "0"}, {"per_head", kFlag, "false"}},
       "seeded: each pair with probability `rate`",
       "random(rate=0.1, seed=7)",
       [](const Args& a) {
         return random_elements(a.real("rate"), a.seed("seed"), a.flag("per_head"));
       }},
  };
}

}  // namespace stof::mask
