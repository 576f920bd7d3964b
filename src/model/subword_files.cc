// Which tokenizer a folder or a GGUF file has.

#include <algorithm>
#include <array>

#include "core/check.h"
#include "core/file.h"
#include "model/bpe.h"
#include "model/metaspace.h"
#include "model/sentencepiece.h"
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

/// SentencePiece's own file in a folder; empty: none is there.
std::string sentencepiece_file(const std::string& folder) {
  static constexpr std::array<const char*, 3> kNames = {"/tokenizer.model", "/spiece.model",
                                                        "/sentencepiece.bpe.model"};
  for (const char* name : kNames)
    if (file_exists(folder + name)) return folder + name;
  return {};
}

std::unique_ptr<const SubwordTokenizer> load_sentencepiece(const std::string& path,
                                                           const JsonFields& config) {
  SentencePieceSpec spec = parse_sentencepiece(read_text_file(path, kMaxTokenizerBytes), path);
  read_sentencepiece_config(config, path, spec);
  return std::make_unique<SentencePieceTokenizer>(std::move(spec), path);
}

}  // namespace

std::unique_ptr<const SubwordTokenizer> load_subword(const std::string& folder) {
  const std::string path = folder + "/tokenizer.json";
  const std::string config_path = folder + "/tokenizer_config.json";
  const Json config_json = read_config(config_path);
  const JsonFields config(config_json, config_path);
  if (!file_exists(path)) {
    const std::string own = sentencepiece_file(folder);
    STOF_CHECK(
        !own.empty(), kNotFound,
        "{}: expected tokenizer.json, or SentencePiece's tokenizer.model or spiece.model, in "
        "this folder",
        folder);
    return load_sentencepiece(own, config);
  }
  const Json json = read_json_file(path, kMaxTokenizerBytes);
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
  if (metadata.string("tokenizer.ggml.model") == "llama")
    return std::make_unique<SentencePieceTokenizer>(read_gguf_sentencepiece(metadata),
                                                    metadata.where());
  return std::make_unique<Bpe>(read_gguf_bpe(metadata), metadata.where());
}

bool has_sentencepiece_file(const std::string& folder) {
  return !sentencepiece_file(folder).empty();
}

}  // namespace stof::model
