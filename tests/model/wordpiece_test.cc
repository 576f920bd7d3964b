#include "model/wordpiece.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "model/expect_error.h"
#include "model/test_data.h"
#include "model/unicode.h"
#include "stof/error.h"

namespace stof::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

WordPiece load_minilm(bool cased = false) {
  const std::string folder = minilm_folder();
  WordPieceSpec spec = load_wordpiece(folder);
  if (cased) spec.normalizer.lowercase = spec.normalizer.strip_accents = false;
  return WordPiece(std::move(spec), folder);
}

TEST(WordPiece, GivesTheReferenceIdsOfTwoThousandParagraphs) {
  const WordPiece tokenizer = load_minilm();
  const auto paragraphs = corpus_paragraphs();
  std::istringstream golden(read_file(std::string(STOF_TEST_DATA) + "/wordpiece_corpus.txt"));
  std::size_t compared = 0;
  for (std::string line; std::getline(golden, line); ++compared) {
    ASSERT_LT(compared, paragraphs.size());
    const auto& [index, text] = paragraphs[compared];
    const std::vector<std::int32_t> ids = tokenizer.encode(text);
    Fnv1a hash;
    for (const std::int32_t id : ids) hash.add(id);
    ASSERT_EQ(fmt::format("{} {} {:016x}", index, ids.size(), hash.value()), line) << text;
  }
  EXPECT_EQ(compared, paragraphs.size());
  EXPECT_GE(compared, 2000u);
}

TEST(WordPiece, GivesTheReferenceIdsOfNastyStrings) {
  const WordPiece uncased = load_minilm(), cased = load_minilm(true);
  const nlohmann::json cases = read_golden_json("wordpiece_nasty.json");
  EXPECT_GE(cases.size(), 60u);
  for (const auto& entry : cases) {
    SCOPED_TRACE(entry["name"].get<std::string>());
    const auto text = entry["text"].get<std::string>();
    EXPECT_EQ(uncased.encode(text), entry["uncased"].get<std::vector<std::int32_t>>());
    EXPECT_EQ(cased.encode(text), entry["cased"].get<std::vector<std::int32_t>>());
  }
}

TEST(WordPiece, ReadsVocabTxtLikeTokenizerJson) {
  const std::string folder = minilm_folder();
  const WordPiece tokenizer(
      parse_vocab_txt(read_file(folder + "/vocab.txt"), "vocab.txt",
                      read_file(folder + "/tokenizer_config.json"), "tokenizer_config.json"),
      "vocab.txt");
  EXPECT_EQ(tokenizer.max_tokens(), 512);
  for (const auto& entry : read_golden_json("wordpiece_nasty.json"))
    EXPECT_EQ(tokenizer.encode(entry["text"].get<std::string>()),
              entry["uncased"].get<std::vector<std::int32_t>>())
        << entry["name"];
}

TEST(WordPiece, FindsAddedTokensOfEveryKindInTheText) {
  const nlohmann::json golden = read_golden_json("wordpiece_tiny.json");
  const WordPiece tokenizer(parse_tokenizer_json(golden["tokenizer"].dump(), "tiny"), "tiny");
  for (const auto& entry : golden["cases"])
    EXPECT_EQ(tokenizer.encode(entry["text"].get<std::string>()),
              entry["ids"].get<std::vector<std::int32_t>>())
        << entry["text"];
}

TEST(WordPiece, NormalisesEveryCodePointLikeTheReference) {
  const BertNormalizer normalizers[] = {{true, true, true, true},
                                        {true, true, false, false},
                                        {false, false, true, false},
                                        {false, false, false, true}};
  std::istringstream golden(read_file(std::string(STOF_TEST_DATA) + "/wordpiece_unicode.txt"));
  char32_t block = 0;
  for (std::string line; std::getline(golden, line); block += 0x1000) {
    Fnv1a hash;
    for (char32_t c = block; c < block + 0x1000; ++c) {
      if (c >= 0xD800 && c < 0xE000) continue;
      const std::u32string text = {U'A', U'\u0345', c, U'b'};
      for (const BertNormalizer& normalizer : normalizers) hash.add(encode_utf8(normalizer(text)));
      hash.add(std::string(1, static_cast<char>(split_words(text).size())));
    }
    EXPECT_EQ(fmt::format("{:x} {:016x}", static_cast<std::uint32_t>(block), hash.value()), line);
  }
  EXPECT_EQ(block, char32_t{0x110000});
}

TEST(WordPiece, CutsLongTextsAndSaysSo) {
  const WordPiece tokenizer = load_minilm();
  bool truncated = false;
  EXPECT_THAT(tokenizer.encode("the cat sat on the mat", 5, &truncated),
              ElementsAre(101, 1996, 4937, 2938, 102));
  EXPECT_TRUE(truncated);
  EXPECT_EQ(tokenizer.encode("the cat sat", 5, &truncated).size(), 5u);
  EXPECT_FALSE(truncated);
  EXPECT_THAT(tokenizer.encode("the cat", 2, &truncated), ElementsAre(101, 102));
  EXPECT_TRUE(truncated);
  EXPECT_THAT(expect_error(ErrorCode::kInvalidArgument, [&] { tokenizer.encode("a", 1); }),
              HasSubstr("at least 2"));
}

TEST(WordPiece, NamesTokensAndRefusesUnknownIds) {
  const WordPiece tokenizer = load_minilm();
  EXPECT_EQ(tokenizer.token(103), "[MASK]");
  EXPECT_EQ(tokenizer.token(30521), "##～");
  EXPECT_EQ(tokenizer.num_ids(), 30522);
  EXPECT_THAT(expect_error(ErrorCode::kInvalidArgument, [&] { tokenizer.token(30522); }),
              HasSubstr("30522"));
}

