#include "model/sentence_config.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/check.h"
#include "core/file.h"
#include "model/json_fields.h"

namespace stof::model {
namespace {

constexpr std::uint64_t kMaxSettingsBytes = 16 << 20;
constexpr std::int64_t kMaxTextTokens = std::int64_t{1} << 24;

/// The class a module names: "sentence_transformers.models.Pooling" and, since version 5,
/// "sentence_transformers.sentence_transformer.modules.pooling.Pooling" -> "Pooling".
std::string class_of(const JsonFields& module) {
  const std::string type = module.string("type");
  if (!type.starts_with("sentence_transformers."))
    module.refuse("type", "a module of sentence_transformers");
  return type.substr(type.rfind('.') + 1);
}

/// The module's own folder. It must lie inside the checkpoint's.
std::string folder_of(const JsonFields& module, const std::string& folder) {
  const std::string path = module.string("path");
  if (path.starts_with('/') || path.find("..") != std::string::npos)
    module.fail("path", "a folder inside the checkpoint's");
  return path.empty() ? folder : folder + "/" + path;
}

void read_pooling(const std::string& folder, SentenceConfig& config) {
  static constexpr std::array<std::pair<const char*, cpu::Pooling>, 3> kKnown = {{
      {"pooling_mode_mean_tokens", cpu::Pooling::kMean},
      {"pooling_mode_cls_token", cpu::Pooling::kCls},
      {"pooling_mode_max_tokens", cpu::Pooling::kMax},
  }};
  const std::string path = folder + "/config.json";
  const Json json = read_json_file(path, kMaxSettingsBytes);
  const JsonFields fields(json, path);
  int num_modes = 0;
  for (const auto& [name, pooling] : kKnown)
    if (fields.boolean(name, false)) {
      config.pooling = pooling;
      ++num_modes;
    }
  for (const auto& [name, value] : json.items()) {
    if (!name.starts_with("pooling_mode_") || value == false) continue;
    // clang 14 captures no structured binding by reference.
    const bool known = std::any_of(
        kKnown.begin(), kKnown.end(),
        [field = std::string_view(name)](const auto& mode) { return field == mode.first; });
    if (!known) fields.refuse(name.c_str(), "mean, cls or max pooling");
  }
  STOF_CHECK(num_modes == 1, kUnsupported,
             "{}: expected one of pooling_mode_mean_tokens, pooling_mode_cls_token and "
             "pooling_mode_max_tokens to be true, got {}",
             path, num_modes);
  config.width = fields.integer("word_embedding_dimension", 1, kMaxTextTokens, 0);
}

void read_modules(const std::string& folder, SentenceConfig& config) {
  const std::string path = folder + "/modules.json";
  const Json json = read_json_file(path, kMaxSettingsBytes);
  STOF_CHECK(json.is_array(), kCorrupt, "{}: expected a list of modules, got {}", path,
             brief(json));
  // The order is fixed: the model, its pooling, and normalisation or not.
  static constexpr std::array<std::string_view, 3> kOrder = {"Transformer", "Pooling", "Normalize"};
  STOF_CHECK(json.size() == 2 || json.size() == 3, kUnsupported,
             "{}: expected the modules Transformer, Pooling and perhaps Normalize, got {} modules",
             path, json.size());
  for (std::size_t i = 0; i < json.size(); ++i) {
    const JsonFields module(json[i], fmt::format("{}: module {}", path, i));
    if (class_of(module) != kOrder[i]) module.refuse("type", kOrder[i]);
    const std::string module_folder = folder_of(module, folder);
    if (i == 0) config.model_folder = module_folder;
    if (i == 1) read_pooling(module_folder, config);
    if (i == 2) config.normalize = true;
  }
  config.stated = true;
}

/// Prompts are put in front of every text, which changes all numbers.
void refuse_prompts(const std::string& folder) {
  const std::string path = folder + "/config_sentence_transformers.json";
  if (!file_exists(path)) return;
  const Json json = read_json_file(path, kMaxSettingsBytes);
  const JsonFields fields(json, path);
  if (fields.has("default_prompt_name")) fields.refuse("default_prompt_name", "null");
}

void read_limits(SentenceConfig& config) {
  const std::string path = config.model_folder + "/sentence_bert_config.json";
  if (!file_exists(path)) return;
  const Json json = read_json_file(path, kMaxSettingsBytes);
  const JsonFields fields(json, path);
  config.max_tokens = fields.integer("max_seq_length", 1, kMaxTextTokens, 0);
  // Python's lower-casing of the whole text differs from the tokenizer's, letter by letter.
  if (fields.boolean("do_lower_case", false)) fields.refuse("do_lower_case", "false");
}

}  // namespace

SentenceConfig load_sentence_config(const std::string& folder) {
  SentenceConfig config;
  config.model_folder = folder;
  if (file_exists(folder + "/modules.json")) read_modules(folder, config);
  refuse_prompts(folder);
  read_limits(config);
  return config;
}

}  // namespace stof::model
