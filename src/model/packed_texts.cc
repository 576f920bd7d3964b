#include "core/check.h"
#include "model/bert_graph.h"
#include "model/encoder.h"

namespace stof::model {

void PackedTexts::add(std::span<const std::int32_t> text_ids, std::int32_t padding_id) {
  if (offsets.empty()) offsets.push_back(0);
  ids.insert(ids.end(), text_ids.begin(), text_ids.end());
  std::int32_t next = padding_id + 1;
  for (const std::int32_t id : text_ids)
    positions.push_back(padding_id >= 0 && id == padding_id ? padding_id : next++);
  offsets.push_back(num_tokens());
}

void PackedTexts::validate(const BertConfig& config) const {
  for (std::size_t t = 0; t < ids.size(); ++t)
    STOF_CHECK(ids[t] >= 0 && ids[t] < config.vocab_size && positions[t] >= 0 &&
                   positions[t] < config.position_rows(),
               kInvalidArgument,
               "token {}: expected an id below {} at a position below {}, got {} at {}", t,
               config.vocab_size, config.position_rows(), ids[t], positions[t]);
}

exec::Batch PackedTexts::batch(const mask::MaskSet& mask, const BertConfig& config) const {
  const Dims rows = {num_tokens()};
  exec::Batch batch;
  batch.inputs = {{"ids", {ids.data(), DType::kInt32, rows}},
                  {"positions", {positions.data(), DType::kInt32, rows}}};
  batch.offsets = offsets;
  bert_layer_masks(config, mask).bind(batch);
  return batch;
}

}  // namespace stof::model
