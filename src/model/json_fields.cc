#include "model/json_fields.h"

#include "core/check.h"
#include "core/file.h"

namespace stof::model {

Json read_json_file(const std::string& path, std::uint64_t max_bytes) {
  return parse_json(read_text_file(path, max_bytes), path);
}

std::string brief(const Json& value) {
  constexpr std::size_t kLongest = 80;
  if (value.is_array()) return fmt::format("a list of {}", value.size());
  if (value.is_object()) return fmt::format("an object of {} fields", value.size());
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

JsonFields::JsonFields(const Json& value, std::string where)
    : value_(&value), where_(std::move(where)) {
  STOF_CHECK(value.is_object(), kCorrupt, "{}: expected a JSON object, got {}", where_,
             brief(value));
}

const Json* JsonFields::find(const char* name) const {
  const auto field = value_->find(name);
  return field == value_->end() || field->is_null() ? nullptr : &*field;
}

std::string JsonFields::complaint(const char* name, std::string_view expected) const {
  const Json* value = find(name);
  return fmt::format("{}: {}: expected {}, got {}", where_, name, expected,
                     value == nullptr ? "no such field" : brief(*value));
}

void JsonFields::fail(const char* name, std::string_view expected) const {
  throw Error(ErrorCode::kCorrupt, complaint(name, expected));
}

void JsonFields::refuse(const char* name, std::string_view supported) const {
  throw Error(ErrorCode::kUnsupported, complaint(name, supported));
}

const Json& JsonFields::require(const char* name, std::string_view expected) const {
  const Json* value = find(name);
  if (value == nullptr) fail(name, expected);
  return *value;
}

std::int64_t JsonFields::integer(const char* name, std::int64_t low, std::int64_t high) const {
  const std::string expected = fmt::format("a whole number from {} to {}", low, high);
  const Json& value = require(name, expected);
  if (!value.is_number_integer()) fail(name, expected);
  // Unsigned values above the signed range would wrap in get<int64_t>().
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX) fail(name, expected);
  const auto number = value.get<std::int64_t>();
  if (number < low || number > high) fail(name, expected);
  return number;
}

std::int64_t JsonFields::integer(const char* name, std::int64_t low, std::int64_t high,
                                 std::int64_t fallback) const {
  return has(name) ? integer(name, low, high) : fallback;
}

double JsonFields::number(const char* name, double low, double high, double fallback) const {
  const Json* value = find(name);
  if (value == nullptr) return fallback;
  const std::string expected = fmt::format("a number from {} to {}", low, high);
  if (!value->is_number()) fail(name, expected);
  const double number = value->get<double>();
  if (!(number >= low && number <= high)) fail(name, expected);
  return number;
}

bool JsonFields::boolean(const char* name, bool fallback) const {
  const Json* value = find(name);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) fail(name, "true or false");
  return value->get<bool>();
}

std::string JsonFields::string(const char* name) const {
  const Json& value = require(name, "a string");
  if (!value.is_string()) fail(name, "a string");
  return value.get<std::string>();
}

std::string JsonFields::string(const char* name, const std::string& fallback) const {
  return has(name) ? string(name) : fallback;
}

JsonFields JsonFields::object(const char* name) const {
  return {require(name, "an object"), fmt::format("{}: {}", where_, name)};
}

const Json& JsonFields::array(const char* name) const {
  const Json& value = require(name, "a list");
  if (!value.is_array()) fail(name, "a list");
  return value;
}

}  // namespace stof::model
