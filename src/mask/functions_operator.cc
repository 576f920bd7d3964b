// The registry's operators and presets.

#include "core/check.h"
#include "mask/node_factories.h"
#include "mask/registry.h"

namespace stof::mask {
namespace {

using enum ParamType;
using enum FunctionKind;
using Args = Arguments;

/// and([a, b, c]) of no mask is all, or([]) is none: the neutral elements.
template <bool kAnd>
Mask build_junction(const Args& a) {
  std::vector<Mask> masks = a.masks("of");
  if (masks.empty()) return kAnd ? all() : none();
  while (masks.size() > 1) {  // pairwise: a chain of n costs n log n
    std::vector<Mask> joined;
    for (std::size_t i = 0; i + 1 < masks.size(); i += 2) {
      joined.push_back(kAnd ? masks[i] & masks[i + 1] : masks[i] | masks[i + 1]);
    }
    if (masks.size() % 2 == 1) joined.push_back(masks.back());
    masks = std::move(joined);
  }
  return masks.front();
}

Mask build_bound(const Args& a) {
  const ScoreShape shape{a.integer("batch"), a.integer("heads"), a.integer("seq_q"),
                         a.integer("seq_kv")};
  return make_bound(a.mask("of"), shape,
                    a.flag("bottom_right") ? Alignment::kBottomRight : Alignment::kTopLeft);
}

}  // namespace

std::vector<Function> operator_functions() {
  return {
      {"and",
       kOperator,
       {{"of", kMaskList, ""}},
       "a & b: visible in all of them",
       "and([causal, sink(4)])",
       build_junction<true>},
      {"or",
       kOperator,
       {{"of", kMaskList, ""}},
       "a | b: visible in one of them",
       "or([causal, sink(4)])",
       build_junction<false>},
      {"not",
       kOperator,
       {{"of", kMask, ""}},
       "~a: what a hides",
       "not(causal)",
       [](const Args& a) { return ~a.mask("of"); }},
      {"shifted",
       kOperator,
       {{"of", kMask, ""}, {"dq", kInt, "0"}, {"dk", kInt, "0"}},
       "the mask asked at (q + dq, k + dk)",
       "shifted(chunked(4), dq=1, dk=1)",
       [](const Args& a) { return shifted(a.mask("of"), a.integer("dq"), a.integer("dk")); }},
      {"per_head",
       kOperator,
       {{"of", kMaskList, ""}},
       "head h uses the h-th mask",
       "per_head([causal, window(4, 0)])",
       [](const Args& a) { return per_head(a.masks("of")); }},
      {"per_batch",
       kOperator,
       {{"of", kMaskList, ""}},
       "batch entry b uses the b-th mask",
       "per_batch([causal, window(4, 0)])",
       [](const Args& a) { return per_batch(a.masks("of")); }},
      {"batch_entry",
       kOperator,
       {{"of", kMask, ""}, {"entry", kInt, ""}},
       "what batch entry `entry` of the mask sees, for all; arrays may be longer and are cut",
       "batch_entry(key_lengths([5, 8]), 1)",
       [](const Args& a) { return batch_entry(a.mask("of"), a.integer("entry")); }},
      {"bound",
       kOperator,
       {{"of", kMask, ""},
        {"batch", kInt, ""},
        {"heads", kInt, ""},
        {"seq_q", kInt, ""},
        {"seq_kv", kInt, ""},
        {"bottom_right", kFlag, "false"}},
       "a mask already resolved for these lengths: what a bound mask prints",
       "bound(causal, 1, 1, 8, 8)",
       build_bound},
  };
}

std::vector<Function> preset_functions() {
  return {
      {"bert_padding",
       kPreset,
       {{"lengths", kIntList, ""}},
       "key_lengths(lengths)",
       "bert_padding([5, 8])",
       [](const Args& a) { return bert_padding(a.integers("lengths")); }},
      {"sliding",
       kPreset,
       {{"w", kInt, "256"}},
       "window(w, w)",
       "sliding(w=3)",
       [](const Args& a) { return sliding(a.integer("w")); }},
      {"longformer",
       kPreset,
       {{"w", kInt, "256"}, {"num_global", kInt, "64"}},
       "sliding(w) | global(num_global, num_global)",
       "longformer(w=2, num_global=1)",
       [](const Args& a) { return longformer(a.integer("w"), a.integer("num_global")); }},
      {"bigbird",
       kPreset,
       {{"block", kInt, "64"},
        {"window_blocks", kInt, "1"},
        {"global_blocks", kInt, "2"},
        {"random_count", kInt, "3"},
        {"seed", kSeed, "0"}},
       "window, global and random blocks",
       "bigbird(block=4, random_count=1)",
       [](const Args& a) {
         return bigbird(a.integer("block"), a.integer("window_blocks"), a.integer("global_blocks"),
                        a.integer("random_count"), a.seed("seed"));
       }},
      {"sparse_transformer_strided",
       kPreset,
       {{"local", kInt, "128"}, {"stride", kInt, "128"}},
       "causal & strided(local, stride)",
       "sparse_transformer_strided(2, 4)",
       [](const Args& a) {
         return sparse_transformer_strided(a.integer("local"), a.integer("stride"));
       }},
      {"sparse_transformer_fixed",
       kPreset,
       {{"stride", kInt, "128"}, {"count", kInt, "8"}},
       "causal & (chunked(stride) | summary(stride, count))",
       "sparse_transformer_fixed(4, 1)",
       [](const Args& a) {
         return sparse_transformer_fixed(a.integer("stride"), a.integer("count"));
       }},
      {"streaming",
       kPreset,
       {{"num_sinks", kInt, "4"}, {"w", kInt, "1024"}},
       "causal & (sink(num_sinks) | window(w, 0))",
       "streaming(1, 3)",
       [](const Args& a) { return streaming(a.integer("num_sinks"), a.integer("w")); }},
  };
}

}  // namespace stof::mask
