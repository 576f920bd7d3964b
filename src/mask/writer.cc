// Canonical text, JSON, description and fingerprint of masks.

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "core/check.h"
#include "core/hash.h"
#include "mask/array_text.h"
#include "mask/canonical.h"
#include "mask/node.h"
#include "stof/mask.h"

namespace stof::mask {
namespace {

/// Longer lists are hashed in keys and shortened in descriptions.
constexpr std::size_t kLongList = 64;
constexpr std::size_t kLongDescribedList = 8;
constexpr std::size_t kDescribedHead = 3;

std::string number(double value) {
  return fmt::format("{}", value == 0 ? 0.0 : value);  // shortest text that reads back; no "-0"
}

/// Content is hashed as text, so that byte order does not enter.
std::string hash_text(std::string_view text) {
  return fmt::format("#{}", fingerprint_of(text).hex());
}

std::string list_text(const IntList& list, ListStyle style) {
  if (style == ListStyle::kHashed && list.size() > kLongList) {
    return hash_text(fmt::format("{}", fmt::join(list, ",")));
  }
  if (style == ListStyle::kShortened && list.size() > kLongDescribedList) {
    return fmt::format("[{}, ... {} more]",
                       fmt::join(list.begin(), list.begin() + kDescribedHead, ", "),
                       list.size() - kDescribedHead);
  }
  return fmt::format("[{}]", fmt::join(list, ", "));
}

std::string lists_text(const IntLists& lists, ListStyle style) {
  std::vector<std::string> parts;
  for (const IntList& list : lists) parts.push_back(list_text(list, style));
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

std::string rows_text(const BlockRows& heads, ListStyle style) {
  if (style == ListStyle::kShortened) {
    std::size_t blocks = 0;
    for (const auto& head : heads) {
      for (const auto& row : head) blocks += row.size();
    }
    return fmt::format("[{} x {} rows, {} blocks]", heads.size(),
                       heads.empty() ? 0 : heads.front().size(), blocks);
  }
  std::string out = "[";
  for (const auto& head : heads) {
    if (out.size() > 1) out += ", ";
    out += '[';
    const char* separator = "";
    for (const auto& row : head) {
      out += fmt::format("{}[{}]", separator, fmt::join(row, ", "));
      separator = ", ";
    }
    out += ']';
  }
  out += ']';
  return style == ListStyle::kHashed ? hash_text(out) : out;
}

IntList shape_of(const BitArray& array) { return {array.shape, array.shape + 4}; }

std::string bits_text(const BitArray& array, ListStyle style) {
  std::string hex = hex_of(array);
  return style == ListStyle::kHashed ? hash_text(hex) : fmt::format("\"{}\"", hex);
}

/// The three arguments of a predicate's tables, after its text.
std::string tables_text(const IntTables& tables, ListStyle style) {
  std::vector<std::string> names, shapes, values;
  for (const auto& table : tables) {
    names.push_back(fmt::format("\"{}\"", table->name()));
    shapes.push_back(table->shape().to_string());
    values.push_back(list_text(table->values(), style));
  }
  return fmt::format("[{}], [{}], [{}]", fmt::join(names, ", "), fmt::join(shapes, ", "),
                     fmt::join(values, ", "));
}

std::string value_text(const FormValue& value, ListStyle style) {
  struct Visitor {
    ListStyle style;
    std::string operator()(bool x) const { return x ? "true" : "false"; }
    std::string operator()(std::int64_t x) const { return fmt::format("{}", x); }
    std::string operator()(std::uint64_t x) const { return fmt::format("{}", x); }
    std::string operator()(double x) const { return number(x); }
    std::string operator()(const std::string& x) const { return fmt::format("\"{}\"", x); }
    std::string operator()(const IntTables& x) const { return tables_text(x, style); }
    std::string operator()(const IntList& x) const { return list_text(x, style); }
    std::string operator()(const IntLists& x) const { return lists_text(x, style); }
    std::string operator()(const std::shared_ptr<const BlockRows>& x) const {
      return rows_text(*x, style);
    }
    std::string operator()(const std::shared_ptr<const BitArray>& x) const {
      return bits_text(*x, style);
    }
  };
  return std::visit(Visitor{style}, value);
}

const std::string& child_text(const Form& child, ListStyle style, std::string& storage) {
  if (style == ListStyle::kHashed) return child.key;
  return storage = text_of(child, style);
}

/// "a & b": an operand that binds less tightly gets parentheses.
std::string junction_text(const Form& form, ListStyle style) {
  const bool is_and = form.function->name == "and";
  std::string out;
  std::string storage;
  for (const Form& child : form.children) {
    if (!out.empty()) out += is_and ? " & " : " | ";
    const std::string& text = child_text(child, style, storage);
    out += is_and && child.function->name == "or" ? fmt::format("({})", text) : text;
  }
  return out;
}

std::string not_text(const Form& form, ListStyle style) {
  const Form& child = form.children.front();
  std::string storage;
  const std::string& text = child_text(child, style, storage);
  const bool junction = child.function->name == "and" || child.function->name == "or";
  return junction ? fmt::format("~({})", text) : fmt::format("~{}", text);
}

std::string dense_text(const Form& form, ListStyle style) {
  const auto& array = *std::get<std::shared_ptr<const BitArray>>(form.arg("bits"));
  const IntList shape = shape_of(array);
  if (style == ListStyle::kShortened) return fmt::format("dense[{}]", fmt::join(shape, ","));
  return fmt::format("dense(shape=[{}], bits={})", fmt::join(shape, ", "), bits_text(array, style));
}

std::string predicate_text(const Form& form, ListStyle style) {
  const auto& tables = std::get<IntTables>(form.arg("values"));
  const std::string text = value_text(form.arg("text"), style);
  if (tables.empty()) return fmt::format("predicate({})", text);
  return fmt::format("predicate({}, {})", text, tables_text(tables, style));
}

/// The masks a function takes, as its first argument.
std::string masks_text(const Form& form, ListStyle style) {
  std::string out;
  std::string storage;
  for (const Form& child : form.children) {
    if (!out.empty()) out += ", ";
    out += child_text(child, style, storage);
  }
  return form.function->params.front().type == ParamType::kMaskList ? fmt::format("[{}]", out)
                                                                    : out;
}

}  // namespace

std::string text_of(const Form& form, ListStyle style) {
  const Function& function = *form.function;
  if (function.name == "and" || function.name == "or") return junction_text(form, style);
  if (function.name == "not") return not_text(form, style);
  if (function.name == "dense") return dense_text(form, style);
  if (function.name == "predicate") return predicate_text(form, style);

  std::vector<std::string> parts;
  bool keywords = false;  // once a parameter is left out, the rest need their names
  for (const Param& param : function.params) {
    if (param.type == ParamType::kMask || param.type == ParamType::kMaskList) {
      parts.push_back(masks_text(form, style));
      continue;
    }
    std::string text = param.default_text;
    for (const auto& [name, value] : form.args) {
      if (name == param.name) text = value_text(value, style);
    }
    if (!param.required() && text == param.default_text) {
      keywords = true;
      continue;
    }
    parts.push_back(keywords ? param.name + '=' + text : std::move(text));
  }
  if (parts.empty()) return function.name;
  return fmt::format("{}({})", function.name, fmt::join(parts, ", "));
}

std::string Mask::to_text() const { return text_of(canonical_form(*node_), ListStyle::kWhole); }

std::string Mask::to_json() const { return json_of(canonical_form(*node_)); }

std::string Mask::describe() const {
  return text_of(canonical_form(*node_), ListStyle::kShortened);
}

Fingerprint Mask::fingerprint() const {
  // The number is the version of the canonical form: count it up when a rule or spelling changes.
  return Hasher().add("stof mask 1").add(canonical_form(*node_).key).finish();
}

}  // namespace stof::mask
