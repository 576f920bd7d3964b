#include "run_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "output.h"
#include "similarity.h"

namespace stof::cli {
namespace {

constexpr std::size_t kShownValues = 4;
constexpr std::size_t kShownText = 48;
constexpr std::int64_t kShownSimilarities = 12;  // a wider table wraps on common terminals

std::string first_values(std::span<const float> values) {
  std::string text;
  for (std::size_t i = 0; i < std::min(values.size(), kShownValues); ++i)
    text += fmt::format("{:8.4f}", values[i]);
  return text + (values.size() > kShownValues ? " ..." : "");
}

std::string token_count(const EncodedText& tokens) {
  return fmt::format("{}{}", tokens.ids.size(), tokens.truncated ? " (cut)" : "");
}

/// One line, whatever the text contains.
std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(),
      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, ' ');
  return shorten(text, kShownText);
}

nlohmann::ordered_json text_json(const RunReport& report, std::size_t index) {
  const EncodedText& tokens = report.tokens[index];
  return {{"index", index},
          {"text", report.texts[index]},
          {"num_tokens", tokens.ids.size()},
          {"truncated", tokens.truncated}};
}

void print_json_line(const nlohmann::ordered_json& json) { print_out("{}\n", json.dump()); }

void print_token_table(const EncodedText& tokens, const Tensor& states) {
  std::vector<std::vector<std::string>> rows = {{"  token", "id", "norm", "first values"}};
  for (std::size_t i = 0; i < tokens.ids.size(); ++i) {
    const auto row = tensor_row(states, static_cast<std::int64_t>(i));
    rows.push_back({"  " + tokens.tokens[i], std::to_string(tokens.ids[i]),
                    fmt::format("{:.4f}", norm(row)), first_values(row)});
  }
  write_output(format_table(rows));
}

}  // namespace

void print_embeddings(const RunReport& report, const Tensor& embeddings) {
  if (report.json) {
    for (std::size_t i = 0; i < report.texts.size(); ++i) {
      auto json = text_json(report, i);
      const auto row = tensor_row(embeddings, static_cast<std::int64_t>(i));
      json["embedding"] = std::vector<float>(row.begin(), row.end());
      print_json_line(json);
    }
    return;
  }
  std::vector<std::vector<std::string>> rows = {{"text", "tokens", "norm", "first values"}};
  for (std::size_t i = 0; i < report.texts.size(); ++i) {
    const auto row = tensor_row(embeddings, static_cast<std::int64_t>(i));
    rows.push_back({fmt::format("{}  {}", i + 1, one_line(report.texts[i])),
                    token_count(report.tokens[i]), fmt::format("{:.4f}", norm(row)),
                    first_values(row)});
  }
  write_output(format_table(rows));
  const std::int64_t count = embeddings.shape()[0];
  if (count < 2) return;
  const std::int64_t shown = std::min(count, kShownSimilarities);
  print_out("\ncosine similarity{}\n{}",
            shown < count ? fmt::format(" of the first {} texts", shown) : "",
            similarity_table(embeddings, shown));
}

void print_token_states(const RunReport& report, const std::vector<Tensor>& states) {
  for (std::size_t i = 0; i < report.texts.size(); ++i) {
    const EncodedText& tokens = report.tokens[i];
    if (report.json) {
      auto json = text_json(report, i);
      json["ids"] = tokens.ids;
      json["tokens"] = tokens.tokens;
      json["embeddings"] = nlohmann::json::array();
      for (std::int64_t t = 0; t < states[i].shape()[0]; ++t) {
        const auto row = tensor_row(states[i], t);
        json["embeddings"].push_back(std::vector<float>(row.begin(), row.end()));
      }
      print_json_line(json);
      continue;
    }
    print_out("{}{}  {}: {} tokens\n", i > 0 ? "\n" : "", i + 1, one_line(report.texts[i]),
              token_count(tokens));
    print_token_table(tokens, states[i]);
  }
}

void print_filled_masks(const RunReport& report,
                        const std::vector<std::vector<FilledMask>>& masks) {
  for (std::size_t i = 0; i < report.texts.size(); ++i) {
    auto json = text_json(report, i);
    json["masks"] = nlohmann::json::array();
    if (!report.json)
      print_out("{}{}  {}: {} tokens\n", i > 0 ? "\n" : "", i + 1, one_line(report.texts[i]),
                token_count(report.tokens[i]));
    for (const FilledMask& place : masks[i]) {
      nlohmann::ordered_json candidates = nlohmann::json::array();
      std::vector<std::vector<std::string>> rows = {
          {fmt::format("  token {}", place.position), "id", "probability"}};
      for (const TokenCandidate& candidate : place.candidates) {
        candidates.push_back({{"token", candidate.token},
                              {"id", candidate.id},
                              {"text", candidate.text},
                              {"probability", candidate.probability}});
        rows.push_back({"  " + one_line(candidate.text), std::to_string(candidate.id),
                        fmt::format("{:.4f}", candidate.probability)});
      }
      json["masks"].push_back({{"position", place.position}, {"candidates", candidates}});
      if (!report.json) write_output(format_table(rows));
    }
    if (report.json) print_json_line(json);
  }
}

}  // namespace stof::cli
