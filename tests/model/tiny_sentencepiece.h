#pragma once
// The models of tools/make_golden_sentencepiece.py as the tokenizer.json files that it made of
// them.

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "model/protobuf.h"
#include "model/test_data.h"

namespace stof::model {

/// What a .model file holds, as far as a tokenizer.json needs it.
struct SpmFile {
  struct Piece {
    std::string text;
    float score = 0;
    int type = 1;
  };
  std::vector<Piece> pieces;
  bool unigram = true;
  std::int64_t unknown = 0;
  std::string charsmap;

  explicit SpmFile(const std::string& name)
      : bytes(read_file(std::string(STOF_TEST_DATA) + "/spm_" + name + ".model")) {
    MessageReader model(bytes, name);
    while (model.next()) {
      if (model.number() > 3) continue;
      MessageReader inner(model.bytes(), name);
      Piece piece;
      while (inner.next()) {
        const auto is = [&](std::uint32_t message, std::uint32_t field) {
          return model.number() == message && inner.number() == field;
        };
        if (is(1, 1)) piece.text = inner.bytes();
        if (is(1, 2)) piece.score = inner.number32();
        if (is(1, 3)) piece.type = static_cast<int>(inner.integer());
        if (is(2, 3)) unigram = inner.integer() == 1;
        if (is(2, 40)) unknown = inner.integer();
        if (is(3, 2)) charsmap = inner.bytes();
      }
      if (model.number() == 1) pieces.push_back(std::move(piece));
    }
  }

  /// "merges": of every token its parts, the likeliest tokens first.
  nlohmann::json merges() const {
    std::map<std::string, std::size_t> ids;
    for (std::size_t i = 0; i < pieces.size(); ++i) ids[pieces[i].text] = i;
    struct Merge {
      float score;
      std::size_t left, right;
    };
    std::vector<Merge> all;
    for (const Piece& piece : pieces) {
      if (piece.type != 1) continue;
      std::vector<Merge> own;
      for (std::size_t i = 1; i < piece.text.size(); ++i) {
        const auto left = ids.find(piece.text.substr(0, i)), right = ids.find(piece.text.substr(i));
        if (left != ids.end() && right != ids.end())
          own.push_back({piece.score, left->second, right->second});
      }
      std::ranges::sort(own, {}, [](const Merge& m) { return std::pair(m.left, m.right); });
      all.insert(all.end(), own.begin(), own.end());
    }
    std::ranges::stable_sort(all, std::greater<>(), &Merge::score);
    nlohmann::json merges = nlohmann::json::array();
    for (const Merge& merge : all)
      merges.push_back({pieces[merge.left].text, pieces[merge.right].text});
    return merges;
  }

  nlohmann::json model_json() const {
    if (unigram) {
      nlohmann::json vocab = nlohmann::json::array();
      for (const Piece& piece : pieces) vocab.push_back({piece.text, piece.score});
      return {{"type", "Unigram"}, {"unk_id", unknown}, {"byte_fallback", false}, {"vocab", vocab}};
    }
    nlohmann::json vocab;
    for (std::size_t i = 0; i < pieces.size(); ++i) vocab[pieces[i].text] = i;
    return {{"type", "BPE"},    {"dropout", nullptr},    {"unk_token", "<unk>"},
            {"fuse_unk", true}, {"byte_fallback", true}, {"ignore_merges", false},
            {"vocab", vocab},   {"merges", merges()}};
  }

  std::string bytes;  ///< of the whole file
};

inline std::string encode_base64(const std::string& bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t bits = 0;
    for (std::size_t i = at; i < at + 3; ++i)
      bits = bits << 8 | (i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0U);
    const std::size_t digits = std::min<std::size_t>(bytes.size() - at, 3) + 1;
    for (std::size_t i = 0; i < 4; ++i)
      text += i < digits ? kDigits[bits >> (18 - 6 * i) & 63] : '=';
  }
  return text;
}

/// The whole tokenizer.json of a variant of spm_variants.json.
inline nlohmann::json tokenizer_json(nlohmann::json variant) {
  const SpmFile file(variant.at("model_file").get<std::string>());
  const bool normalized = variant.value("normalized", false);
  nlohmann::json json = {{"version", "1.0"}, {"added_tokens", nlohmann::json::array()}};
  for (std::size_t i = 0; i < file.pieces.size(); ++i) {
    const SpmFile::Piece& piece = file.pieces[i];
    if (piece.type < 2 || piece.type > 4) continue;
    json["added_tokens"].push_back({{"id", i},
                                    {"content", piece.text},
                                    {"normalized", normalized},
                                    {"special", piece.type != 4 && !normalized}});
  }
  json["model"] = file.model_json();
  if (variant.contains("model")) json["model"].update(variant["model"]);
  for (const char* name : {"normalizer", "pre_tokenizer", "post_processor", "decoder"}) {
    json[name] = variant.at(name);
    if (json[name].is_null()) continue;
    nlohmann::json* steps =
        json[name].contains("normalizers") ? &json[name]["normalizers"] : nullptr;
    for (nlohmann::json* step : {&json[name], steps == nullptr ? nullptr : &(*steps)[0]})
      if (step != nullptr && step->contains("precompiled_charsmap"))
        (*step)["precompiled_charsmap"] = encode_base64(file.charsmap);
  }
  return json;
}

}  // namespace stof::model