TEST(WordPiece, NamesTheByteWhereUtf8IsInvalid) {
  const WordPiece tokenizer = load_minilm();
  for (const char* bad : {"\x80", "\xC3", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80",
                          "\xF4\x90\x80\x80", "\xF8\x88\x80\x80\x80", "\xFF", "\xE2\x82 "})
    EXPECT_THAT(expect_error(ErrorCode::kInvalidArgument,
                             [&] { tokenizer.encode(std::string("héllo ") + bad); }),
                HasSubstr("at byte 7"));
}

TEST(WordPiece, TakesTimeThatGrowsWithTheTextOnly) {
  // A megabyte each of what makes careless tokenizers quadratic; a quadratic one never ends here.
  const WordPiece tokenizer = load_minilm();
  std::string marks = "a";
  for (int i = 0; i < 250'000; ++i) marks += i % 2 == 0 ? "\u0301" : "\u0323";
  EXPECT_EQ(tokenizer.encode(marks).size(), 3u);
  EXPECT_EQ(tokenizer.encode(std::string(1'000'000, 'x')).size(), 3u);
  EXPECT_EQ(tokenizer.encode(std::string(1'000'000, '[')).size(), 1'000'002u);
}

// --- refusals -----------------------------------------------------------------------------------

nlohmann::json tiny_settings() { return read_golden_json("wordpiece_tiny.json")["tokenizer"]; }

std::string refusal(ErrorCode code, const nlohmann::json& settings) {
  return expect_error(code, [&] {
    WordPiece(parse_tokenizer_json(settings.dump(), "dir/tokenizer.json"), "dir/tokenizer.json");
  });
}

TEST(TokenizerJson, RefusesWhatItDoesNotUnderstandByName) {
  const struct {
    const char *pointer, *value, *message;
  } kCases[] = {
      {"/normalizer/type", "\"Lowercase\"", "normalizer: type: expected \"BertNormalizer\""},
      {"/pre_tokenizer/type", "\"Whitespace\"", "pre_tokenizer: type"},
      {"/model/type", "\"BPE\"", "model: type: expected \"WordPiece\", got \"BPE\""},
      {"/post_processor/type", "\"RobertaProcessing\"", "post_processor: type"},
      {"/added_tokens/0/single_word", "true", "single_word: expected false"},
      {"/truncation", R"({"max_length": 8, "direction": "Left"})", "direction"},
      {"/dropout", "0.1", "dropout"},
  };
  for (const auto& c : kCases) {
    nlohmann::json settings = tiny_settings();
    settings[nlohmann::json::json_pointer(c.pointer)] = nlohmann::json::parse(c.value);
    const std::string message = refusal(ErrorCode::kUnsupported, settings);
    EXPECT_THAT(message, HasSubstr(c.message));
    EXPECT_THAT(message, HasSubstr("dir/tokenizer.json"));
  }
}

TEST(TokenizerJson, CallsContradictionsCorrupt) {
  const struct {
    const char *pointer, *value, *message;
  } kCases[] = {
      {"/model/vocab/a", "-1", "token \"a\""},
      {"/model/vocab/a", "5", "id 5"},
      {"/model/vocab/a", "99999999999", "token \"a\""},
      {"/model/unk_token", "\"[UNK]\"", "[UNK]"},
      {"/model/vocab", "[]", "vocab"},
      {"/added_tokens/0/id", "7", "added_tokens: id: expected 2"},
      {"/post_processor/cls", "[\"<s>\", 77]", "77"},
      {"/model/max_input_chars_per_word", "\"many\"", "max_input_chars_per_word"},
  };
  for (const auto& c : kCases) {
    nlohmann::json settings = tiny_settings();
    settings[nlohmann::json::json_pointer(c.pointer)] = nlohmann::json::parse(c.value);
    EXPECT_THAT(refusal(ErrorCode::kCorrupt, settings), HasSubstr(c.message)) << c.pointer;
  }
}

TEST(TokenizerJson, HonoursATruncationLimitAndASequenceTemplate) {
  nlohmann::json settings = tiny_settings();
  settings["truncation"] = {{"max_length", 4}};
  settings["post_processor"] = nlohmann::json::parse(R"({"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "two", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "special_tokens": {"two": {"id": "two", "ids": [2, 3], "tokens": ["<s>", "</s>"]}}})");
  const WordPiece tokenizer(parse_tokenizer_json(settings.dump(), "t"), "t");
  EXPECT_EQ(tokenizer.max_tokens(), 4);
  EXPECT_THAT(tokenizer.encode("a b c", 4), ElementsAre(2, 3, 4, 5));
}

TEST(VocabTxt, RefusesSettingsItDoesNotUnderstand) {
  const std::string vocab = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n";
  const auto message = [&](const char* config) {
    return expect_error(ErrorCode::kUnsupported,
                        [&] { parse_vocab_txt(vocab, "vocab.txt", config, "config"); });
  };
  EXPECT_THAT(message(R"({"do_basic_tokenize": false})"), HasSubstr("do_basic_tokenize"));
  EXPECT_THAT(message(R"({"never_split": ["a"]})"), HasSubstr("never_split"));
  EXPECT_THAT(message(R"({"truncation_side": "left"})"), HasSubstr("truncation_side"));
  EXPECT_THAT(expect_error(ErrorCode::kCorrupt,
                           [&] { parse_vocab_txt("a\nb\n", "vocab.txt", "", "config"); }),
              HasSubstr("[UNK]"));
}

}  // namespace
}  // namespace stof::model
