#pragma once
// Random mask expressions as text, made of every function the registry knows.

#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

#include "mask/registry.h"

namespace stof::mask::testing {

/// A function's own example, or one whose arguments canonical forms have to look at.
inline std::string random_leaf() {
  static const std::vector<std::string> leaves = [] {
    std::vector<std::string> all = {
        "window(-1, 2)",
        "window(2, -1)",
        "window(-1, -1)",
        "prefix(0)",
        "global(0, 3)",
        "global(2, 0)",
        "global(0, 0)",
        "dilated(5, 1)",
        "document([0, 4, 0])",
        "document([])",
        "global_tokens([])",
        "causal(-3)",
        "block_window(3, -1, 0)",
        "block_window(3, 0, 0)",
        "block_window(3, 1, -1)",
        "global_tokens([3, 1, 3], rows=false)",
        "global_tokens([2], false, false)",
        "neighbourhood([3, 5], [3, 3], [1, 1], [1, 1], [0, 0])",
        "neighbourhood([12], [3], dilation=[2])",
        "random_blocks(4, count=2, seed=7, heads=1, q_blocks=5, kv_blocks=5)",
        "random_blocks(3, rate=0.25, seed=18446744073709551615)",
        "random(0.5, per_head=true)",
        "per_head([causal])",
        "shifted(causal, 0, 0)"};
    for (const Function& function : functions()) all.push_back(function.example);
    return all;
  }();
  return *rc::gen::elementOf(leaves);
}

inline std::string random_text(int depth) {
  if (depth == 0) return random_leaf();
  const auto part = [depth] { return random_text(depth - 1); };
  switch (*rc::gen::inRange(0, 8)) {
    case 0:
      return "~(" + part() + ")";
    case 1:
      return "(" + part() + ") & (" + part() + ")";
    case 2:
      return "(" + part() + " | " + part() + ")";
    case 3:
      return part() + " | " + part() + " & " + part();
    case 4:
      return "shifted(" + part() + ", dq=" + std::to_string(*rc::gen::inRange(-4, 5)) +
             ", dk=" + std::to_string(*rc::gen::inRange(-4, 5)) + ")";
    case 5:
      return "per_head([" + part() + ", " + part() + "])";
    case 6:
      return "per_batch([" + part() + ", " + part() + "])";
    default:
      return random_leaf();
  }
}

}  // namespace stof::mask::testing
