#pragma once
// Canonical form: one tree for expressions that are written differently and mean the same by the
// rules below. Text, JSON and fingerprint are made of it. It sees exactly the same pairs as the
// expression it came from.
//
//   and, or      nested ones are flattened; operands are sorted by `key` and those with equal keys
//                kept once; all and none are absorbed (all & x = x, none & x = none, and so on);
//                a single operand stands for itself
//   not          ~~x = x, ~all = none, ~none = all
//   shifted      stays, also by 0: below it, bind() takes arrays of other lengths
//   per_head, per_batch  of one mask are that mask
//   batch_entry  stays, as shifted does
//   window       unbounded is -1; window(-1, -1) = all; window(-1, r) = causal(r)
//   dilated      rate 1 = window(w, w)
//   block_window (n, 0, 0) = chunked(n), (n, -1, 0) = block_causal(n)
//   prefix       sink(n) and global(0, n) are prefix(n); of 0 = none
//   global       (0, 0) = none
//   global_tokens  sorted, distinct (its factory does it); of no token, or with neither rows nor
//                cols = none
//   document     lengths of 0 are dropped; of no length = none
//   neighbourhood  dilation and tile of only 1, and shift of only 0, are dropped
//   blocks       columns sorted (its factory does it)
//   predicate    its text is the expression's canonical one; tables that are read, by name
//   presets      are what they expand to
//
// Arguments equal to their default are left out of the text, and written in JSON.

#include <string>
#include <utility>
#include <vector>

#include "mask/registry.h"

namespace stof::mask {

/// A canonical argument: what Argument holds, with boolean arrays as they are.
using FormValue =
    std::variant<bool, std::int64_t, std::uint64_t, double, std::string, IntList, IntLists,
                 std::shared_ptr<const BitArray>, std::shared_ptr<const BlockRows>, IntTables>;

struct Form {
  const Function* function = nullptr;  ///< an entry of functions()
  /// In signature order, without masks. An array's pair "shape", "bits" is one entry, "bits"; a
  /// predicate's "names", "shapes", "values" are one, "values".
  std::vector<std::pair<std::string, FormValue>> args;
  std::vector<Form> children;
  /// Canonical text in which long lists and arrays are replaced by a hash of their content: equal
  /// keys are equal masks. It sorts operands, and its hash is the fingerprint.
  std::string key;

  const FormValue& arg(std::string_view name) const;
};

Form canonical_form(const Node& node);

/// How long lists and arrays are written.
enum class ListStyle : std::uint8_t { kWhole, kHashed, kShortened };

/// The text of a form; with kHashed its key (children must have theirs).
std::string text_of(const Form& form, ListStyle style);

/// Compact canonical JSON.
std::string json_of(const Form& form);

}  // namespace stof::mask
