#include "model/decoder_fields.h"

#include <utility>

#include "core/file.h"
#include "core/log.h"

namespace stof::model {

std::vector<std::int32_t> read_end_tokens(const JsonFields& fields) {
  constexpr const char* kName = "eos_token_id";
  std::vector<std::int32_t> ids;
  const Json* value = fields.find(kName);
  if (value == nullptr) return ids;
  const Json list = value->is_array() ? *value : Json::array({*value});
  for (const Json& id : list) {
    // As unsigned numbers: compared with signed ones, Json takes those from 2^63 on as negative.
    if (!id.is_number_unsigned() || std::cmp_greater(id.get<std::uint64_t>(), kMaxId))
      fields.fail(kName, "a token id or a list of them");
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

namespace {

/// Says which settings would change what is written elsewhere and do not here. What callers choose
/// by options of their own (sampling, lengths) is not among them.
void warn_of_settings_without_effect(const JsonFields& fields) {
  const std::pair<const char*, double> kSettings[] = {{"repetition_penalty", 1},
                                                      {"no_repeat_ngram_size", 0},
                                                      {"encoder_no_repeat_ngram_size", 0},
                                                      {"encoder_repetition_penalty", 1},
                                                      {"suppress_tokens", 0},
                                                      {"begin_suppress_tokens", 0},
                                                      {"bad_words_ids", 0},
                                                      {"sequence_bias", 0},
                                                      {"forced_bos_token_id", -1},
                                                      {"forced_eos_token_id", -1},
                                                      {"min_length", 0},
                                                      {"min_new_tokens", 0}};
  std::string names;
  for (const auto& [name, without] : kSettings) {
    const Json* value = fields.find(name);
    if (value == nullptr || value->is_null() || (value->is_number() && *value == without) ||
        (value->is_structured() && value->empty()))
      continue;
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  if (!names.empty())
    log_warn("{}: without effect here: {}; texts are written by the caller's options alone",
             fields.where(), names);
}

}  // namespace

void read_generation_config(const std::string& folder, std::vector<std::int32_t>* end_tokens) {
  const std::string generation = folder + "/generation_config.json";
  if (!file_exists(generation)) return;
  const Json json = read_json_file(generation, kMaxConfigBytes);
  const JsonFields fields(json, generation);
  warn_of_settings_without_effect(fields);
  if (fields.has("eos_token_id")) *end_tokens = read_end_tokens(fields);
}

}  // namespace stof::model
