#pragma once
// Reading JSON settings so that every error names the file, the field, what was expected and got.

#include <cstdint>
#include <string>
#include <string_view>

#include "core/json.h"

namespace stof::model {

using Json = nlohmann::json;

/// Reads and parses; NotFound, Io or Corrupt (also where the file is larger than max_bytes).
Json read_json_file(const std::string& path, std::uint64_t max_bytes);

/// The fields of one JSON object. Null counts as absent. Refers to the object it was made from.
class JsonFields {
 public:
  /// `where` starts every message: "dir/config.json" or "dir/tokenizer.json: normalizer". Throws
  /// Corrupt when `value` is not an object.
  JsonFields(const Json& value, std::string where);

  const std::string& where() const { return where_; }
  bool has(const char* name) const { return find(name) != nullptr; }
  /// The value, or null where absent.
  const Json* find(const char* name) const;

  /// Each throws Corrupt when the field is missing (unless a fallback is given), of another type or
  /// out of range.
  std::int64_t integer(const char* name, std::int64_t low, std::int64_t high) const;
  std::int64_t integer(const char* name, std::int64_t low, std::int64_t high,
                       std::int64_t fallback) const;
  double number(const char* name, double low, double high, double fallback) const;
  bool boolean(const char* name, bool fallback) const;
  std::string string(const char* name) const;
  std::string string(const char* name, const std::string& fallback) const;
  JsonFields object(const char* name) const;
  const Json& array(const char* name) const;

  /// Throws Corrupt "<where>: <name>: expected ..., got ...".
  [[noreturn]] void fail(const char* name, std::string_view expected) const;
  /// Throws Unsupported with the same text.
  [[noreturn]] void refuse(const char* name, std::string_view supported) const;

 private:
  const Json& require(const char* name, std::string_view expected) const;
  std::string complaint(const char* name, std::string_view expected) const;

  const Json* value_;
  std::string where_;
};

/// A value shortened for a message.
std::string brief(const Json& value);

}  // namespace stof::model
