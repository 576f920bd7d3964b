// tokenizer.json and GGUF metadata -> BpeSpec. What is not understood is refused by name: a setting
// passed over would give other ids.

#include <algorithm>
#include <array>

#include "core/check.h"
#include "core/file.h"
#include "core/text.h"
#include "model/bpe.h"

namespace stof::model {
namespace {

void require_empty(const JsonFields& fields, const char* name) {
  if (!fields.string(name, "").empty()) fields.refuse(name, "null");
}

/// A merge is "left right" in early files, ["left", "right"] in later ones.
std::pair<std::string, std::string> read_merge(const JsonFields& fields, const Json& merge) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  const std::string text = merge.is_string() ? merge.get<std::string>() : "";
  const std::size_t space = text.find(' ');
  STOF_CHECK(space != std::string::npos && space > 0 && space + 1 < text.size() &&
                 text.find(' ', space + 1) == std::string::npos,
             kCorrupt, "{}: merges: expected two tokens with a space between them, got {}",
             fields.where(), brief(merge));
  return {text.substr(0, space), text.substr(space + 1)};
}

using Merges = std::vector<std::pair<std::string, std::string>>;

void read_merges(const JsonFields& fields, const char* name, Merges& result) {
  const Json& merges = fields.array(name);
  result.reserve(merges.size());
  for (const Json& merge : merges) result.push_back(read_merge(fields, merge));
}

void read_model(const JsonFields& fields, BpeSpec& spec) {
  if (fields.string("type", "BPE") != "BPE") fields.refuse("type", "\"BPE\"");
  if (fields.boolean("byte_fallback", false)) fields.refuse("byte_fallback", "false");
  spec.unk_token = fields.string("unk_token", "");
  if (!spec.unk_token.empty() && fields.boolean("fuse_unk", false))
    fields.refuse("fuse_unk", "false");
  spec.ignore_merges = fields.boolean("ignore_merges", false);
  read_bpe_model(fields, spec.vocab, spec.merges);
}

/// Isolated matches of one of the known patterns.
BpeSplit read_split(const JsonFields& fields) {
  require_type(fields, "Split");
  if (fields.string("behavior") != "Isolated") fields.refuse("behavior", "\"Isolated\"");
  if (fields.boolean("invert", false)) fields.refuse("invert", "false");
  const std::string regex = fields.object("pattern").string("Regex");
  if (regex == kRegexLlama3) return BpeSplit::kLlama3;
  if (regex == kRegexQwen2) return BpeSplit::kQwen2;
  fields.refuse("pattern", "the pattern of LLaMA 3 or that of Qwen 2");
}

void read_byte_level(const JsonFields& fields, bool use_regex, BpeSpec& spec) {
  require_type(fields, "ByteLevel");
  spec.add_prefix_space = fields.boolean("add_prefix_space", true);
  if (fields.boolean("use_regex", true) != use_regex)
    fields.refuse("use_regex", use_regex ? "true" : "false");
}

void read_pre_tokenizer(const JsonFields& fields, BpeSpec& spec) {
  if (fields.string("type") != "Sequence") {
    read_byte_level(fields, true, spec);
    return;
  }
  const Json& steps = fields.array("pretokenizers");
  if (steps.size() != 2) fields.refuse("pretokenizers", "Digits or Split, then ByteLevel");
  const std::string where = fields.where() + ": pretokenizers";
  const JsonFields first(steps[0], where), second(steps[1], where);
  if (first.string("type") == "Digits") {
    if (!first.boolean("individual_digits", false)) first.refuse("individual_digits", "true");
    spec.split = BpeSplit::kDigitsGpt2;
    read_byte_level(second, true, spec);
  } else {
    spec.split = read_split(first);
    read_byte_level(second, false, spec);
  }
  // It would stand before every piece, not before the text.
  if (spec.add_prefix_space) second.refuse("add_prefix_space", "false");
}

void read_post_processor(const JsonFields& fields, BpeSpec& spec) {
  const std::string type = fields.string("type");
  if (type == "TemplateProcessing") {
    spec.frame = read_template(fields);
  } else if (type == "RobertaProcessing") {  // add_prefix_space there only moves offsets
    spec.frame = read_cls_and_sep(fields);
  } else if (type == "Sequence") {
    for (const Json& step : fields.array("processors"))
      read_post_processor(JsonFields(step, fields.where() + ": processors"), spec);
  } else if (type != "ByteLevel") {  // which only trims offsets
    fields.refuse("type", "\"TemplateProcessing\", \"RobertaProcessing\" or \"ByteLevel\"");
  }
}

BpeSplit split_of_gguf(const JsonFields& metadata) {
  constexpr const char* kKey = "tokenizer.ggml.pre";
  static constexpr std::array<std::pair<std::string_view, BpeSplit>, 4> kKnown = {{
      {"gpt-2", BpeSplit::kGpt2},
      {"smollm", BpeSplit::kDigitsGpt2},
      {"llama-bpe", BpeSplit::kLlama3},
      {"qwen2", BpeSplit::kQwen2},
  }};
  const std::string name = metadata.string(kKey);
  for (const auto& [known, split] : kKnown)
    if (name == known) return split;
  metadata.refuse(kKey, "\"gpt-2\", \"smollm\", \"llama-bpe\" or \"qwen2\"");
}

}  // namespace

