#include "model/decoder_sequences.h"

#include <utility>

#include "core/check.h"

namespace stof::model {

DecoderSequences::DecoderSequences(const DecoderModel& model, DecoderSession& session,
                                   std::int64_t count, std::int64_t most_tokens, LayerMasks masks,
                                   bool all_rows)
    : model_(model),
      session_(session),
      pages_each_(most_tokens / kCachePage),
      masks_(std::move(masks)),
      all_rows_(all_rows),
      lengths_(static_cast<std::size_t>(count)) {
  STOF_ASSERT(most_tokens % kCachePage == 0);
}

void DecoderSequences::check(const Part& part) const {
  const auto rows = static_cast<std::int64_t>(part.ids.size());
  const std::int64_t first = length(part.sequence);
  const DecoderFacts& facts = model_.facts();
  STOF_CHECK(rows >= 1, kInvalidArgument, "tokens: expected at least one, got none");
  STOF_CHECK(first + rows <= facts.max_positions, kInvalidArgument,
             "tokens: expected at most {} in all, the positions this model knows, got {}",
             facts.max_positions, first + rows);
  STOF_ASSERT(first + rows <= pages_each_ * kCachePage);
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int32_t id = part.ids[static_cast<std::size_t>(i)];
    STOF_CHECK(id >= 0 && id < facts.vocab_size, kInvalidArgument,
               "token {}: expected an id below {}, got {}", first + i, facts.vocab_size, id);
  }
}

Tensor DecoderSequences::forward(const std::vector<Part>& parts, exec::RunTiming& timing) {
  exec::Batch batch;
  batch.offsets = {0};
  batch.cache.page_size = kCachePage;
  std::vector<std::int32_t> ids, last_rows;
  for (const Part& part : parts) {
    check(part);
    const auto rows = static_cast<std::int64_t>(part.ids.size());
    ids.insert(ids.end(), part.ids.begin(), part.ids.end());
    last_rows.push_back(static_cast<std::int32_t>(ids.size()) - 1);
    batch.offsets.push_back(batch.offsets.back() + rows);
    batch.cache.lengths.push_back(length(part.sequence) + rows);
    std::vector<std::int32_t>& pages = batch.cache.pages.emplace_back();
    for (std::int64_t key = 0; key < batch.cache.lengths.back(); key += kCachePage)
      pages.push_back(static_cast<std::int32_t>(part.sequence * pages_each_ + key / kCachePage));
  }
  masks_.bind(batch);
  const std::vector<std::int32_t> positions = batch.cache.positions(batch.offsets);
  const std::vector<std::int32_t> slots = batch.cache.slots(batch.offsets);
  const auto add = [&](const char* name, const std::vector<std::int32_t>& values) {
    batch.inputs.emplace_back(
        name, TensorView(values.data(), DType::kInt32, {static_cast<std::int64_t>(values.size())}));
  };
  add("ids", ids);
  add("positions", positions);
  add("slots", slots);
  if (!all_rows_) add("head_rows", last_rows);
  Tensor logits = session_.run(batch, &timing);
  for (std::size_t i = 0; i < parts.size(); ++i)
    lengths_[static_cast<std::size_t>(parts[i].sequence)] = batch.cache.lengths[i];
  return logits;
}

}  // namespace stof::model
