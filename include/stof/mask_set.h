#pragma once
// MaskSet: the masks of a model's attention, which layers and heads may have of their own.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stof/fingerprint.h"
#include "stof/mask.h"

namespace stof::mask {

/// A mask and the layers and heads that have it.
struct MaskRule {
  /// Inclusive ranges of indices from 0; none: all.
  std::vector<std::pair<std::int64_t, std::int64_t>> layers, heads;
  Mask mask;
};

/// One mask for all layers and heads, or one with rules, of which the last that speaks of a layer
/// and head says what it sees. A cheap, immutable, thread-safe value. The default is all().
class MaskSet {
 public:
  MaskSet() = default;
  /// The same for all layers.
  MaskSet(Mask mask) : default_(std::move(mask)) {}  // NOLINT(google-explicit-constructor)
  /// `name` begins what is said of it. Throws InvalidArgument naming a rule whose ranges are
  /// empty, negative or past 2^20.
  MaskSet(Mask otherwise, std::vector<MaskRule> rules, std::string name = "mask set");

  /// Reads {"default": MASK, "rules": [{"layers": "0-3,7", "heads": [0, 2], "mask": MASK}]}, each
  /// MASK a text as parse() reads or an object as Mask::from_json() does, or one such object alone.
  /// Throws what those do, naming the field. Files are named as in parse().
  static MaskSet from_json(std::string_view json, const std::string& name = "mask set",
                           const std::string& base_dir = ".");
  /// Of a .json file; files that its masks name are relative to its folder. Throws NotFound, Io,
  /// and what from_json() does, naming the file.
  static MaskSet load(const std::string& path);

  const Mask& otherwise() const { return default_; }  ///< where no rule says more
  const std::vector<MaskRule>& rules() const { return rules_; }
  bool uniform() const { return rules_.empty(); }
  const std::string& name() const { return name_; }
  /// One more than the largest layer and head that a rule names; 0 where none does.
  std::int64_t num_layers_named() const;
  std::int64_t num_heads_named() const;

  /// Throws InvalidArgument naming the rule and field that names a layer or head past a model's, or
  /// a mask with another number of heads or with batch entries. `what`: what would have to be
  /// encoded apart: "texts".
  void check(std::int64_t num_layers, std::int64_t num_heads, const std::string& what) const;

  /// Layers that share a mask, and that mask, with heads of their own as per_head().
  struct Group {
    Mask mask;
    std::vector<std::int64_t> layers;
    std::string name;  ///< "masks.json: layers 0-3, 7"; of a uniform set "mask"
  };
  /// Of all layers of a model that passed check(), by their first layers.
  std::vector<Group> groups(std::int64_t num_layers, std::int64_t num_heads) const;
  /// The mask of one layer, likewise.
  Mask of_layer(std::int64_t layer, std::int64_t num_heads) const;

  /// Read back by from_json(); masks in canonical text.
  std::string to_json() const;
  /// One line: the mask's, or how many rules there are.
  std::string describe() const;
  Fingerprint fingerprint() const;

 private:
  Mask default_;
  std::vector<MaskRule> rules_;
  std::string name_ = "mask";
};

}  // namespace stof::mask
