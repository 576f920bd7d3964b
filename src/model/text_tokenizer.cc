#include "model/text_tokenizer.h"

#include <array>

#include "core/check.h"
#include "core/file.h"

namespace stof::model {
namespace {

Json read_tokenizer_config(const std::string& folder) {
  const std::string path = folder + "/tokenizer_config.json";
  return file_exists(path) ? read_json_file(path, kMaxTokenizerBytes) : Json::object();
}

/// What tokenizer_config.json says of a byte-level BPE; other settings there are tokenizer.json's.
std::int64_t read_bpe_limit(const std::string& folder, const Json& tokenizer, const BpeSpec& spec) {
  const Json json = read_tokenizer_config(folder);
  const JsonFields config(json, folder + "/tokenizer_config.json");
  require_agreement(config, "add_prefix_space", spec.add_prefix_space);
  const std::int64_t limit = read_max_length(config);
  return limit > 0 ? limit : read_truncation(JsonFields(tokenizer, folder + "/tokenizer.json"));
}

}  // namespace

TextTokenizer::TextTokenizer(std::variant<WordPiece, Bpe> kind, std::int64_t max_tokens,
                             const std::string& folder)
    : kind_(std::move(kind)), max_tokens_(max_tokens) {
  const auto find = [this](const std::string& token) {
    return std::visit([&](const auto& tokenizer) { return tokenizer.find(token); }, kind_);
  };
  const Json json = read_tokenizer_config(folder);
  const std::string stated =
      read_special(JsonFields(json, folder + "/tokenizer_config.json"), "mask_token", "");
  mask_id_ = find(stated.empty() ? "[MASK]" : stated);
  if (stated.empty() && mask_id_ < 0) mask_id_ = find("<mask>");
}

TextTokenizer TextTokenizer::load(const std::string& folder) {
  const std::string path = folder + "/tokenizer.json";
  if (!file_exists(path)) {
    WordPiece tokenizer(load_wordpiece(folder), folder + "/tokenizer");
    const std::int64_t limit = tokenizer.max_tokens();
    return {std::move(tokenizer), limit, folder};
  }
  const Json json = read_json_file(path, kMaxTokenizerBytes);
  if (JsonFields(json, path).object("model").string("type", "WordPiece") != "BPE") {
    WordPiece tokenizer(load_wordpiece(folder, json), folder + "/tokenizer");
    const std::int64_t limit = tokenizer.max_tokens();
    return {std::move(tokenizer), limit, folder};
  }
  BpeSpec spec = read_bpe_json(json, path);
  const std::int64_t limit = read_bpe_limit(folder, json, spec);
  return {Bpe(std::move(spec), path), limit, folder};
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

bool TextTokenizer::contains(std::int32_t id) const {
  return std::visit([id](const auto& tokenizer) { return tokenizer.contains(id); }, kind_);
}

std::string TextTokenizer::text(std::int32_t id) const {
  const auto* bpe = std::get_if<Bpe>(&kind_);
  return bpe == nullptr || bpe->is_special(id) ? token(id) : bpe->decode(std::array{id});
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
