#pragma once
// Parts of tokenizer.json that all tokenizers share.

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/added_tokens.h"
#include "model/json_fields.h"

namespace stof::model {

using Vocabulary = std::unordered_map<std::string, std::int32_t>;

/// Tokenizer files above this are refused; the largest known are 20 MB.
inline constexpr std::uint64_t kMaxTokenizerBytes = std::uint64_t{256} << 20;
inline constexpr std::int64_t kMaxTokenId = 0x7FFFFFFE;

/// Refuses another "type".
void require_type(const JsonFields& fields, const char* type);

/// Refuses a field of the file that no tokenizer.json has.
void refuse_unknown_fields(const JsonFields& root, const Json& json);

/// The object "vocab" of a model, token: id.
Vocabulary read_vocabulary(const JsonFields& model);

/// "added_tokens", where present; ids agree with the vocabulary's.
std::vector<AddedToken> read_added_tokens(const JsonFields& root, const Vocabulary& vocab);

/// What is put around single texts: the ids before and behind each.
struct TextFrame {
  std::vector<std::int32_t> before, after;
};
/// From TemplateProcessing.
TextFrame read_template(const JsonFields& fields);
/// From BertProcessing and RobertaProcessing: "cls" and "sep", each a token and its id.
TextFrame read_cls_and_sep(const JsonFields& fields);

/// Tokens that tokenizer.json cuts a text to; 0: it does not.
std::int64_t read_truncation(const JsonFields& root);
/// model_max_length of tokenizer_config.json; 0: none. Refuses truncation on the left.
std::int64_t read_max_length(const JsonFields& config);
/// tokenizer.json and tokenizer_config.json may both state a setting: then they must agree, since
/// the libraries that read them differ on which one wins.
void require_agreement(const JsonFields& config, const char* name, bool value);
/// A special token in tokenizer_config.json: "[CLS]" or {"content": "[CLS]", ...}.
std::string read_special(const JsonFields& config, const char* name, const char* fallback);

}  // namespace stof::model
