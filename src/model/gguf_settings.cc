#include "model/gguf_settings.h"

#include "core/check.h"
#include "core/text.h"

namespace stof::model {
namespace {

void check_text(const GgufFile& file, const std::string& key, const std::string& text) {
  STOF_CHECK(is_valid_utf8(text), kCorrupt, "{}: {}: expected UTF-8, got {}", file.path(),
             quote_text(key), quote_text(text));
}

}  // namespace

Json gguf_settings(const GgufFile& file) {
  Json settings = Json::object();
  for (const auto& [key, value] : file.metadata()) {
    check_text(file, key, key);
    if (const auto* text = std::get_if<std::string>(&value)) check_text(file, key, *text);
    if (const auto* list = std::get_if<std::vector<std::string>>(&value))
      for (const std::string& text : *list) check_text(file, key, text);
    settings[key] = std::visit([](const auto& held) { return Json(held); }, value);
  }
  return settings;
}

}  // namespace stof::model
