#pragma once
// Sequences of tokens that a decoder reads step by step, with keys and values in caches.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "exec/batch.h"
#include "model/decoder_model.h"
#include "model/layer_masks.h"
#include "stof/tensor.h"

namespace stof::model {

/// A session of a model's graph with caches, wherever it runs.
class DecoderSession {
 public:
  virtual ~DecoderSession() = default;
  /// Logits of the rows that the batch picks, float32 [rows, vocabulary].
  virtual Tensor run(const exec::Batch& batch, exec::RunTiming* timing) = 0;
};

/// Rows of a page of the caches: the most that the GPU's decode kernel takes.
inline constexpr std::int64_t kCachePage = 256;

/// Several sequences, each with a span of a session's caches of its own. For one thread at a time.
class DecoderSequences {
 public:
  /// `session` has room for `count` times `most_tokens`, a multiple of kCachePage, and computes
  /// logits of all rows, or of as many rows as there are sequences, by a graph that
  /// with_layer_masks() made. Both outlive this.
  DecoderSequences(const DecoderModel& model, DecoderSession& session, std::int64_t count,
                   std::int64_t most_tokens, LayerMasks masks, bool all_rows);

  /// Tokens of a sequence so far.
  std::int64_t length(std::int64_t sequence) const {
    return lengths_[static_cast<std::size_t>(sequence)];
  }

  /// New tokens of a sequence.
  struct Part {
    std::int64_t sequence;
    std::span<const std::int32_t> ids;  ///< at least one
  };
  /// Reads new tokens, at most one part a sequence, in ascending order. Returns float32 logits
  /// [parts, vocabulary] of the last token of each, or of all tokens. A token sees itself and those
  /// before that its layer's mask shows, in positions of its whole sequence. Uses the threads of
  /// the calling thread's ThreadScope. Throws InvalidArgument naming the first token that the model
  /// does not know, or positions past the last; the sequences are then as before.
  Tensor forward(const std::vector<Part>& parts, exec::RunTiming& timing);

 private:
  void check(const Part& part) const;

  const DecoderModel& model_;
  DecoderSession& session_;
  std::int64_t pages_each_;
  LayerMasks masks_;
  bool all_rows_;
  std::vector<std::int64_t> lengths_;
};

}  // namespace stof::model
