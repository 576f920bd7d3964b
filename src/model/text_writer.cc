#include "model/text_writer.h"

#include <algorithm>

#include "core/check.h"
#include "core/threads.h"

namespace stof::model {

void check_generate_options(const GenerateOptions& options) {
  STOF_CHECK(options.max_tokens >= 1, kInvalidArgument, "max_tokens: expected at least 1, got {}",
             options.max_tokens);
  STOF_CHECK(options.prefill_chunk >= 1, kInvalidArgument,
             "prefill_chunk: expected at least 1, got {}", options.prefill_chunk);
  check_num_threads(options.num_threads);
}

TextWriter::TextWriter(const SubwordTokenizer& tokenizer, const GenerateOptions& options,
                       bool begins_text)
    : tokenizer_(tokenizer),
      options_(options),
      sampler_({options.temperature, options.top_k, options.top_p, options.seed}),
      stop_(options.stop),
      stream_(tokenizer, begins_text) {}

bool TextWriter::next(std::span<const float> logits, const std::vector<std::int32_t>& end_tokens,
                      bool last) {
  const std::int32_t id = sampler_.next(logits);
  result.ids.push_back(id);
  if (std::find(end_tokens.begin(), end_tokens.end(), id) != end_tokens.end())
    return end(StopReason::kEndToken);
  // A model may have more logits than its tokenizer has tokens.
  if (tokenizer_.contains(id)) emit(stop_.push(stream_.push(id)));
  if (stop_.stopped()) return end(StopReason::kStopString);
  if (static_cast<std::int64_t>(result.ids.size()) == options_.max_tokens)
    return end(StopReason::kMaxTokens);
  return !last || end(StopReason::kPositions);
}

bool TextWriter::end(StopReason reason) {
  result.reason = reason;
  emit(stop_.push(stream_.finish()));
  emit(stop_.finish());
  return false;
}

void TextWriter::emit(const std::string& text) {
  result.text += text;
  if (options_.on_text && !text.empty()) options_.on_text(text);
}

}  // namespace stof::model
