#include "model/text_tokenizer.h"

#include "core/check.h"
#include "core/file.h"

namespace stof::model {
namespace {

/// What tokenizer_config.json says of a byte-level BPE; other settings there are tokenizer.json's.
std::int64_t read_bpe_limit(const std::string& folder, const Json& tokenizer, const BpeSpec& spec) {
  const std::string path = folder + "/tokenizer_config.json";
  const Json json = file_exists(path) ? read_json_file(path, kMaxTokenizerBytes) : Json::object();
  const JsonFields config(json, path);
  require_agreement(config, "add_prefix_space", spec.add_prefix_space);
  const std::int64_t limit = read_max_length(config);
  return limit > 0 ? limit : read_truncation(JsonFields(tokenizer, folder + "/tokenizer.json"));
}

}  // namespace

TextTokenizer TextTokenizer::load(const std::string& folder) {
  const std::string path = folder + "/tokenizer.json";
  if (!file_exists(path)) {
    WordPiece tokenizer(load_wordpiece(folder), folder + "/tokenizer");
    const std::int64_t limit = tokenizer.max_tokens();
    return {std::move(tokenizer), limit};
  }
  const Json json = read_json_file(path, kMaxTokenizerBytes);
  if (JsonFields(json, path).object("model").string("type", "WordPiece") != "BPE") {
    WordPiece tokenizer(load_wordpiece(folder, json), folder + "/tokenizer");
    const std::int64_t limit = tokenizer.max_tokens();
    return {std::move(tokenizer), limit};
  }
  BpeSpec spec = read_bpe_json(json, path);
  const std::int64_t limit = read_bpe_limit(folder, json, spec);
  return {Bpe(std::move(spec), path), limit};
}

std::vector<std::int32_t> TextTokenizer::encode(std::string_view text, std::int64_t max_tokens,
                                                bool* truncated) const {
  if (const auto* wordpiece = std::get_if<WordPiece>(&kind_))
    return wordpiece->encode(text, max_tokens, truncated);
  STOF_CHECK(max_tokens == 0 || max_tokens >= num_special(), kInvalidArgument,
             "max_tokens: expected 0 (no limit) or at least {}, the number of special tokens, got "
             "{}",
             num_special(), max_tokens);
  const Bpe& bpe = std::get<Bpe>(kind_);
  std::vector<std::int32_t> ids = bpe.encode(text);
  const std::int64_t excess =
      max_tokens == 0 ? 0 : static_cast<std::int64_t>(ids.size()) - max_tokens;
  if (truncated != nullptr) *truncated = excess > 0;
  if (excess > 0) {
    const auto end = ids.end() - static_cast<std::ptrdiff_t>(bpe.frame().after.size());
    ids.erase(end - excess, end);
  }
  return ids;
}

const std::string& TextTokenizer::token(std::int32_t id) const {
  return std::visit([id](const auto& kind) -> const std::string& { return kind.token(id); }, kind_);
}

std::int64_t TextTokenizer::num_ids() const {
  return std::visit([](const auto& kind) { return kind.num_ids(); }, kind_);
}

std::int64_t TextTokenizer::num_special() const {
  if (const auto* wordpiece = std::get_if<WordPiece>(&kind_)) return wordpiece->num_special();
  const TextFrame& frame = std::get<Bpe>(kind_).frame();
  return static_cast<std::int64_t>(frame.before.size() + frame.after.size());
}

}  // namespace stof::model
