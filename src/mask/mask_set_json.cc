#include "mask/mask_set_json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <span>

#include "core/check.h"
#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "mask/nesting.h"
#include "stof/mask_set.h"

namespace stof::mask {
namespace {

using Json = nlohmann::json;
using Ranges = std::vector<std::pair<std::int64_t, std::int64_t>>;

constexpr std::uint64_t kMaxSetBytes = std::uint64_t{1} << 28;

/// Puts the field before what its mask is refused for.
template <class Read>
Mask naming_field(const std::string& field, const Read& read) {
  try {
    return read();
  } catch (const Error& error) {
    throw Error(error.code(), field + ": " + error.what());
  }
}

Mask read_set_mask(const Json& value, const std::string& field, const std::string& base_dir) {
  if (value.is_string())
    return naming_field(field,
                        [&] { return parse(value.get_ref<const std::string&>(), base_dir); });
  STOF_CHECK(value.is_object(), kInvalidArgument,
             "{}: expected a mask's text such as \"window(64, 64)\", or its JSON object, got {}",
             field, quote_text(value.dump(), 40));
  return naming_field(field, [&] { return from_json(value.dump()); });
}

/// "0-3,7"
Ranges ranges_of_text(std::string_view text, const std::string& field) {
  Ranges ranges;
  const auto refuse = [&] {
    throw_error(ErrorCode::kInvalidArgument,
                "{}: expected indices and ascending ranges such as \"0-3,7\" below {}, got {}",
                field, kMaxMaskedIndex, quote_text(text, 40));
  };
  const char *at = text.data(), *const end = at + text.size();
  const auto skip = [&] {
    while (at != end && *at == ' ') ++at;
  };
  const auto number = [&] {
    skip();
    std::int64_t value = 0;
    const auto [next, failed] = std::from_chars(at, end, value);
    if (failed != std::errc() || value < 0 || value >= kMaxMaskedIndex) refuse();
    at = next;
    skip();
    return value;
  };
  for (;;) {
    const std::int64_t first = number();
    std::int64_t last = first;
    if (at != end && *at == '-') {
      ++at;
      last = number();
    }
    if (last < first) refuse();
    ranges.emplace_back(first, last);
    if (at == end) return ranges;
    if (*at++ != ',') refuse();
  }
}

void read_ranges(const Json& value, const std::string& field, Ranges& ranges) {
  if (value.is_number_integer()) {
    const auto index = value.is_number_unsigned() && value.get<std::uint64_t>() >=
                                                         static_cast<std::uint64_t>(kMaxMaskedIndex)
                           ? std::int64_t{-1}
                           : value.get<std::int64_t>();
    STOF_CHECK(index >= 0 && index < kMaxMaskedIndex, kInvalidArgument,
               "{}: expected an index from 0 to {}, got {}", field, kMaxMaskedIndex - 1,
               value.dump());
    ranges.emplace_back(index, index);
    return;
  }
  STOF_CHECK(value.is_string(), kInvalidArgument,
             "{}: expected an index, a text such as \"0-3,7\", or a list of these, got {}", field,
             quote_text(value.dump(), 40));
  for (const auto& range : ranges_of_text(value.get_ref<const std::string&>(), field))
    ranges.push_back(range);
}

Ranges read_range_list(const Json& value, const std::string& field) {
  Ranges ranges;
  if (!value.is_array()) {
    read_ranges(value, field, ranges);
    return ranges;
  }
  STOF_CHECK(!value.empty(), kInvalidArgument,
             "{}: expected at least one index, got none; leave the field out for all", field);
  for (std::size_t i = 0; i < value.size(); ++i)
    read_ranges(value[i], fmt::format("{}[{}]", field, i), ranges);
  return ranges;
}

void check_fields(const Json& object, const std::string& where,
                  std::span<const std::string_view> known) {
  STOF_CHECK(object.is_object(), kInvalidArgument, "{}: expected an object, got {}", where,
             quote_text(object.dump(), 40));
  for (const auto& [field, value] : object.items())
    STOF_CHECK(std::find(known.begin(), known.end(), field) != known.end(), kInvalidArgument,
               "{}: unknown field {}{}", where, quote_text(field, 40),
               near_name_hint(field, known));
}

}  // namespace

MaskSet MaskSet::from_json(std::string_view text, const std::string& name,
                           const std::string& base_dir) {
  constexpr int kLevelsAround = 3;  // the set, its rules, a rule
  const Json json = parse_json(text, name, kMaxSyntaxDepth + kLevelsAround);
  if (json.is_object() && json.contains("op")) {
    MaskSet set(naming_field(name, [&] { return mask::from_json(text); }));
    set.name_ = name;
    return set;
  }
  static constexpr std::array<std::string_view, 2> kFields = {"default", "rules"};
  static constexpr std::array<std::string_view, 3> kRuleFields = {"layers", "heads", "mask"};
  check_fields(json, name, kFields);
  Mask otherwise;
  if (json.contains("default"))
    otherwise = read_set_mask(json["default"], name + ": default", base_dir);
  std::vector<MaskRule> rules;
  if (json.contains("rules")) {
    const Json& list = json["rules"];
    STOF_CHECK(list.is_array(), kInvalidArgument, "{}: rules: expected a list, got {}", name,
               quote_text(list.dump(), 40));
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::string where = fmt::format("{}: rules[{}]", name, i);
      const Json& entry = list[i];
      check_fields(entry, where, kRuleFields);
      STOF_CHECK(entry.contains("mask"), kInvalidArgument,
                 "{}: expected a field \"mask\", got none", where);
      MaskRule& rule = rules.emplace_back();
      if (entry.contains("layers"))
        rule.layers = read_range_list(entry["layers"], where + ".layers");
      if (entry.contains("heads")) rule.heads = read_range_list(entry["heads"], where + ".heads");
      rule.mask = read_set_mask(entry["mask"], where + ".mask", base_dir);
    }
  }
  return MaskSet(std::move(otherwise), std::move(rules), name);
}

MaskSet MaskSet::load(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return from_json(read_text_file(path, kMaxSetBytes), path,
                   slash == std::string::npos ? "." : path.substr(0, slash + 1));
}

}  // namespace stof::mask
