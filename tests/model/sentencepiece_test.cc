// SentencePiece's models against the goldens of tools/make_golden_sentencepiece.py.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "model/expect_error.h"
#include "model/metaspace.h"
#include "model/sentencepiece.h"
#include "model/subword.h"
#include "model/temporary_folder.h"
#include "model/tiny_sentencepiece.h"
#include "stof/error.h"

namespace stof::model {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using Tokenizers = std::map<std::string, std::unique_ptr<const SubwordTokenizer>>;

std::unique_ptr<const SubwordTokenizer> from_file(const std::string& name) {
  return std::make_unique<SentencePieceTokenizer>(parse_sentencepiece(SpmFile(name).bytes, name),
                                                  name);
}

/// The metadata of a GGUF file with the pieces of spm_bpe.model.
nlohmann::json gguf_metadata() {
  nlohmann::json json = {{"tokenizer.ggml.model", "llama"},
                         {"tokenizer.ggml.add_bos_token", false},
                         {"tokenizer.ggml.bos_token_id", 1},
                         {"tokenizer.ggml.eos_token_id", 2}};
  for (const SpmFile::Piece& piece : SpmFile("bpe").pieces) {
    json["tokenizer.ggml.tokens"].push_back(piece.text);
    json["tokenizer.ggml.scores"].push_back(piece.score);
    json["tokenizer.ggml.token_type"].push_back(piece.type);
  }
  return json;
}

std::unique_ptr<const SubwordTokenizer> from_gguf(const nlohmann::json& changes) {
  nlohmann::json json = gguf_metadata();
  json.update(changes);
  return read_gguf_subword(JsonFields(json, "x.gguf"));
}

/// Each variant of spm_variants.json by its name, and the models of the library itself.
const Tokenizers& spm_tokenizers() {
  static const auto* all = [] {
    auto* made = new Tokenizers;
    for (const auto& variant : read_golden_json("spm_variants.json")) {
      const std::string name = variant.at("name");
      (*made)[name] = std::make_unique<MetaspaceTokenizer>(
          read_metaspace_json(tokenizer_json(variant), name), name);
    }
    (*made)["unigram"] = from_file("unigram");
    (*made)["bpe"] = from_file("bpe");
    (*made)["bpe without blank"] = from_gguf({{"tokenizer.ggml.add_space_prefix", false}});
    (*made)["bpe fewer blanks"] = from_gguf({{"tokenizer.ggml.remove_extra_whitespaces", true}});
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

/// A text in pieces as the stream hands them out.
std::string streamed(const SubwordTokenizer& tokenizer, const std::vector<std::int32_t>& ids,
                     bool begins_text) {
  TokenStream stream(tokenizer, begins_text);
  std::string text;
  for (const std::int32_t id : ids) text += stream.push(id);
  return text + stream.finish();
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

TEST(SentencePiece, GivesTheReferenceIdsOfTwoThousandParagraphs) {
  const auto paragraphs = corpus_paragraphs();
  std::istringstream golden(read_file(std::string(STOF_TEST_DATA) + "/spm_corpus.txt"));
  std::size_t compared = 0;
  for (std::string line; std::getline(golden, line); ++compared) {
    ASSERT_LT(compared, paragraphs.size());
    const auto& [index, text] = paragraphs[compared];
    Fnv1a hash;
    std::size_t count = 0;
    for (const char* kind : {"unigram", "bpe", "t5", "llama", "gemma"})
      for (const std::int32_t id : spm_tokenizers().at(kind)->encode(text)) {
        hash.add(id);
        ++count;
      }
    ASSERT_EQ(fmt::format("{} {} {:016x}", index, count, hash.value()), line) << text;
  }
  EXPECT_EQ(compared, paragraphs.size());
  EXPECT_GE(compared, 2000u);
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

TEST(SentencePiece, ReadsFoldersWithItsOwnFiles) {
  const TemporaryFolder folder;
  const auto load = [&](const char* file, const char* model, const nlohmann::json& config) {
    const TemporaryFolder own;
    own.write(file, SpmFile(model).bytes);
    own.write("tokenizer_config.json", config.dump());
    return load_subword(own.path());
  };
  const auto t5 = load("spiece.model", "unigram",
                       {{"tokenizer_class", "T5Tokenizer"},
                        {"eos_token", "</s>"},
                        {"added_tokens_decoder",
                         {{"1200", {{"content", "<extra_id_1>"}, {"special", true}}},
                          {"1201", {{"content", "<extra_id_0>"}, {"special", true}}},
                          {"1202", {{"content", "<mine>"}, {"special", false}}},
                          {"2", {{"content", "<unk>"}, {"special", true}}}}}});
  EXPECT_THAT(t5->frame().after, testing::ElementsAre(1));
  EXPECT_EQ(t5->num_ids(), 1203);
  const auto ids = t5->encode("a <extra_id_0> b <mine>");
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 1201), 1);
  EXPECT_EQ(ids.back(), 1);
  EXPECT_EQ(t5->decode(ids), "a b<mine>");  // the library's blanks are those between its own pieces
  EXPECT_EQ(t5->encode("<unk>").size(), spm_tokenizers().at("unigram")->encode("<unk>").size() + 1);

  const nlohmann::json llama = {
      {"tokenizer_class", "LlamaTokenizerFast"}, {"bos_token", "<s>"}, {"eos_token", "</s>"}};
  nlohmann::json changed = llama;
  changed["add_eos_token"] = true;
  changed["legacy"] = false;
  const auto early = load("tokenizer.model", "bpe", llama),
             late = load("tokenizer.model", "bpe", changed);
  EXPECT_THAT(early->frame().before, testing::ElementsAre(1));
  EXPECT_TRUE(early->frame().after.empty());
  EXPECT_THAT(late->frame().after, testing::ElementsAre(2));
  // "the" behind a special token: with a blank before it, and without.
  const std::string inside = "x</s>the";
  EXPECT_EQ(streamed(*early, early->encode(inside), false), " x the");
  EXPECT_EQ(streamed(*late, late->encode(inside), false), " xthe");
  EXPECT_EQ(early->encode("the documentation").size() + 1,
            late->encode("the documentation").size());
  EXPECT_THAT(from_gguf({{"tokenizer.ggml.add_bos_token", true}})->frame().before,
              testing::ElementsAre(1));
  EXPECT_THAT(from_gguf({{"tokenizer.ggml.add_eos_token", true}})->frame().after,
              testing::ElementsAre(2));

  const auto refusal = [&](const nlohmann::json& config) {
    try {
      load("tokenizer.model", "bpe", config);
    } catch (const Error& error) {
      return std::string(to_string(error.code())) + ": " + error.what();
    }
    return std::string("nothing was thrown");
  };
  EXPECT_THAT(refusal({{"tokenizer_class", "XLMRobertaTokenizer"}}),
              AllOf(HasSubstr("Unsupported"), HasSubstr("XLMRobertaTokenizer")));
  EXPECT_THAT(refusal(nlohmann::json::object()),
              AllOf(HasSubstr("Unsupported"), HasSubstr("tokenizer_class")));
  nlohmann::json other = llama;
  other["bos_token"] = "<bos>";
  EXPECT_THAT(refusal(other), AllOf(HasSubstr("Corrupt"), HasSubstr("bos_token")));
  other = llama;
  other["add_prefix_space"] = false;
  EXPECT_THAT(refusal(other), AllOf(HasSubstr("Unsupported"), HasSubstr("add_prefix_space")));
  other = llama;
  other["added_tokens_decoder"]["1"]["content"] = "<other>";
  EXPECT_THAT(refusal(other), AllOf(HasSubstr("Corrupt"), HasSubstr("the piece of this id")));
}

TEST(SentencePiece, RefusesModelFilesThatAreNone) {
  const std::string good = SpmFile("unigram").bytes;
  const auto refusal = [](std::string bytes) {
    return expect_error(ErrorCode::kCorrupt, [&] {
      SentencePieceTokenizer(parse_sentencepiece(std::move(bytes), "x.model"), "x.model");
    });
  };
  EXPECT_THAT(refusal(""), AllOf(HasSubstr("x.model"), HasSubstr("pieces, got 0")));
  EXPECT_THAT(refusal("{\"model\": 1}"), HasSubstr("x.model"));
  EXPECT_THAT(refusal(good.substr(0, good.size() / 2)), HasSubstr("the file is cut"));
  // Any length is a model or an error, and nothing is read past its end.
  for (std::size_t size = 0; size < good.size(); size += 1 + size / 40) {
    try {
      SentencePieceTokenizer(parse_sentencepiece(good.substr(0, size), "x.model"), "x.model")
          .encode("a text");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCorrupt) << error.what();
    }
  }
  const auto with_piece = [&](const std::string& text, float score, std::int64_t type) {
    MessageWriter piece, model;
    piece.add(1, text);
    piece.add(2, score);
    piece.add(3, type);
    model.add(1, piece.message());
    return refusal(good + model.message());
  };
  EXPECT_THAT(with_piece("</s>", 0, 1), HasSubstr("got it twice"));
  EXPECT_THAT(with_piece("\xFF", 0, 1), HasSubstr("UTF-8"));
  EXPECT_THAT(with_piece(std::string("a\0b", 3), 0, 1), HasSubstr("U+0000"));
  EXPECT_THAT(with_piece("zzzz", NAN, 1), HasSubstr("finite"));
  EXPECT_THAT(with_piece("zzzz", 0, 7), HasSubstr("type"));
  EXPECT_THAT(with_piece("zzzz", 0, 6), HasSubstr("a byte"));
  EXPECT_THAT(with_piece("zzzz", 0, 2), HasSubstr("expected a model"));  // a second unknown
  MessageWriter trainer, model;
  trainer.add(3, std::int64_t{3});
  model.add(2, trainer.message());
  EXPECT_THAT(expect_error(ErrorCode::kUnsupported,
                           [&] { parse_sentencepiece(good + model.message(), "x.model"); }),
              HasSubstr("model_type"));

  const auto gguf = [](const char* key, const nlohmann::json& value) {
    return expect_error(ErrorCode::kCorrupt, [&] { from_gguf({{key, value}}); });
  };
  EXPECT_THAT(gguf("tokenizer.ggml.scores", {1.0}), HasSubstr("tokenizer.ggml.scores"));
  EXPECT_THAT(gguf("tokenizer.ggml.token_type", {1}), HasSubstr("tokenizer.ggml.token_type"));
  EXPECT_THAT(gguf("tokenizer.ggml.scores", nullptr), HasSubstr("tokenizer.ggml.scores"));
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
