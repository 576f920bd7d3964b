// Which tokenizer a folder or a GGUF file has.

#include <algorithm>

#include "core/check.h"
#include "core/file.h"
#include "model/bpe.h"
#include "model/metaspace.h"
#include "model/subword.h"

namespace stof::model {

namespace {

Json read_config(const std::string& path) {
  return file_exists(path) ? read_json_file(path, kMaxTokenizerBytes) : Json::object();
}

/// "add_bos_token" and "add_eos_token" of tokenizer_config.json, where stated, decide over the
/// frame that tokenizer.json gives.
void read_stated_frame(const JsonFields& config, const Vocabulary& vocab,
                       const std::vector<AddedToken>& added, TextFrame& frame) {
  const auto read = [&](const char* flag, const char* name, std::vector<std::int32_t>& ids) {
    if (!config.has(flag)) return;
    ids.clear();
    if (!config.boolean(flag, false)) return;
    const std::string token = read_special(config, name, "");
    const auto known = vocab.find(token);
    const auto extra = std::ranges::find(added, token, &AddedToken::content);
    if (known == vocab.end() && extra == added.end())
      config.fail(name, fmt::format("a token of the vocabulary, with {}", flag));
    ids.push_back(known != vocab.end() ? known->second : extra->id);
  };
  read("add_bos_token", "bos_token", frame.before);
  read("add_eos_token", "eos_token", frame.after);
}

}  // namespace

std::unique_ptr<const SubwordTokenizer> load_subword(const std::string& folder) {
  const std::string path = folder + "/tokenizer.json";
  const std::string config_path = folder + "/tokenizer_config.json";
  STOF_CHECK(file_exists(path), kNotFound, "{}: expected tokenizer.json in this folder", folder);
  const Json json = read_json_file(path, kMaxTokenizerBytes);
  const Json config_json = read_config(config_path);
  const JsonFields config(config_json, config_path);
  if (is_byte_level(JsonFields(json, path))) {
    BpeSpec spec = read_bpe_json(json, path);
    require_agreement(config, "add_prefix_space", spec.add_prefix_space);
    return std::make_unique<Bpe>(std::move(spec), path);
  }
  MetaspaceSpec spec = read_metaspace_json(json, path);
  read_stated_frame(config, spec.ids(), spec.added, spec.frame);
  return std::make_unique<MetaspaceTokenizer>(std::move(spec), path);
}

std::unique_ptr<const SubwordTokenizer> read_gguf_subword(const JsonFields& metadata) {
  return std::make_unique<Bpe>(read_gguf_bpe(metadata), metadata.where());
}

bool has_sentencepiece_file(const std::string&) { return false; }

}  // namespace stof::model
