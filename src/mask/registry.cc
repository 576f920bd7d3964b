#include "mask/registry.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "core/check.h"
#include "core/text.h"
#include "mask/lexer.h"

namespace stof::mask {
namespace {

/// Bytes of the user's text that a message repeats.
constexpr std::size_t kMaxQuoted = 40;

/// Defaults in the table are scalars or empty lists, written as in mask text.
Argument default_of(const Param& param) {
  Literal literal;
  if (param.default_text == "[]") {
    literal.value = Literal::List{};
  } else if (param.default_text == "true" || param.default_text == "false") {
    literal.value = param.default_text == "true";
  } else {
    Lexer lexer(param.default_text);
    std::visit([&](auto number) { literal.value = number; }, lexer.next().number);
  }
  auto converted = convert(literal, param.type);
  STOF_ASSERT(std::holds_alternative<Argument>(converted));
  return std::get<Argument>(std::move(converted));
}

}  // namespace

const char* to_string(FunctionKind kind) {
  switch (kind) {
    case FunctionKind::kPrimitive:
      return "primitive";
    case FunctionKind::kOperator:
      return "operator";
    case FunctionKind::kPreset:
      return "preset";
  }
  return "?";
}

const Argument& Arguments::at(std::string_view name) const {
  for (std::size_t i = 0; i < params_.size(); ++i) {
    if (params_[i].name == name) return values_[i];
  }
  throw_error(ErrorCode::kInternal, "no mask parameter {}; please report it", name);
}

const BlockRows& Arguments::rows(std::string_view name) const {
  return *get<std::shared_ptr<const BlockRows>>(name);
}

bool Arguments::given(std::string_view name) const {
  return !std::holds_alternative<std::monostate>(at(name));
}

std::string Arguments::path(std::string_view name) const {
  const std::string& file = text(name);
  STOF_CHECK(base_dir_.has_value() && !base_dir_->empty(), kInvalidArgument,
             "{}: expected the data itself, got the file {}; files are not read here", name,
             quote_text(file));
  STOF_CHECK(!file.empty() && file.find('\0') == std::string::npos, kInvalidArgument,
             "{}: expected a file name, got {}", name, quote_text(file));
  return (std::filesystem::path(*base_dir_) / file).string();
}

std::string Function::signature() const {
  if (params.empty()) return name;
  std::vector<std::string> parts;
  for (const Param& param : params) {
    parts.push_back(param.has_default() ? param.name + "=" + param.default_text : param.name);
  }
  return fmt::format("{}({})", name, fmt::join(parts, ", "));
}

const Param* Function::find_param(std::string_view param_name) const {
  for (const Param& param : params) {
    if (param.name == param_name) return &param;
  }
  return nullptr;
}

bool Function::needs_arguments() const {
  for (const Param& param : params) {
    if (!param.has_default()) return true;
  }
  return false;
}

const std::vector<Function>& functions() {
  static const std::vector<Function> table = [] {
    std::vector<Function> all;
    for (auto* part :
         {primitive_functions, array_functions, operator_functions, preset_functions}) {
      for (Function& function : part()) all.push_back(std::move(function));
    }
    return all;
  }();
  return table;
}

const Function* find_function(std::string_view name) {
  for (const Function& function : functions()) {
    if (function.name == name) return &function;
  }
  return nullptr;
}

std::string unknown_function_message(std::string_view name) {
  std::vector<std::string_view> known;
  for (const Function& function : functions()) known.push_back(function.name);
  const std::string hint = near_name_hint(name, known);
  return fmt::format("unknown mask {}{}", quote_text(name, kMaxQuoted),
                     hint.empty() ? fmt::format("; known are {}", fmt::join(known, ", ")) : hint);
}

std::string unknown_param_message(const Function& function, std::string_view name) {
  std::vector<std::string_view> known;
  for (const Param& param : function.params) known.push_back(param.name);
  const std::string hint = near_name_hint(name, known);
  return fmt::format("{} has no parameter {}{}", function.name, quote_text(name, kMaxQuoted),
                     hint.empty() ? "; expected " + function.signature() : hint);
}

std::variant<Arguments, CallFault> convert_arguments(const Function& function,
                                                     const std::vector<GivenArgument>& given,
                                                     const std::optional<std::string>& base_dir) {
  std::vector<Argument> values(function.params.size());
  for (std::size_t i = 0; i < given.size(); ++i) {
    const Param& param = function.params[given[i].param];
    Argument& value = values[given[i].param];
    if (!std::holds_alternative<std::monostate>(value)) {
      return CallFault{"given twice", i, {}};
    }
    auto converted = convert(given[i].literal, param.type);
    if (auto* fault = std::get_if<ConversionFault>(&converted)) {
      return CallFault{std::move(fault->message), i, std::move(fault->trail)};
    }
    value = std::get<Argument>(std::move(converted));
  }
  for (std::size_t p = 0; p < values.size(); ++p) {
    const Param& param = function.params[p];
    if (!std::holds_alternative<std::monostate>(values[p])) continue;
    if (param.required()) {
      return CallFault{fmt::format("{}: {} is missing; expected {}", function.name, param.name,
                                   function.signature()),
                       std::nullopt,
                       {}};
    }
    if (param.has_default()) values[p] = default_of(param);
  }
  return Arguments(function.params, std::move(values), base_dir);
}

std::variant<Mask, CallFault> call(const Function& function,
                                   const std::vector<GivenArgument>& given,
                                   const std::optional<std::string>& base_dir) {
  auto converted = convert_arguments(function, given, base_dir);
  if (auto* fault = std::get_if<CallFault>(&converted)) return std::move(*fault);
  return function.build(std::get<Arguments>(converted));
}

const std::vector<MaskHelp>& mask_help() {
  static const std::vector<MaskHelp> help = [] {
    std::vector<MaskHelp> lines;
    for (const Function& function : functions()) {
      lines.push_back({function.name, function.signature(),
                       fmt::format("{}: {}", to_string(function.kind), function.meaning)});
    }
    return lines;
  }();
  return help;
}

}  // namespace stof::mask
