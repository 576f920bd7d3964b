#include "model/tokenizer_fields.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/check.h"

namespace stof::model {
namespace {

/// Model limits above this mean "none" (transformers writes 1e30).
constexpr double kNoLimit = 1e9;

std::int32_t read_token_pair(const JsonFields& fields, const char* name) {
  const Json& pair = fields.array(name);
  if (pair.size() != 2 || !pair[1].is_number_unsigned() ||
      std::cmp_greater(pair[1].get<std::uint64_t>(), kMaxTokenId))
    fields.fail(name, "a token and its id");
  return pair[1].get<std::int32_t>();
}

}  // namespace

void require_type(const JsonFields& fields, const char* type) {
  if (fields.string("type") != type) fields.refuse("type", fmt::format("\"{}\"", type));
}

void refuse_unknown_fields(const JsonFields& root, const Json& json) {
  static constexpr std::array<std::string_view, 9> kKnown = {
      "version",       "truncation",     "padding", "added_tokens", "normalizer",
      "pre_tokenizer", "post_processor", "decoder", "model"};
  for (const auto& [name, value] : json.items())
    if (std::find(kKnown.begin(), kKnown.end(), name) == kKnown.end())
      root.refuse(name.c_str(), "no field of this name");
}

Vocabulary read_vocabulary(const JsonFields& model) {
  const Json* vocab = model.find("vocab");
  if (vocab == nullptr || !vocab->is_object()) model.fail("vocab", "an object of token: id");
  Vocabulary ids;
  ids.reserve(vocab->size());
  for (const auto& [token, id] : vocab->items()) {
    STOF_CHECK(id.is_number_unsigned() && id <= kMaxTokenId, kCorrupt,
               "{}: vocab: token \"{}\": expected an id, got {}", model.where(), token, brief(id));
    ids.emplace(token, id.get<std::int32_t>());
  }
  return ids;
}

std::vector<AddedToken> read_added_tokens(const JsonFields& root, const Vocabulary& vocab) {
  std::vector<AddedToken> added;
  if (!root.has("added_tokens")) return added;
  for (const Json& entry : root.array("added_tokens")) {
    const JsonFields fields(entry, root.where() + ": added_tokens");
    if (fields.boolean("single_word", false)) fields.refuse("single_word", "false");
    AddedToken token;
    token.content = fields.string("content");
    token.id = static_cast<std::int32_t>(fields.integer("id", 0, kMaxTokenId));
    token.lstrip = fields.boolean("lstrip", false);
    token.rstrip = fields.boolean("rstrip", false);
    token.special = fields.boolean("special", false);
    token.normalized = fields.boolean("normalized", !token.special);
    const auto known = vocab.find(token.content);
    if (known != vocab.end() && known->second != token.id)
      fields.fail("id",
                  fmt::format("{}, the vocabulary's id of \"{}\"", known->second, token.content));
    added.push_back(std::move(token));
  }
  return added;
}

TextFrame read_template(const JsonFields& fields) {
  TextFrame frame;
  bool past_text = false;
  for (const Json& entry : fields.array("single")) {
    const JsonFields item(entry, fields.where() + ": single");
    const bool is_text = item.has("Sequence");
    const JsonFields piece = item.object(is_text ? "Sequence" : "SpecialToken");
    const std::string id = piece.string("id");
    // Segment 1 marks the second text of a pair; stof reads single texts.
    if (piece.integer("type_id", 0, kMaxTokenId, 0) != 0) piece.refuse("type_id", "0");
    if (is_text) {
      if (past_text || id != "A") piece.refuse("id", "\"A\", once");
      past_text = true;
      continue;
    }
    const JsonFields token = fields.object("special_tokens").object(id.c_str());
    for (const Json& value : token.array("ids")) {
      if (!value.is_number_unsigned() || std::cmp_greater(value.get<std::uint64_t>(), kMaxTokenId))
        token.fail("ids", "a list of token ids");
      (past_text ? frame.after : frame.before).push_back(value.get<std::int32_t>());
    }
  }
  if (!past_text) fields.fail("single", "a list with the sequence \"A\"");
  return frame;
}

TextFrame read_cls_and_sep(const JsonFields& fields) {
  return {{read_token_pair(fields, "cls")}, {read_token_pair(fields, "sep")}};
}

std::int64_t read_truncation(const JsonFields& root) {
  if (!root.has("truncation")) return 0;
  const JsonFields truncation = root.object("truncation");
  if (truncation.string("direction", "Right") != "Right")
    truncation.refuse("direction", "\"Right\"");
  return truncation.integer("max_length", 1, kMaxTokenId);
}

std::int64_t read_max_length(const JsonFields& config) {
  if (config.string("truncation_side", "right") != "right")
    config.refuse("truncation_side", "\"right\"");
  const double limit = config.number("model_max_length", 1, 1e300, 1e300);
  return limit < kNoLimit ? static_cast<std::int64_t>(limit) : 0;
}

void require_agreement(const JsonFields& config, const char* name, bool value) {
  if (config.boolean(name, value) != value)
    config.refuse(name, fmt::format("{} as in tokenizer.json", value));
}

std::string read_special(const JsonFields& config, const char* name, const char* fallback) {
  const Json* value = config.find(name);
  if (value != nullptr && value->is_object()) return config.object(name).string("content");
  return config.string(name, fallback);
}

}  // namespace stof::model
