#include "stof/mask_set.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/hash.h"
#include "mask/mask_set_json.h"

namespace stof::mask {
namespace {

using Ranges = std::vector<std::pair<std::int64_t, std::int64_t>>;

bool speaks_of(const Ranges& ranges, std::int64_t index) {
  return ranges.empty() || std::any_of(ranges.begin(), ranges.end(), [index](const auto& range) {
           return range.first <= index && index <= range.second;
         });
}

std::int64_t one_past(const Ranges& ranges) {
  std::int64_t end = 0;
  for (const auto& [first, last] : ranges) end = std::max(end, last + 1);
  return end;
}

/// "0-3, 7"
std::string text_of_ranges(const Ranges& ranges) {
  std::string text;
  for (const auto& [first, last] : ranges)
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", first,
                        last == first ? "" : fmt::format("-{}", last));
  return text;
}

Ranges ranges_of(const std::vector<std::int64_t>& ascending) {
  Ranges ranges;
  for (const std::int64_t index : ascending)
    if (!ranges.empty() && ranges.back().second == index - 1)
      ranges.back().second = index;
    else
      ranges.emplace_back(index, index);
  return ranges;
}

}  // namespace

MaskSet::MaskSet(Mask otherwise, std::vector<MaskRule> rules, std::string name)
    : default_(std::move(otherwise)), rules_(std::move(rules)), name_(std::move(name)) {
  for (std::size_t i = 0; i < rules_.size(); ++i)
    for (const auto& [field, ranges] :
         {std::pair{"layers", &rules_[i].layers}, {"heads", &rules_[i].heads}})
      for (const auto& [first, last] : *ranges)
        STOF_CHECK(first >= 0 && first <= last && last < kMaxMaskedIndex, kInvalidArgument,
                   "{}: rules[{}].{}: expected ranges from 0 up to {}, got {} to {}", name_, i,
                   field, kMaxMaskedIndex - 1, first, last);
}

std::int64_t MaskSet::num_layers_named() const {
  std::int64_t count = 0;
  for (const MaskRule& rule : rules_) count = std::max(count, one_past(rule.layers));
  return count;
}

std::int64_t MaskSet::num_heads_named() const {
  std::int64_t count = 0;
  for (const MaskRule& rule : rules_) count = std::max(count, one_past(rule.heads));
  return count;
}

void MaskSet::check(std::int64_t num_layers, std::int64_t num_heads,
                    const std::string& what) const {
  const auto check_mask = [&](const Mask& mask, const std::string& field) {
    STOF_CHECK(mask.batch_extent() <= 1, kInvalidArgument,
               "{}: expected one mask for all {}, got one with {} batch entries", field, what,
               mask.batch_extent());
    const std::int64_t heads = mask.head_extent();
    STOF_CHECK(heads <= 1 || heads == num_heads, kInvalidArgument,
               "{}: expected one mask for all heads or one for each of {}, got {}", field,
               num_heads, heads);
  };
  check_mask(default_, uniform() ? name_ : name_ + ": default");
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    const std::string rule = fmt::format("{}: rules[{}].", name_, i);
    STOF_CHECK(one_past(rules_[i].layers) <= num_layers, kInvalidArgument,
               "{}layers: expected layers below {}, as many as the model has, got {}", rule,
               num_layers, text_of_ranges(rules_[i].layers));
    STOF_CHECK(one_past(rules_[i].heads) <= num_heads, kInvalidArgument,
               "{}heads: expected heads below {}, as many as the model has, got {}", rule,
               num_heads, text_of_ranges(rules_[i].heads));
    check_mask(rules_[i].mask, rule + "mask");
  }
}

std::vector<MaskSet::Group> MaskSet::groups(std::int64_t num_layers, std::int64_t num_heads) const {
  std::vector<Group> groups;
  std::map<std::vector<int>, std::size_t> by_rules;  // rule of each head, or of all; -1: none
  for (std::int64_t layer = 0; layer < num_layers; ++layer) {
    std::vector<int> own;
    for (std::int64_t head = 0; head < num_heads; ++head) {
      auto rule = static_cast<int>(rules_.size()) - 1;
      while (rule >= 0 && !(speaks_of(rules_[static_cast<std::size_t>(rule)].layers, layer) &&
                            speaks_of(rules_[static_cast<std::size_t>(rule)].heads, head)))
        --rule;
      own.push_back(rule);
    }
    if (std::all_of(own.begin(), own.end(), [&](int rule) { return rule == own[0]; }))
      own.resize(1);
    const auto [found, is_new] = by_rules.try_emplace(own, groups.size());
    if (is_new) {
      std::vector<Mask> heads;
      heads.reserve(own.size());
      for (const int rule : own)
        heads.push_back(rule < 0 ? default_ : rules_[static_cast<std::size_t>(rule)].mask);
      groups.push_back({heads.size() == 1 ? heads[0] : per_head(heads), {}, name_});
    }
    groups[found->second].layers.push_back(layer);
  }
  if (!uniform())
    for (Group& group : groups) group.name += ": layers " + text_of_ranges(ranges_of(group.layers));
  return groups;
}

Mask MaskSet::of_layer(std::int64_t layer, std::int64_t num_heads) const {
  for (Group& group : groups(layer + 1, num_heads))
    if (group.layers.back() == layer) return group.mask;
  throw_error(ErrorCode::kInvalidArgument, "{}: layer: expected 0 or more, got {}", name_, layer);
}

std::string MaskSet::to_json() const {
  nlohmann::ordered_json json;
  json["default"] = default_.to_text();
  json["rules"] = nlohmann::ordered_json::array();
  for (const MaskRule& rule : rules_) {
    nlohmann::ordered_json entry;
    if (!rule.layers.empty()) entry["layers"] = text_of_ranges(rule.layers);
    if (!rule.heads.empty()) entry["heads"] = text_of_ranges(rule.heads);
    entry["mask"] = rule.mask.to_text();
    json["rules"].push_back(std::move(entry));
  }
  return json.dump();
}

std::string MaskSet::describe() const {
  if (uniform()) return default_.describe();
  return fmt::format("{} with {} rule{} for layers and heads", default_.describe(), rules_.size(),
                     rules_.size() == 1 ? "" : "s");
}

Fingerprint MaskSet::fingerprint() const {
  Hasher hasher;
  hasher.add(default_.fingerprint());
  for (const MaskRule& rule : rules_) {
    hasher.add(text_of_ranges(rule.layers)).add(text_of_ranges(rule.heads));
    hasher.add(rule.mask.fingerprint());
  }
  return hasher.finish();
}

}  // namespace stof::mask
