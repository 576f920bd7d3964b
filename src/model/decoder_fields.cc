#include "model/decoder_fields.h"

#include <utility>

#include "core/file.h"

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

void read_generation_config(const std::string& folder, std::vector<std::int32_t>* end_tokens) {
  const std::string generation = folder + "/generation_config.json";
  if (!file_exists(generation)) return;
  const Json json = read_json_file(generation, kMaxConfigBytes);
  const JsonFields fields(json, generation);
  if (fields.has("eos_token_id")) *end_tokens = read_end_tokens(fields);
}

}  // namespace stof::model
