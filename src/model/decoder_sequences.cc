#include "model/decoder_sequences.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace stof::model {

DecoderSequences::DecoderSequences(const DecoderModel& model, DecoderSession& session,
                                   std::int64_t count, const CacheRows& rows, LayerMasks masks)
    : model_(model),
      session_(session),
      rows_(rows),
      masks_(std::move(masks)),
      lengths_(static_cast<std::size_t>(count)),
      dropped_(static_cast<std::size_t>(count)) {
  STOF_ASSERT(rows.each % kCachePage == 0);
}

std::optional<mask::Reach> reach_of(const LayerMasks& masks) {
  mask::Reach all;
  for (const mask::Mask& mask : masks.masks) {
    const std::optional<mask::Reach> one = mask::reach_of(mask);
    if (!one) return std::nullopt;
    all.window = std::max(all.window, one->window);
    all.sinks = std::max(all.sinks, one->sinks);
  }
  return all;
}

std::int64_t rows_within(const mask::Reach& reach, std::int64_t chunk) {
  // The first keys, the window from the page on in which it begins, and a page to spare, so that
  // rows move once in so many tokens.
  return page_ceil(reach.sinks) + page_ceil(reach.window) + 2 * kCachePage + page_ceil(chunk);
}

void DecoderSequences::give_back(std::int64_t sequence) {
  if (!rows_.reach) return;
  const std::int64_t first = page_ceil(rows_.reach->sinks);
  const std::int64_t last =
      (kept(sequence) - rows_.reach->window) / kCachePage * kCachePage;  // of the caches' rows
  if (last <= first) return;
  const std::int64_t base = sequence * rows_.each;
  session_.move_rows(base + first, base + last, kept(sequence) - last);
  dropped_[static_cast<std::size_t>(sequence)] += last - first;
}

void DecoderSequences::check(const Part& part) const {
  const auto rows = static_cast<std::int64_t>(part.ids.size());
  const std::int64_t first = length(part.sequence);
  const DecoderFacts& facts = model_.facts();
  STOF_CHECK(rows >= 1, kInvalidArgument, "tokens: expected at least one, got none");
  STOF_CHECK(first + rows <= rows_.most_tokens, kInvalidArgument,
             "tokens: expected at most {} in all, the positions this model knows, got {}",
             rows_.most_tokens, first + rows);
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
  batch.cross_cache.page_size = cross_.page_size;
  std::vector<std::int32_t> ids, head_rows, positions;
  for (const Part& part : parts) {
    check(part);
    const auto rows = static_cast<std::int64_t>(part.ids.size());
    if (kept(part.sequence) + rows > rows_.each) give_back(part.sequence);
    STOF_ASSERT(kept(part.sequence) + rows <= rows_.each);
    ids.insert(ids.end(), part.ids.begin(), part.ids.end());
    STOF_ASSERT(part.logits >= 1 && part.logits <= rows);
    for (std::int64_t i = part.logits; i > 0; --i)
      head_rows.push_back(static_cast<std::int32_t>(static_cast<std::int64_t>(ids.size()) - i));
    batch.offsets.push_back(batch.offsets.back() + rows);
    batch.cache.lengths.push_back(kept(part.sequence) + rows);
    for (std::int64_t i = 0; i < rows; ++i)
      positions.push_back(static_cast<std::int32_t>(length(part.sequence) + i));
    std::vector<std::int32_t>& pages = batch.cache.pages.emplace_back();
    for (std::int64_t key = 0; key < batch.cache.lengths.back(); key += kCachePage)
      pages.push_back(static_cast<std::int32_t>(part.sequence * pages_each() + key / kCachePage));
    if (cross_.page_size > 0) {
      const auto sequence = static_cast<std::size_t>(part.sequence);
      batch.cross_cache.pages.push_back(cross_.pages[sequence]);
      batch.cross_cache.lengths.push_back(cross_.lengths[sequence]);
    }
  }
  masks_.bind(batch);
  const std::vector<std::int32_t> slots = batch.cache.slots(batch.offsets);
  const auto add = [&](const char* name, const std::vector<std::int32_t>& values) {
    batch.inputs.emplace_back(
        name, TensorView(values.data(), DType::kInt32, {static_cast<std::int64_t>(values.size())}));
  };
  add("ids", ids);
  add("positions", positions);
  add("slots", slots);
  add("head_rows", head_rows);
  Tensor logits = session_.run(batch, &timing);
  for (std::size_t i = 0; i < parts.size(); ++i)
    lengths_[static_cast<std::size_t>(parts[i].sequence)] +=
        static_cast<std::int64_t>(parts[i].ids.size());
  return logits;
}

}  // namespace stof::model
