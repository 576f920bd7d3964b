#pragma once
// Registry: the one table of mask functions. The parser, the JSON reader, the writers, help and
// shell completion know no names but these.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "mask/literal.h"
#include "stof/mask.h"

namespace stof::mask {

enum class FunctionKind : std::uint8_t { kPrimitive, kOperator, kPreset };

/// "primitive", "operator", "preset".
const char* to_string(FunctionKind kind);

struct Param {
  std::string name;
  ParamType type;
  /// Text form of the default; empty = required; kNoDefault = may be left out (see `meaning`).
  std::string default_text;

  bool required() const { return default_text.empty(); }
  bool has_default() const { return !required() && default_text != kNoDefault; }
  static constexpr const char* kNoDefault = "-";
};

/// The arguments of one call, converted, defaults filled in.
class Arguments {
 public:
  Arguments(const std::vector<Param>& params, std::vector<Argument> values,
            std::optional<std::string> base_dir)
      : params_(params), values_(std::move(values)), base_dir_(std::move(base_dir)) {}

  bool given(std::string_view name) const;
  std::int64_t integer(std::string_view name) const { return get<std::int64_t>(name); }
  std::uint64_t seed(std::string_view name) const { return get<std::uint64_t>(name); }
  double real(std::string_view name) const { return get<double>(name); }
  bool flag(std::string_view name) const { return get<bool>(name); }
  const IntList& integers(std::string_view name) const { return get<IntList>(name); }
  const IntLists& int_lists(std::string_view name) const { return get<IntLists>(name); }
  const BlockRows& rows(std::string_view name) const;
  const std::string& text(std::string_view name) const { return get<std::string>(name); }
  const std::vector<std::string>& names(std::string_view name) const {
    return get<std::vector<std::string>>(name);
  }
  const Mask& mask(std::string_view name) const { return get<Mask>(name); }
  const std::vector<Mask>& masks(std::string_view name) const {
    return get<std::vector<Mask>>(name);
  }
  /// Path of a kFile argument. Throws InvalidArgument where files are not allowed.
  std::string path(std::string_view name) const;

 private:
  template <class T>
  const T& get(std::string_view name) const {
    const T* value = std::get_if<T>(&at(name));
    STOF_CHECK(value != nullptr, kInvalidArgument, "{}: expected a value, got none", name);
    return *value;
  }
  const Argument& at(std::string_view name) const;

  const std::vector<Param>& params_;
  std::vector<Argument> values_;
  std::optional<std::string> base_dir_;
};

struct Function {
  std::string name;
  FunctionKind kind;
  std::vector<Param> params;
  std::string meaning;  ///< one line
  std::string example;  ///< text that parse() takes without any file
  Mask (*build)(const Arguments& arguments);

  /// "window(left, right)", "causal(offset=0)"
  std::string signature() const;
  const Param* find_param(std::string_view name) const;
  /// False when the bare name is a mask.
  bool needs_arguments() const;
};

/// Primitives, operators, presets; each group in the order of the documentation.
const std::vector<Function>& functions();

/// Null when there is none.
const Function* find_function(std::string_view name);

/// "unknown mask "casual"; did you mean "causal"?", or the list of all names.
std::string unknown_function_message(std::string_view name);
/// "window has no parameter "lft"; did you mean "left"?", or the signature.
std::string unknown_param_message(const Function& function, std::string_view name);

/// One given argument: parameter index and its literal.
struct GivenArgument {
  std::size_t param;
  Literal literal;
};

/// What is wrong with a call. `given` is the offending argument's index in the list passed; its
/// name is not in the message. None when the call as a whole is at fault.
struct CallFault {
  std::string message;
  std::optional<std::size_t> given;
  std::vector<std::size_t> trail;  ///< into nested lists of that argument
};

/// Converts the arguments and builds the mask. An Error thrown by the builder itself passes
/// through. base_dir absent: files are refused.
std::variant<Mask, CallFault> call(const Function& function,
                                   const std::vector<GivenArgument>& given,
                                   const std::optional<std::string>& base_dir);

/// Only the conversion, for readers that need the arguments themselves.
std::variant<Arguments, CallFault> convert_arguments(const Function& function,
                                                     const std::vector<GivenArgument>& given,
                                                     const std::optional<std::string>& base_dir);

// The three parts of functions(), one file each.
std::vector<Function> primitive_functions();
std::vector<Function> array_functions();
std::vector<Function> operator_functions();
std::vector<Function> preset_functions();

}  // namespace stof::mask
