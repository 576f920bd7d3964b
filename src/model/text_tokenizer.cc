#include "model/text_tokenizer.h"

#include "core/check.h"
#include "core/file.h"
#include "model/bpe.h"

namespace stof::model {
namespace {

Json read_tokenizer_config(const std::string& folder) {
  const std::string path = folder + "/tokenizer_config.json";
  return file_exists(path) ? read_json_file(path, kMaxTokenizerBytes) : Json::object();
}

/// The most tokens of a text; 0: no limit is stated.
std::int64_t read_limit(const std::string& folder, const Json& tokenizer) {
  const Json json = read_tokenizer_config(folder);
  const JsonFields config(json, folder + "/tokenizer_config.json");
  const std::int64_t limit = read_max_length(config);
  return limit > 0 ? limit : read_truncation(JsonFields(tokenizer, folder + "/tokenizer.json"));
}

/// Calls the function with the tokenizer itself, of whichever kind it is.
template <class Kind, class Function>
decltype(auto) visit_tokenizer(const Kind& kind, Function function) {
  if (const auto* wordpiece = std::get_if<WordPiece>(&kind)) return function(*wordpiece);
  return function(*std::get<std::unique_ptr<const SubwordTokenizer>>(kind));
}

}  // namespace

TextTokenizer::TextTokenizer(Kind kind, std::int64_t max_tokens, const std::string& folder)
    : kind_(std::move(kind)), max_tokens_(max_tokens) {
  const auto find = [this](const std::string& token) {
    return visit_tokenizer(kind_, [&](const auto& tokenizer) { return tokenizer.find(token); });
  };
  const Json json = read_tokenizer_config(folder);
  const std::string stated =
      read_special(JsonFields(json, folder + "/tokenizer_config.json"), "mask_token", "");
  mask_id_ = find(stated.empty() ? "[MASK]" : stated);
  if (stated.empty() && mask_id_ < 0) mask_id_ = find("<mask>");
}

TextTokenizer TextTokenizer::load(const std::string& folder) {
  const std::string path = folder + "/tokenizer.json";
  const bool has_json = file_exists(path);
  const Json json = has_json ? read_json_file(path, kMaxTokenizerBytes) : Json::object();
  const std::string type =
      has_json ? JsonFields(json, path).object("model").string("type", "WordPiece") : "";
  if (has_json ? type == "BPE" || type == "Unigram" : has_sentencepiece_file(folder))
    return {load_subword(folder), read_limit(folder, json), folder};
  WordPiece tokenizer(has_json ? load_wordpiece(folder, json) : load_wordpiece(folder),
                      folder + "/tokenizer");
  const std::int64_t limit = tokenizer.max_tokens();
  return {std::move(tokenizer), limit, folder};
}

std::vector<std::int32_t> TextTokenizer::encode(std::string_view text, std::int64_t max_tokens,
                                                bool* truncated) const {
  if (const auto* wordpiece = std::get_if<WordPiece>(&kind_))
    return wordpiece->encode(text, max_tokens, truncated);
  STOF_CHECK(max_tokens == 0 || max_tokens >= num_special(), kInvalidArgument,
             "max_tokens: expected 0 (no limit) or at least {}, the number of special tokens, got "
             "{}",
             num_special(), max_tokens);
  const auto& subword = *std::get<std::unique_ptr<const SubwordTokenizer>>(kind_);
  std::vector<std::int32_t> ids = subword.encode(text);
  const std::int64_t excess =
      max_tokens == 0 ? 0 : static_cast<std::int64_t>(ids.size()) - max_tokens;
  if (truncated != nullptr) *truncated = excess > 0;
  if (excess > 0) {
    const auto end = ids.end() - static_cast<std::ptrdiff_t>(subword.frame().after.size());
    ids.erase(end - excess, end);
  }
  return ids;
}

const std::string& TextTokenizer::token(std::int32_t id) const {
  return visit_tokenizer(kind_,
                         [id](const auto& kind) -> const std::string& { return kind.token(id); });
}

bool TextTokenizer::contains(std::int32_t id) const {
  return visit_tokenizer(kind_, [id](const auto& kind) { return kind.contains(id); });
}

std::string TextTokenizer::text(std::int32_t id) const {
  const auto* subword = std::get_if<std::unique_ptr<const SubwordTokenizer>>(&kind_);
  if (subword == nullptr || (*subword)->is_special(id)) return token(id);
  TokenStream stream(**subword, /*begins_text=*/false);
  const std::string begin = stream.push(id);
  return begin + stream.finish();
}

std::int64_t TextTokenizer::num_ids() const {
  return visit_tokenizer(kind_, [](const auto& kind) { return kind.num_ids(); });
}

std::int64_t TextTokenizer::num_special() const {
  if (const auto* wordpiece = std::get_if<WordPiece>(&kind_)) return wordpiece->num_special();
  const TextFrame& frame = std::get<std::unique_ptr<const SubwordTokenizer>>(kind_)->frame();
  return static_cast<std::int64_t>(frame.before.size() + frame.after.size());
}

}  // namespace stof::model
