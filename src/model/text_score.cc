#include "model/text_score.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <span>

#include "backend/cpu/attention/pruned.h"
#include "backend/cpu/thread_scope.h"
#include "core/check.h"
#include "core/threads.h"
#include "model/pruning.h"

namespace stof {

double TextScore::perplexity() const {
  return std::exp(-log_likelihood / static_cast<double>(num_scored));
}

namespace model {
namespace {

/// Of one token by the logits of the one before it.
double log_likelihood_of(std::span<const float> logits, std::int32_t id) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return logits[static_cast<std::size_t>(id)] - largest - std::log(sum);
}

/// Reads ids [begin, end) and scores those from `from` on.
class WindowScorer {
 public:
  WindowScorer(const Decoder& decoder, const std::vector<std::int32_t>& ids,
               const ScoreOptions& options, std::int64_t length)
      : decoder_(decoder), ids_(ids), options_(options), chunk_(std::min(options.chunk, length)) {}

  void run(std::int64_t begin, std::int64_t end, std::int64_t from, TextScore& score) const {
    auto sequence = decoder_.start(
        {.tokens = end - begin, .chunk = chunk_, .mask = options_.mask, .logit_rows = chunk_});
    exec::RunTiming timing;
    for (std::int64_t at = begin; at < end; at += chunk_) {
      const std::int64_t count = std::min(chunk_, end - at);
      // Row `at + i` tells of token at + i + 1; one row at least is computed.
      const std::int64_t skipped = std::clamp<std::int64_t>(from - 1 - at, 0, count - 1);
      const std::int64_t rows = count - skipped;
      const Tensor logits = sequence->forward({{0, part(at, count), rows}}, timing);
      read(logits, at + skipped + 1, from, std::min(at + count + 1, end), score);
      if (options_.progress && at + count >= from)
        options_.progress(at + count, static_cast<std::int64_t>(ids_.size()));
    }
  }

 private:
  std::span<const std::int32_t> part(std::int64_t at, std::int64_t count) const {
    return std::span(ids_).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(count));
  }

  /// Row i of the logits tells of token first + i; those from `from` up to `end` are scored.
  void read(const Tensor& logits, std::int64_t first, std::int64_t from, std::int64_t end,
            TextScore& score) const {
    const auto width = static_cast<std::size_t>(decoder_.facts().vocab_size);
    const std::int64_t begin = std::max(first, from);
#pragma omp parallel for schedule(static)
    for (std::int64_t i = begin; i < end; ++i)
      score.log_likelihoods[static_cast<std::size_t>(i)] = static_cast<float>(log_likelihood_of(
          logits.as<float>().subspan(static_cast<std::size_t>(i - first) * width, width),
          ids_[static_cast<std::size_t>(i)]));
  }

  const Decoder& decoder_;
  const std::vector<std::int32_t>& ids_;
  const ScoreOptions& options_;
  std::int64_t chunk_;
};

}  // namespace

TextScore score_text(const Decoder& decoder, const std::vector<std::int32_t>& ids,
                     const ScoreOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const std::int64_t most = decoder.most_tokens(options.mask);
  const auto count = static_cast<std::int64_t>(ids.size());
  STOF_CHECK(options.window == 0 || (options.window >= 2 && options.window <= most),
             kInvalidArgument,
             "window: expected 0 (as many tokens as the model takes) or from 2 to {}, got {}", most,
             options.window);
  const std::int64_t window = options.window > 0 ? options.window : most;
  STOF_CHECK(options.stride >= 0 && options.stride <= window, kInvalidArgument,
             "stride: expected 0 (the window's length) or from 1 to {}, got {}", window,
             options.stride);
  const std::int64_t stride = options.stride > 0 ? options.stride : window;
  STOF_CHECK(options.chunk >= 1, kInvalidArgument, "chunk: expected at least 1, got {}",
             options.chunk);
  check_num_threads(options.num_threads);
  for (std::int64_t i = 0; i < count; ++i)
    STOF_CHECK(ids[static_cast<std::size_t>(i)] >= 0 &&
                   ids[static_cast<std::size_t>(i)] < decoder.facts().vocab_size,
               kInvalidArgument, "token {}: expected an id below {}, got {}", i,
               decoder.facts().vocab_size, ids[static_cast<std::size_t>(i)]);
  if (options.prune) check_pruning(*options.prune, decoder.place(), decoder.facts().num_heads);
  const cpu::ThreadScope threads(options.num_threads);
  const cpu::PruneScope pruning(options.prune ? &*options.prune : nullptr);
  TextScore score;
  score.log_likelihoods.assign(ids.size(), std::numeric_limits<float>::quiet_NaN());
  const WindowScorer scorer(decoder, ids, options,
                            std::min(window, std::max<std::int64_t>(count, 1)));
  std::int64_t scored = 0;  // tokens up to here
  for (std::int64_t begin = 0; scored < count; begin += stride) {
    const std::int64_t end = std::min(begin + window, count);
    const std::int64_t from = std::max(scored, begin + 1);
    scorer.run(begin, end, from, score);
    for (std::int64_t i = from; i < end; ++i)
      score.log_likelihood += score.log_likelihoods[static_cast<std::size_t>(i)];
    score.num_scored += std::max<std::int64_t>(end - from, 0);
    scored = end;
  }
  score.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return score;
}

}  // namespace model
}  // namespace stof
