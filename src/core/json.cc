#include "core/json.h"

#include <set>
#include <vector>

#include "core/check.h"
#include "core/text.h"

namespace stof {

nlohmann::json parse_json(std::string_view text, const std::string& name, int max_depth) {
  using Json = nlohmann::json;
  // nlohmann's lexer takes a zero byte for the end of the text and would ignore what follows.
  const std::size_t zero = text.find('\0');
  STOF_CHECK(zero == std::string_view::npos, kCorrupt, "{}: invalid JSON: a zero byte at byte {}",
             name, zero);
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto check = [&](int depth, Json::parse_event_t event, Json& parsed) {
    switch (event) {
      case Json::parse_event_t::object_start:
      case Json::parse_event_t::array_start:
        STOF_CHECK(depth < max_depth, kCorrupt,
                   "{}: invalid JSON: expected at most {} levels of nesting", name, max_depth);
        if (event == Json::parse_event_t::object_start) keys.emplace_back();
        break;
      case Json::parse_event_t::object_end:
        keys.pop_back();
        break;
      case Json::parse_event_t::key:
        STOF_CHECK(keys.back().insert(parsed.get<std::string>()).second, kCorrupt,
                   "{}: invalid JSON: key {} appears twice in one object", name,
                   quote_text(parsed.get<std::string>()));
        break;
      default:
        break;
    }
    return true;
  };
  try {
    return Json::parse(text, check);
  } catch (const Json::parse_error& error) {
    throw_error(ErrorCode::kCorrupt, "{}: invalid JSON at byte {} of {}", name, error.byte,
                text.size());
  } catch (const Json::exception&) {  // out_of_range: 1e999
    throw_error(ErrorCode::kCorrupt, "{}: invalid JSON: a number is too large", name);
  }
}

}  // namespace stof
