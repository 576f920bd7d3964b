#include "mask/literal.h"

#include <fmt/core.h>

#include <cmath>
#include <limits>

#include "core/text.h"

namespace stof::mask {
namespace {

/// Thrown and caught inside this file only.
struct Fault {
  std::string message;
  std::vector<std::size_t> reversed_trail;
};

[[noreturn]] void fail(const char* expected, const Literal& got) {
  throw Fault{fmt::format("expected {}, got {}", expected, got.describe()), {}};
}

std::int64_t to_int(const Literal& literal, const char* expected) {
  if (const auto* value = std::get_if<std::int64_t>(&literal.value)) return *value;
  if (const auto* value = std::get_if<std::uint64_t>(&literal.value)) {
    if (*value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return static_cast<std::int64_t>(*value);
    }
    throw Fault{fmt::format("expected at most {}, got {}", std::numeric_limits<std::int64_t>::max(),
                            *value),
                {}};
  }
  fail(expected, literal);
}

std::uint64_t to_seed(const Literal& literal) {
  if (const auto* value = std::get_if<std::uint64_t>(&literal.value)) return *value;
  const std::int64_t value = to_int(literal, describe(ParamType::kSeed));
  if (value < 0) fail(describe(ParamType::kSeed), literal);
  return static_cast<std::uint64_t>(value);
}

double to_real(const Literal& literal) {
  if (const auto* value = std::get_if<double>(&literal.value)) {
    if (!std::isfinite(*value)) fail(describe(ParamType::kReal), literal);
    return *value;
  }
  if (const auto* value = std::get_if<std::int64_t>(&literal.value)) {
    return static_cast<double>(*value);
  }
  if (const auto* value = std::get_if<std::uint64_t>(&literal.value)) {
    return static_cast<double>(*value);
  }
  fail(describe(ParamType::kReal), literal);
}

std::int32_t to_column(const Literal& literal) {
  const std::int64_t value = to_int(literal, "a block column (a whole number)");
  if (value < 0 || value > std::numeric_limits<std::int32_t>::max()) {
    throw Fault{fmt::format("expected a block column in 0..{}, got {}",
                            std::numeric_limits<std::int32_t>::max(), value),
                {}};
  }
  return static_cast<std::int32_t>(value);
}

/// Applies `element` to each entry of a list; a fault inside gets the entry's index.
template <class Element>
auto to_list(const Literal& literal, const char* expected, Element element) {
  const auto* list = std::get_if<Literal::List>(&literal.value);
  if (list == nullptr) fail(expected, literal);
  std::vector<decltype(element(literal))> out;
  out.reserve(list->size());
  for (std::size_t i = 0; i < list->size(); ++i) {
    try {
      out.push_back(element((*list)[i]));
    } catch (Fault& fault) {
      fault.reversed_trail.push_back(i);
      throw;
    }
  }
  return out;
}

IntList to_ints(const Literal& literal) {
  return to_list(literal, describe(ParamType::kIntList),
                 [](const Literal& x) { return to_int(x, describe(ParamType::kInt)); });
}

BlockRows to_rows(const Literal& literal) {
  return to_list(literal, "a list of heads", [](const Literal& head) {
    return to_list(head, "a list of block rows", [](const Literal& row) {
      return to_list(row, "a list of block columns", to_column);
    });
  });
}

Mask to_mask(const Literal& literal) {
  if (const auto* mask = std::get_if<Mask>(&literal.value)) return *mask;
  fail(describe(ParamType::kMask), literal);
}

template <class T>
T plain(const Literal& literal, ParamType type) {
  if (const T* value = std::get_if<T>(&literal.value)) return *value;
  fail(describe(type), literal);
}

Argument convert_or_throw(const Literal& literal, ParamType type) {
  switch (type) {
    case ParamType::kInt:
      return to_int(literal, describe(type));
    case ParamType::kSeed:
      return to_seed(literal);
    case ParamType::kReal:
      return to_real(literal);
    case ParamType::kFlag:
      return plain<bool>(literal, type);
    case ParamType::kIntList:
      return to_ints(literal);
    case ParamType::kIntLists:
      return to_list(literal, describe(type), to_ints);
    case ParamType::kRows:
      return std::make_shared<const BlockRows>(to_rows(literal));
    case ParamType::kNames:
      return to_list(literal, describe(type),
                     [](const Literal& x) { return plain<std::string>(x, ParamType::kText); });
    case ParamType::kHex:
    case ParamType::kText:
    case ParamType::kFile:
      return plain<std::string>(literal, type);
    case ParamType::kMask:
      return to_mask(literal);
    case ParamType::kMaskList:
      return to_list(literal, describe(type), to_mask);
  }
  return std::monostate{};
}

}  // namespace

std::string Literal::describe() const {
  struct Visitor {
    std::string operator()(std::nullptr_t) const { return "null"; }
    std::string operator()(bool x) const { return x ? "true" : "false"; }
    std::string operator()(std::int64_t x) const { return fmt::format("{}", x); }
    std::string operator()(std::uint64_t x) const { return fmt::format("{}", x); }
    std::string operator()(double x) const { return fmt::format("{}", x); }
    std::string operator()(const std::string& x) const { return quote_text(x); }
    std::string operator()(const List&) const { return "a list"; }
    std::string operator()(const Mask&) const { return "a mask"; }
  };
  return std::visit(Visitor{}, value);
}

const char* describe(ParamType type) {
  switch (type) {
    case ParamType::kInt:
      return "a whole number";
    case ParamType::kSeed:
      return "a whole number from 0";
    case ParamType::kReal:
      return "a number";
    case ParamType::kFlag:
      return "true or false";
    case ParamType::kIntList:
      return "a list of whole numbers";
    case ParamType::kIntLists:
      return "a list of lists of whole numbers";
    case ParamType::kRows:
      return "a list of heads, each a list of block rows, each a list of block columns";
    case ParamType::kHex:
      return "a string of hexadecimal digits";
    case ParamType::kText:
      return "a text in double quotes";
    case ParamType::kNames:
      return "a list of names in double quotes";
    case ParamType::kFile:
      return "a file name in double quotes";
    case ParamType::kMask:
      return "a mask";
    case ParamType::kMaskList:
      return "a list of masks";
  }
  return "?";
}

std::variant<Argument, ConversionFault> convert(const Literal& literal, ParamType type) {
  try {
    return convert_or_throw(literal, type);
  } catch (const Fault& fault) {
    return ConversionFault{fault.message,
                           {fault.reversed_trail.rbegin(), fault.reversed_trail.rend()}};
  }
}

}  // namespace stof::mask
