#include "mask/json_reader.h"

#include <fmt/core.h>

#include "core/check.h"
#include "core/json.h"
#include "core/text.h"
#include "mask/nesting.h"

namespace stof::mask {
namespace {

using Json = nlohmann::json;

/// Where a value stands: links to the enclosing value, on the stack of the reader.
struct Path {
  const Path* parent = nullptr;
  std::string_view field;
  std::size_t index = 0;  ///< where field is empty

  std::string to_string() const {
    if (parent == nullptr) return "$";
    if (field.empty()) return fmt::format("{}[{}]", parent->to_string(), index);
    return fmt::format("{}.{}", parent->to_string(), field);
  }
};

[[noreturn]] void fail(const Path& path, std::string_view message,
                       ErrorCode code = ErrorCode::kInvalidArgument) {
  throw_error(code, "{}: {}", path.to_string(), message);
}

std::string describe_json(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  if (value.is_string()) return quote_text(value.get_ref<const std::string&>(), 40);
  return value.dump();
}

Mask read_mask(const Json& value, const Path& path);

Literal read_literal(const Json& value, const Path& path) {
  Literal literal;
  switch (value.type()) {
    case Json::value_t::boolean:
      literal.value = value.get<bool>();
      break;
    case Json::value_t::number_integer:
      literal.value = value.get<std::int64_t>();
      break;
    case Json::value_t::number_unsigned:
      literal.value = value.get<std::uint64_t>();
      break;
    case Json::value_t::number_float:
      literal.value = value.get<double>();
      break;
    case Json::value_t::string:
      literal.value = value.get<std::string>();
      break;
    case Json::value_t::array: {
      Literal::List list;
      list.reserve(value.size());
      for (std::size_t i = 0; i < value.size(); ++i) {
        list.push_back(read_literal(value[i], {&path, {}, i}));
      }
      literal.value = std::move(list);
      break;
    }
    case Json::value_t::object:
      literal.value = read_mask(value, path);
      break;
    default:
      break;  // null stays null
  }
  return literal;
}

std::vector<GivenArgument> read_fields(const Function& function, const Json& object,
                                       const Path& path) {
  std::vector<GivenArgument> given;
  for (const auto& [field, value] : object.items()) {
    if (field == "op") continue;
    const Param* param = function.find_param(field);
    if (param == nullptr) fail(path, unknown_param_message(function, field));
    const auto index = static_cast<std::size_t>(param - function.params.data());
    given.push_back({index, read_literal(value, {&path, param->name})});
  }
  return given;
}

/// "$.heads[0][2]: expected ..."
[[noreturn]] void fail_call(const Function& function, const std::vector<GivenArgument>& given,
                            const CallFault& fault, const Path& path) {
  std::string where = path.to_string();
  if (fault.given.has_value()) {
    where += '.' + function.params[given[*fault.given].param].name;
    for (std::size_t i : fault.trail) where += fmt::format("[{}]", i);
  }
  throw_error(ErrorCode::kInvalidArgument, "{}: {}", where, fault.message);
}

/// call(), with the path put before what the builder refuses.
std::variant<Mask, CallFault> build(const Function& function,
                                    const std::vector<GivenArgument>& given, const Path& path) {
  try {
    return call(function, given, std::nullopt);
  } catch (const Error& error) {
    fail(path, error.what(), error.code());
  }
}

Mask read_mask(const Json& value, const Path& path) {
  if (!value.is_object()) {
    fail(path, fmt::format("expected a mask such as {{\"op\": \"causal\"}}, got {}",
                           describe_json(value)));
  }
  const auto op = value.find("op");
  if (op == value.end()) fail(path, "expected a field \"op\" with the mask's name, got none");
  if (!op->is_string()) {
    fail({&path, "op"}, fmt::format("expected the name of a mask, got {}", describe_json(*op)));
  }
  const auto& name = op->get_ref<const std::string&>();
  const Function* function = find_function(name);
  if (function == nullptr) fail({&path, "op"}, unknown_function_message(name));
  const std::vector<GivenArgument> given = read_fields(*function, value, path);
  const auto result = build(*function, given, path);
  if (const auto* mask = std::get_if<Mask>(&result)) return *mask;
  fail_call(*function, given, std::get<CallFault>(result), path);
}

}  // namespace

Arguments read_arguments(const Function& function, std::string_view json) {
  const Json object = parse_json(json, "mask", kMaxSyntaxDepth);
  const Path root;
  if (!object.is_object())
    fail(root, fmt::format("expected an object, got {}", describe_json(object)));
  if (object.contains("op")) fail(root, unknown_param_message(function, "op"));
  const std::vector<GivenArgument> given = read_fields(function, object, root);
  auto converted = convert_arguments(function, given, std::nullopt);
  if (const auto* fault = std::get_if<CallFault>(&converted)) {
    fail_call(function, given, *fault, root);
  }
  return std::get<Arguments>(std::move(converted));
}

Mask from_json(std::string_view json) {
  Mask mask = read_mask(parse_json(json, "mask", kMaxSyntaxDepth), Path{});
  check_nesting(mask);
  return mask;
}

}  // namespace stof::mask