void read_bpe_model(const JsonFields& fields, Vocabulary& vocab, Merges& merges) {
  if (fields.has("dropout") && fields.number("dropout", 0, 1, 0) != 0)
    fields.refuse("dropout", "null");
  require_empty(fields, "continuing_subword_prefix");
  require_empty(fields, "end_of_word_suffix");
  vocab = read_vocabulary(fields);
  read_merges(fields, "merges", merges);
}

bool is_byte_level(const JsonFields& root) {
  if (root.object("model").string("type", "BPE") != "BPE" || !root.has("pre_tokenizer"))
    return false;
  const JsonFields fields = root.object("pre_tokenizer");
  const std::string type = fields.string("type");
  if (type != "Sequence") return type == "ByteLevel";
  return std::ranges::any_of(fields.array("pretokenizers"), [&](const Json& step) {
    return JsonFields(step, fields.where()).string("type") == "ByteLevel";
  });
}

BpeSpec parse_bpe_json(std::string_view text, const std::string& file) {
  return read_bpe_json(parse_json(text, file), file);
}

BpeSpec read_bpe_json(const Json& json, const std::string& file) {
  const JsonFields root(json, file);
  refuse_unknown_fields(root, json);
  BpeSpec spec;
  read_model(root.object("model"), spec);
  if (root.has("normalizer")) {
    require_type(root.object("normalizer"), "NFC");
    spec.normalize_nfc = true;
  }
  read_pre_tokenizer(root.object("pre_tokenizer"), spec);
  spec.added = read_added_tokens(root, spec.vocab);
  if (root.has("post_processor")) read_post_processor(root.object("post_processor"), spec);
  require_type(root.object("decoder"), "ByteLevel");
  return spec;
}

BpeSpec read_gguf_bpe(const JsonFields& metadata) {
  // The format's numbers of token types.
  constexpr int kNormal = 1, kControl = 3, kUserDefined = 4, kByte = 6;
  if (metadata.string("tokenizer.ggml.model") != "gpt2")
    metadata.refuse("tokenizer.ggml.model",
                    "\"gpt2\" (byte-level BPE) or \"llama\" (SentencePiece's)");
  BpeSpec spec;
  spec.split = split_of_gguf(metadata);
  // Not in the metadata: what the original tokenizers of these families do.
  spec.ignore_merges = spec.split == BpeSplit::kLlama3;
  spec.normalize_nfc = spec.split == BpeSplit::kQwen2;
  if (metadata.boolean("tokenizer.ggml.add_space_prefix", false))
    metadata.refuse("tokenizer.ggml.add_space_prefix", "false");
  const Json& tokens = metadata.array("tokenizer.ggml.tokens");
  const Json& types = metadata.array("tokenizer.ggml.token_type");
  if (types.size() != tokens.size())
    metadata.fail("tokenizer.ggml.token_type",
                  fmt::format("{} values, one a token", tokens.size()));
  spec.vocab.reserve(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (!tokens[i].is_string()) metadata.fail("tokenizer.ggml.tokens", "an array of strings");
    if (!types[i].is_number_integer() || types[i] < kNormal || types[i] > kByte)
      metadata.fail("tokenizer.ggml.token_type", "an array of integers from 1 to 6");
    const auto content = tokens[i].get<std::string>();
    const auto id = static_cast<std::int32_t>(i);
    const bool is_new = spec.vocab.emplace(content, id).second;
    STOF_CHECK(is_new, kCorrupt,
               "{}: tokenizer.ggml.tokens: expected distinct tokens, got {} twice",
               metadata.where(), quote_text(content));
    if (types[i] != kControl && types[i] != kUserDefined) continue;
    AddedToken added;
    added.content = content;
    added.id = id;
    added.special = types[i] == kControl;
    spec.added.push_back(std::move(added));
  }
  read_merges(metadata, "tokenizer.ggml.merges", spec.merges);
  const bool is_llama3 = spec.split == BpeSplit::kLlama3;
  if (metadata.boolean("tokenizer.ggml.add_bos_token", is_llama3))
    spec.frame.before = {
        static_cast<std::int32_t>(metadata.integer("tokenizer.ggml.bos_token_id", 0, kMaxTokenId))};
  if (metadata.boolean("tokenizer.ggml.add_eos_token", false))
    spec.frame.after = {
        static_cast<std::int32_t>(metadata.integer("tokenizer.ggml.eos_token_id", 0, kMaxTokenId))};
  return spec;
}

}  // namespace stof::model
