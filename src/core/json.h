#pragma once
// JSON from files that may be damaged or hostile.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace stof {

/// Parses one JSON document. Throws Corrupt naming `name` (a path, or what the text is) and the
/// byte where the text is no JSON, nests deeper than max_depth, repeats a key of an object, or
/// holds a number that fits no double.
nlohmann::json parse_json(std::string_view text, const std::string& name, int max_depth = 64);

}  // namespace stof
