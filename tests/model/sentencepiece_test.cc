// SentencePiece's models against the goldens of tools/make_golden_sentencepiece.py.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "model/expect_error.h"
#include "model/metaspace.h"
#include "model/subword.h"
#include "model/tiny_sentencepiece.h"
#include "stof/error.h"

namespace stof::model {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using Tokenizers = std::map<std::string, std::unique_ptr<const SubwordTokenizer>>;

/// Each variant of spm_variants.json by its name.
const Tokenizers& spm_tokenizers() {
  static const auto* all = [] {
    auto* made = new Tokenizers;
    for (const auto& variant : read_golden_json("spm_variants.json")) {
      const std::string name = variant.at("name");
      (*made)[name] = std::make_unique<MetaspaceTokenizer>(
          read_metaspace_json(tokenizer_json(variant), name), name);
    }
    return made;
  }();
  return *all;
}

std::string summary_of(const SubwordTokenizer& tokenizer, const std::string& text) {
  const std::vector<std::int32_t> ids = tokenizer.encode(text);
  Fnv1a hash, decoded;
  for (const std::int32_t id : ids) hash.add(id);
  decoded.add(tokenizer.decode(ids));
  return fmt::format("{} {:016x} {:016x}", ids.size(), hash.value(), decoded.value());
}

TEST(SentencePiece, GivesTheReferenceIdsAndTextOfNastyStrings) {
  std::map<std::string, std::string> texts;
  for (const auto& entry : read_golden_json("wordpiece_nasty.json"))
    texts[entry.at("name")] = entry.at("text");
  const nlohmann::json cases = read_golden_json("spm_nasty.json");
  EXPECT_GE(cases.size(), 80u);
  for (const auto& [kind, tokenizer] : spm_tokenizers())
    for (const auto& entry : cases) {
      const std::string name = entry.at("name");
      const std::string text =
          entry.contains("text") ? entry.at("text").get<std::string>() : texts.at(name);
      EXPECT_EQ(summary_of(*tokenizer, text), entry.at("ids").at(kind)) << kind << ": " << name;
    }
}

/// A text in pieces as the stream hands them out.
std::string streamed(const SubwordTokenizer& tokenizer, const std::vector<std::int32_t>& ids,
                     bool begins_text) {
  TokenStream stream(tokenizer, begins_text);
  std::string text;
  for (const std::int32_t id : ids) text += stream.push(id);
  return text + stream.finish();
}

TEST(SentencePiece, StreamsWhatItDecodes) {
  const std::string text = "the documentation of \u00e9t\u00e9\u4e2d\U0001F600 models";
  for (const auto& [kind, tokenizer] : spm_tokenizers()) {
    const std::vector<std::int32_t> ids = tokenizer->encode(text);
    EXPECT_EQ(streamed(*tokenizer, ids, true), tokenizer->decode(ids)) << kind;
  }
  for (const char* kind : {"t5", "llama"}) {
    const SubwordTokenizer& tokenizer = *spm_tokenizers().at(kind);
    const std::vector<std::int32_t> ids = tokenizer.encode("the documentation");
    EXPECT_EQ(streamed(tokenizer, ids, true), "the documentation");
    EXPECT_EQ(streamed(tokenizer, ids, false), " the documentation");  // goes on after a word
    EXPECT_EQ(tokenizer.decode(ids), "the documentation");
  }
  EXPECT_THAT(spm_tokenizers().at("t5")->frame().after, testing::ElementsAre(1));
  EXPECT_TRUE(spm_tokenizers().at("t5")->is_special(1));
}

nlohmann::json variant_json(const std::string& name) {
  for (const auto& variant : read_golden_json("spm_variants.json"))
    if (variant.at("name") == name) return tokenizer_json(variant);
  throw std::runtime_error(name + ": no such variant");
}

TEST(SentencePiece, RefusesSettingsItDoesNotUnderstand) {
  const nlohmann::json t5 = variant_json("t5"), gemma = variant_json("gemma");
  const auto refusal = [](nlohmann::json json, const char* pointer, const nlohmann::json& value) {
    json[nlohmann::json::json_pointer(pointer)] = value;
    return expect_error(ErrorCode::kUnsupported, [&] { read_metaspace_json(json, "t.json"); });
  };
  EXPECT_THAT(refusal(t5, "/normalizer", {{"type", "NFKC"}}),
              AllOf(HasSubstr("t.json: normalizer"), HasSubstr("NFKC")));
  EXPECT_THAT(refusal(t5, "/normalizer",
                      {{"type", "Replace"}, {"pattern", {{"Regex", "a+"}}}, {"content", ""}}),
              AllOf(HasSubstr("Regex"), HasSubstr("a+")));
  EXPECT_THAT(refusal(t5, "/pre_tokenizer/pretokenizers/1/replacement", "_"),
              HasSubstr("replacement"));
  EXPECT_THAT(refusal(t5, "/pre_tokenizer/pretokenizers/1/prepend_scheme", "first"),
              HasSubstr("prepend_scheme"));
  EXPECT_THAT(refusal(t5, "/pre_tokenizer/pretokenizers/1/type", "Digits"), HasSubstr("Digits"));
  EXPECT_THAT(refusal(t5, "/post_processor", {{"type", "BertProcessing"}}),
              HasSubstr("BertProcessing"));
  EXPECT_THAT(refusal(t5, "/decoder", {{"type", "WordPiece"}}), HasSubstr("WordPiece"));
  EXPECT_THAT(refusal(t5, "/model/type", "WordLevel"), HasSubstr("WordLevel"));
  EXPECT_THAT(refusal(t5, "/trimming", 1), HasSubstr("trimming"));
  EXPECT_THAT(refusal(gemma, "/pre_tokenizer/pattern/String", "a"), HasSubstr("pattern"));
  EXPECT_THAT(refusal(gemma, "/normalizer", nullptr), HasSubstr("pattern"));
  EXPECT_THAT(refusal(gemma, "/model/dropout", 0.1), HasSubstr("dropout"));
  EXPECT_THAT(refusal(gemma, "/decoder/decoders/0/content", "_"), HasSubstr("pattern"));
}

TEST(SentencePiece, RefusesFilesThatContradictThemselves) {
  const nlohmann::json t5 = variant_json("t5"), gemma = variant_json("gemma");
  const auto refusal = [](nlohmann::json json, const char* pointer, const nlohmann::json& value) {
    json[nlohmann::json::json_pointer(pointer)] = value;
    return expect_error(ErrorCode::kCorrupt,
                        [&] { MetaspaceTokenizer(read_metaspace_json(json, "t.json"), "t.json"); });
  };
  EXPECT_THAT(refusal(t5, "/model/unk_id", nullptr), HasSubstr("unk_id"));
  EXPECT_THAT(refusal(t5, "/model/unk_id", 100000), HasSubstr("unk_id"));
  EXPECT_THAT(refusal(t5, "/model/vocab/5", {"a"}), HasSubstr("vocab"));
  EXPECT_THAT(refusal(t5, "/model/vocab", nlohmann::json::array()), HasSubstr("vocab"));
  EXPECT_THAT(refusal(gemma, "/model/unk_token", "no such token"), HasSubstr("unk_token"));
  EXPECT_THAT(refusal(gemma, "/model/merges/0", {"a", "no such token"}), HasSubstr("merge 0"));
  // The trie of the table: cut, of no whole blocks, pointing outside.
  const std::string table = SpmFile("unigram").charsmap;
  const auto charsmap = [&](const std::string& bytes) {
    return refusal(t5, "/normalizer/precompiled_charsmap", encode_base64(bytes));
  };
  EXPECT_THAT(charsmap(table.substr(0, 3)), HasSubstr("precompiled_charsmap"));
  EXPECT_THAT(charsmap(table.substr(0, 1000)), HasSubstr("multiple of 1024"));
  std::string odd = table, outside = table, past = table;
  odd[0] = 1;
  outside.replace(4, 4, "\xFF\xFF\xFF\x7F");  // the root's offset
  EXPECT_THAT(charsmap(odd), HasSubstr("multiple of 1024"));
  EXPECT_THAT(charsmap(outside), HasSubstr("a step to"));
  EXPECT_THAT(charsmap(past.substr(0, table.size() - 200)), HasSubstr("UTF-8 at an offset"));
  EXPECT_THAT(refusal(t5, "/normalizer/precompiled_charsmap", "AAA*"), HasSubstr("base64"));
}

}  // namespace
}  // namespace stof::model
