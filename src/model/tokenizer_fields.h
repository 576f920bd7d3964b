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

/// TemplateProcessing's form for single texts: the ids before and behind the text.
struct TextFrame {
  std::vector<std::int32_t> before, after;
};
TextFrame read_template(const JsonFields& fields);

}  // namespace stof::model
