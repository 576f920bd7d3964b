// tokenizer.json, vocab.txt and tokenizer_config.json -> WordPieceSpec. What is not understood is
// refused by name: a setting passed over would give other ids.

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/file.h"
#include "model/json_fields.h"
#include "model/tokenizer_fields.h"
#include "model/wordpiece.h"

namespace stof::model {
namespace {

BertNormalizer read_normalizer(const JsonFields& root) {
  if (!root.has("normalizer")) return {false, false, false, false};
  const JsonFields fields = root.object("normalizer");
  require_type(fields, "BertNormalizer");
  BertNormalizer normalizer;
  normalizer.clean_text = fields.boolean("clean_text", true);
  normalizer.handle_chinese_chars = fields.boolean("handle_chinese_chars", true);
  normalizer.lowercase = fields.boolean("lowercase", true);
  normalizer.strip_accents = fields.boolean("strip_accents", normalizer.lowercase);
  return normalizer;
}

void read_model(const JsonFields& fields, WordPieceSpec& spec) {
  if (fields.string("type", "WordPiece") != "WordPiece") fields.refuse("type", "\"WordPiece\"");
  spec.unk_token = fields.string("unk_token", "[UNK]");
  spec.continuing_prefix = fields.string("continuing_subword_prefix", "##");
  spec.max_chars_per_word = fields.integer("max_input_chars_per_word", 0, kMaxTokenId, 100);
  spec.vocab = read_vocabulary(fields);
}

void read_post_processor(const JsonFields& root, WordPieceSpec& spec) {
  if (!root.has("post_processor")) return;
  const JsonFields fields = root.object("post_processor");
  const std::string type = fields.string("type");
  if (type == "BertProcessing") {
    spec.frame = read_cls_and_sep(fields);
  } else if (type == "TemplateProcessing") {
    spec.frame = read_template(fields);
  } else {
    fields.refuse("type", "\"TemplateProcessing\" or \"BertProcessing\"");
  }
}

/// Settings of tokenizer_config.json that change ids and stand in no other file.
void check_config(const JsonFields& config, WordPieceSpec& spec) {
  if (!config.boolean("do_basic_tokenize", true)) config.refuse("do_basic_tokenize", "true");
  const Json* never_split = config.find("never_split");
  if (never_split != nullptr && !never_split->empty()) config.refuse("never_split", "null");
  if (const std::int64_t limit = read_max_length(config); limit > 0) spec.max_tokens = limit;
}

}  // namespace

WordPieceSpec parse_tokenizer_json(std::string_view text, const std::string& file) {
  return read_wordpiece_json(parse_json(text, file), file);
}

WordPieceSpec read_wordpiece_json(const Json& json, const std::string& file) {
  const JsonFields root(json, file);
  refuse_unknown_fields(root, json);
  WordPieceSpec spec;
  read_model(root.object("model"), spec);
  spec.normalizer = read_normalizer(root);
  require_type(root.object("pre_tokenizer"), "BertPreTokenizer");
  spec.added = read_added_tokens(root, spec.vocab);
  read_post_processor(root, spec);
  spec.max_tokens = read_truncation(root);
  return spec;
}

WordPieceSpec parse_vocab_txt(std::string_view text, const std::string& file,
                              std::string_view config_text, const std::string& config_file) {
  const Json json = config_text.empty() ? Json::object() : parse_json(config_text, config_file);
  const JsonFields config(json, config_file);
  WordPieceSpec spec;
  std::int64_t id = 0;
  for (std::size_t begin = 0; begin < text.size(); ++id) {
    const std::size_t newline = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, newline - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    STOF_CHECK(id <= kMaxTokenId, kCorrupt, "{}: expected at most {} tokens", file, kMaxTokenId);
    // A token listed twice has the later id, as in the original.
    spec.vocab.insert_or_assign(std::string(line), static_cast<std::int32_t>(id));
    begin = newline + 1;
  }
  spec.normalizer.lowercase = config.boolean("do_lower_case", true);
  spec.normalizer.strip_accents = config.boolean("strip_accents", spec.normalizer.lowercase);
  spec.normalizer.handle_chinese_chars = config.boolean("tokenize_chinese_chars", true);
  spec.unk_token = read_special(config, "unk_token", "[UNK]");
  const std::string cls = read_special(config, "cls_token", "[CLS]");
  const std::string sep = read_special(config, "sep_token", "[SEP]");
  for (const std::string& token :
       {spec.unk_token, sep, cls, read_special(config, "pad_token", "[PAD]"),
        read_special(config, "mask_token", "[MASK]")}) {
    const auto known = spec.vocab.find(token);
    STOF_CHECK(known != spec.vocab.end(), kCorrupt,
               "{}: special token \"{}\": expected it among the {} lines, got none", file, token,
               spec.vocab.size());
    AddedToken added;
    added.content = token;
    added.id = known->second;
    spec.added.push_back(std::move(added));
  }
  spec.frame = {{spec.vocab.at(cls)}, {spec.vocab.at(sep)}};
  check_config(config, spec);
  return spec;
}

WordPieceSpec load_wordpiece(const std::string& folder) {
  const std::string json_path = folder + "/tokenizer.json";
  const std::string vocab_path = folder + "/vocab.txt";
  if (file_exists(json_path))
    return load_wordpiece(folder, read_json_file(json_path, kMaxTokenizerBytes));
  STOF_CHECK(file_exists(vocab_path), kNotFound,
             "{}: expected tokenizer.json or vocab.txt, got neither; is this the folder of an "
             "encoder's checkpoint?",
             folder);
  const std::string config_path = folder + "/tokenizer_config.json";
  const std::string config_text =
      file_exists(config_path) ? read_text_file(config_path, kMaxTokenizerBytes) : "{}";
  return parse_vocab_txt(read_text_file(vocab_path, kMaxTokenizerBytes), vocab_path, config_text,
                         config_path);
}

WordPieceSpec load_wordpiece(const std::string& folder, const Json& tokenizer) {
  WordPieceSpec spec = read_wordpiece_json(tokenizer, folder + "/tokenizer.json");
  const std::string path = folder + "/tokenizer_config.json";
  const Json json = file_exists(path) ? read_json_file(path, kMaxTokenizerBytes) : Json::object();
  const JsonFields config(json, path);
  require_agreement(config, "do_lower_case", spec.normalizer.lowercase);
  require_agreement(config, "strip_accents", spec.normalizer.strip_accents);
  require_agreement(config, "tokenize_chinese_chars", spec.normalizer.handle_chinese_chars);
  check_config(config, spec);
  return spec;
}

}  // namespace stof::model
