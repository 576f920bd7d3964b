#pragma once
// Arguments of a mask function: as read from text or JSON, and converted to what a parameter takes.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "mask/spec.h"
#include "stof/mask.h"

namespace stof::mask {

/// A value as the reader met it, before the parameter's type is known. Text and JSON meet here.
struct Literal {
  using List = std::vector<Literal>;
  std::variant<std::nullptr_t, bool, std::int64_t, std::uint64_t, double, std::string, List, Mask>
      value = nullptr;
  std::size_t offset = 0;  ///< byte in the mask text; unused for JSON

  /// For messages: "2.5", "a list", "\"x\"".
  std::string describe() const;
};

enum class ParamType : std::uint8_t {
  kInt,       ///< int64
  kSeed,      ///< uint64
  kReal,      ///< finite double
  kFlag,      ///< true or false
  kIntList,   ///< [1, 2, 3]
  kIntLists,  ///< [[1, 2], [3]]
  kRows,      ///< [[[0, 2], [1]]]: per head, per block row, block columns
  kHex,       ///< a string of hexadecimal digits
  kText,      ///< a string
  kNames,     ///< ["a", "b"]
  kFile,      ///< a string: path relative to the base folder; in text only
  kMask,
  kMaskList,
};

/// "a whole number", "a list of masks", ...
const char* describe(ParamType type);

using IntLists = std::vector<IntList>;
using Argument = std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double,
                              std::string, std::vector<std::string>, IntList, IntLists,
                              std::shared_ptr<const BlockRows>, Mask, std::vector<Mask>>;

/// A literal of the wrong type. `trail` leads to the offending element of nested lists.
struct ConversionFault {
  std::string message;  ///< "expected a whole number, got 2.5"
  std::vector<std::size_t> trail;
};

/// The literal as the type's alternative of Argument, or why not.
std::variant<Argument, ConversionFault> convert(const Literal& literal, ParamType type);

}  // namespace stof::mask
