// The byte-level BPE tokenizer against the goldens of tools/make_golden_bpe.py.

#include "model/bpe.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "core/text.h"
#include "model/expect_error.h"
#include "model/gguf_settings.h"
#include "model/test_data.h"
#include "model/utf8_stream.h"
#include "stof/error.h"

namespace stof::model {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::array<std::pair<const char*, BpeSplit>, 4> kSplits = {{
    {"smollm", BpeSplit::kDigitsGpt2},
    {"gpt2", BpeSplit::kGpt2},
    {"llama3", BpeSplit::kLlama3},
    {"qwen2", BpeSplit::kQwen2},
}};

BpeSpec smollm_spec() {
  const std::string path =
      fetched("models/smollm2-135m-instruct").string() + "/SmolLM2-135M-Instruct.Q4_1.gguf";
  const Json settings = gguf_settings(GgufFile::open(path));
  return read_gguf_bpe(JsonFields(settings, path));
}

/// SmolLM2's vocabulary under the four ways to split words.
const std::map<std::string, Bpe>& tokenizers() {
  static const auto* all = [] {
    auto* made = new std::map<std::string, Bpe>;
    const BpeSpec spec = smollm_spec();
    for (const auto& [name, split] : kSplits) {
      BpeSpec own = spec;
      own.split = split;
      made->emplace(name, Bpe(std::move(own), name));
    }
    return made;
  }();
  return *all;
}

std::string summary(const std::vector<std::int32_t>& ids) {
  Fnv1a hash;
  for (const std::int32_t id : ids) hash.add(id);
  return fmt::format("{} {:016x}", ids.size(), hash.value());
}

TEST(Bpe, GivesTheReferenceIdsOfTwoThousandParagraphs) {
  const auto paragraphs = corpus_paragraphs();
  std::istringstream golden(read_file(std::string(STOF_TEST_DATA) + "/bpe_corpus.txt"));
  std::size_t compared = 0;
  for (std::string line; std::getline(golden, line); ++compared) {
    ASSERT_LT(compared, paragraphs.size());
    const auto& [index, text] = paragraphs[compared];
    std::vector<std::int32_t> all;
    for (const auto& [name, split] : kSplits) {
      const std::vector<std::int32_t> ids = tokenizers().at(name).encode(text);
      all.insert(all.end(), ids.begin(), ids.end());
    }
    ASSERT_EQ(fmt::format("{} {}", index, summary(all)), line) << text;
  }
  EXPECT_EQ(compared, paragraphs.size());
  EXPECT_GE(compared, 2000u);
}

TEST(Bpe, GivesTheReferenceIdsAndTextOfNastyStrings) {
  std::map<std::string, std::string> texts;
  for (const auto& entry : read_golden_json("wordpiece_nasty.json"))
    texts[entry.at("name")] = entry.at("text");
  const nlohmann::json cases = read_golden_json("bpe_nasty.json");
  EXPECT_GE(cases.size(), 80u);
  for (const auto& entry : cases) {
    const std::string name = entry.at("name");
    const std::string text =
        entry.contains("text") ? entry.at("text").get<std::string>() : texts.at(name);
    for (const auto& [kind, split] : kSplits)
      EXPECT_EQ(summary(tokenizers().at(kind).encode(text)), entry.at("ids").at(kind))
          << kind << ": " << name;
    const Bpe& smollm = tokenizers().at("smollm");
    Fnv1a hash;
    hash.add(smollm.decode(smollm.encode(text)));
    EXPECT_EQ(fmt::format("{:016x}", hash.value()), entry.at("decoded")) << name;
  }
}

TEST(Bpe, SplitsWordsAroundEveryCodePointAsTheReferenceDoes) {
  std::istringstream golden(read_file(std::string(STOF_TEST_DATA) + "/bpe_unicode.txt"));
  for (char32_t block = 0; block < 0x110000; block += 0x1000) {
    Fnv1a hash;
    for (char32_t c = block; c < block + 0x1000; ++c) {
      if (c >= 0xD800 && c < 0xE000) continue;
      const std::u32string text = {U'a', c, U' ', c, U'1'};
      for (const BpeSplit split : {BpeSplit::kDigitsGpt2, BpeSplit::kLlama3})
        for (const auto word : split_words(split, text))
          hash.add(std::string(1, static_cast<char>(word.size())));
    }
    std::string line;
    ASSERT_TRUE(std::getline(golden, line));
    EXPECT_EQ(fmt::format("{:x} {:016x}", static_cast<std::uint32_t>(block), hash.value()), line);
  }
}

/// tokenizer.json of a variant of bpe_tiny.json.
nlohmann::json tiny_json(const nlohmann::json& golden, const nlohmann::json& variant) {
  nlohmann::json json = variant.at("tokenizer");
  nlohmann::json model = golden.at("model");
  model["fuse_unk"] = false;
  model.update(json.at("model"));
  json["model"] = model;
  json["version"] = "1.0";
  json["decoder"] = {{"type", "ByteLevel"}};
  return json;
}

TEST(Bpe, HonoursEverySettingOfTokenizerJson) {
  const nlohmann::json golden = read_golden_json("bpe_tiny.json");
  ASSERT_EQ(golden.at("variants").size(), 6u);
  std::set<nlohmann::json> distinct;
  for (const auto& variant : golden.at("variants")) {
    const Bpe tokenizer(parse_bpe_json(tiny_json(golden, variant).dump(), "tiny"), "tiny");
    for (std::size_t i = 0; i < golden.at("texts").size(); ++i) {
      const std::vector<std::int32_t> expected = variant.at("ids")[i];
      EXPECT_EQ(tokenizer.encode(golden.at("texts")[i].get<std::string>()), expected)
          << variant.at("name") << golden.at("texts")[i];
      EXPECT_EQ(tokenizer.decode(expected), variant.at("decoded")[i].get<std::string>());
    }
    distinct.insert(variant.at("ids"));
  }
  EXPECT_EQ(distinct.size(), 6u);  // otherwise a setting is not put to the test
}

TEST(Bpe, RefusesWhatItDoesNotUnderstand) {
  const nlohmann::json golden = read_golden_json("bpe_tiny.json");
  const nlohmann::json plain = tiny_json(golden, golden.at("variants")[0]);
  const nlohmann::json llama3 = tiny_json(golden, golden.at("variants")[3]);
  const auto refusal = [](nlohmann::json json, const char* pointer, const nlohmann::json& value) {
    json[nlohmann::json::json_pointer(pointer)] = value;
    return expect_error(ErrorCode::kUnsupported, [&] { parse_bpe_json(json.dump(), "t.json"); });
  };
  EXPECT_THAT(refusal(plain, "/model/type", "Unigram"),
              AllOf(HasSubstr("t.json"), HasSubstr("Unigram")));
  EXPECT_THAT(refusal(plain, "/model/dropout", 0.1), HasSubstr("dropout"));
  EXPECT_THAT(refusal(plain, "/model/byte_fallback", true), HasSubstr("byte_fallback"));
  EXPECT_THAT(refusal(plain, "/model/end_of_word_suffix", "</w>"), HasSubstr("end_of_word_suffix"));
  EXPECT_THAT(refusal(plain, "/model/continuing_subword_prefix", "##"), HasSubstr("prefix"));
  EXPECT_THAT(refusal(plain, "/normalizer", {{"type", "NFKC"}}), HasSubstr("NFKC"));
  EXPECT_THAT(refusal(plain, "/pre_tokenizer/type", "Metaspace"), HasSubstr("Metaspace"));
  EXPECT_THAT(refusal(plain, "/pre_tokenizer/use_regex", false), HasSubstr("use_regex"));
  EXPECT_THAT(refusal(plain, "/decoder/type", "Metaspace"), HasSubstr("decoder"));
  EXPECT_THAT(refusal(plain, "/post_processor", {{"type", "BertProcessing"}}),
              HasSubstr("BertProcessing"));
  EXPECT_THAT(refusal(plain, "/added_tokens/0/single_word", true), HasSubstr("single_word"));
  EXPECT_THAT(refusal(plain, "/trimming", 1), HasSubstr("trimming"));
  EXPECT_THAT(refusal(llama3, "/pre_tokenizer/pretokenizers/0/pattern/Regex", "\\d+"),
              AllOf(HasSubstr("pattern"), HasSubstr("LLaMA 3")));
  EXPECT_THAT(refusal(llama3, "/pre_tokenizer/pretokenizers/0/behavior", "Removed"),
              HasSubstr("Removed"));
  EXPECT_THAT(refusal(llama3, "/pre_tokenizer/pretokenizers/0/invert", true), HasSubstr("invert"));
  EXPECT_THAT(refusal(llama3, "/pre_tokenizer/pretokenizers/1/add_prefix_space", true),
              HasSubstr("add_prefix_space"));
}

TEST(Bpe, RefusesAVocabularyThatContradictsItself) {
  const auto refusal = [](const std::function<void(BpeSpec&)>& change) {
    BpeSpec spec;
    spec.vocab = {{"a", 0}, {"b", 1}, {"ab", 2}};
    spec.merges = {{"a", "b"}};
    change(spec);
    return expect_error(ErrorCode::kCorrupt, [&] { Bpe(std::move(spec), "here"); });
  };
  EXPECT_THAT(refusal([](BpeSpec& s) { s.merges.emplace_back("b", "a"); }),
              AllOf(HasSubstr("here: merge 1"), HasSubstr("\"ba\"")));
  EXPECT_THAT(refusal([](BpeSpec& s) { s.merges.emplace_back("c", "a"); }), HasSubstr("merge 1"));
  EXPECT_THAT(refusal([](BpeSpec& s) { s.vocab["c"] = 2; }), HasSubstr("id 2"));
  EXPECT_THAT(refusal([](BpeSpec& s) { s.vocab["c"] = 2'000'000'000; }), HasSubstr("2000000000"));
  EXPECT_THAT(refusal([](BpeSpec& s) { s.unk_token = "u"; }), HasSubstr("unk_token"));
  EXPECT_THAT(refusal([](BpeSpec& s) { s.frame.before = {3}; }), HasSubstr("got 3"));
}

TEST(Bpe, RefusesOtherTokenizersOfGguf) {
  const auto refusal = [](const char* key, const Json& value) {
    Json settings = {{"tokenizer.ggml.model", "gpt2"},
                     {"tokenizer.ggml.pre", "gpt-2"},
                     {"tokenizer.ggml.tokens", {"a", "b"}},
                     {"tokenizer.ggml.token_type", {1, 3}},
                     {"tokenizer.ggml.merges", Json::array()}};
    read_gguf_bpe(JsonFields(settings, "x.gguf"));
    settings[key] = value;
    try {
      read_gguf_bpe(JsonFields(settings, "x.gguf"));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_THAT(refusal("tokenizer.ggml.model", "llama"),
              AllOf(HasSubstr("model"), HasSubstr("llama")));
  EXPECT_THAT(refusal("tokenizer.ggml.pre", "tekken"),
              AllOf(HasSubstr("pre"), HasSubstr("tekken")));
  EXPECT_THAT(refusal("tokenizer.ggml.tokens", {"a", "a"}), HasSubstr("\"a\" twice"));
  EXPECT_THAT(refusal("tokenizer.ggml.token_type", {1}), HasSubstr("2 values"));
  EXPECT_THAT(refusal("tokenizer.ggml.token_type", {1, 9}), HasSubstr("1 to 6"));
  EXPECT_THAT(refusal("tokenizer.ggml.merges", {"ab"}), HasSubstr("merges"));
  EXPECT_THAT(refusal("tokenizer.ggml.add_bos_token", true), HasSubstr("bos_token_id"));
  EXPECT_THAT(refusal("tokenizer.ggml.add_space_prefix", true), HasSubstr("add_space_prefix"));
}

TEST(Bpe, RefusesTextAndIdsThatAreNone) {
  const Bpe& smollm = tokenizers().at("smollm");
  EXPECT_THAT(expect_error(ErrorCode::kInvalidArgument, [&] { smollm.encode("ab\xFFz"); }),
              HasSubstr("byte 2"));
  EXPECT_THAT(expect_error(ErrorCode::kInvalidArgument, [&] { smollm.bytes(49152); }),
              HasSubstr("got 49152"));
  EXPECT_THROW(smollm.bytes(-1), Error);
  EXPECT_EQ(smollm.find("<|im_end|>"), 2);
  EXPECT_EQ(smollm.find("no such token"), -1);
  EXPECT_TRUE(smollm.is_special(2));
}

TEST(Utf8Stream, GivesTheSameWhereverTheTextIsCut) {
  // Whole characters of every length, and what is none: overlong forms, surrogates, stray and
  // missing continuation bytes, values past the end.
  const std::string text =
      "a\u00e9\u20ac\U0001F600\xC0\x80\xE0\x80\x80\xED\xA0\x80\x80\xC3(\xE2\x82(\xF0\x9F\x98z"
      "\xF4\x90\x80\x80\xF8\xFF\u00e9\xE2\x82";
  // Python: bytes.decode("utf-8", errors="replace")
  const std::string expected =
      "a\u00e9\u20ac\U0001F600\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD(\uFFFD("
      "\uFFFDz\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\u00e9\uFFFD";
  for (std::size_t step = 1; step <= text.size(); ++step) {
    Utf8Stream stream;
    std::string out;
    for (std::size_t at = 0; at < text.size(); at += step) {
      out += stream.push(std::string_view(text).substr(at, step));
      EXPECT_TRUE(is_valid_utf8(out));
    }
    EXPECT_EQ(out + stream.finish(), expected) << step;
  }
}

}  // namespace
}  // namespace stof::model
