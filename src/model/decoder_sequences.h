#pragma once
// Sequences of tokens that a decoder reads step by step, with keys and values in caches.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "exec/batch.h"
#include "mask/reach.h"
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
  /// Rows from .. from + count of all caches to `to` and on, which is below `from`.
  virtual void move_rows(std::int64_t to, std::int64_t from, std::int64_t count) = 0;
};

/// Rows of a page of the caches: the most that the GPU's decode kernel takes.
inline constexpr std::int64_t kCachePage = 256;

inline std::int64_t page_ceil(std::int64_t rows) {
  return (rows + kCachePage - 1) / kCachePage * kCachePage;
}

/// What is kept of each sequence.
struct CacheRows {
  std::int64_t each = 0;         ///< rows of the caches, a multiple of kCachePage
  std::int64_t most_tokens = 0;  ///< of a sequence
  /// Where all layers see windows and first keys alone: pages that no later token sees are given
  /// back. Else `each` holds all tokens.
  std::optional<mask::Reach> reach;
};

/// Of all masks together; none where one sees keys however far behind.
std::optional<mask::Reach> reach_of(const LayerMasks& masks);

/// Rows that hold what such masks see, with parts of at most `chunk` tokens.
std::int64_t rows_within(const mask::Reach& reach, std::int64_t chunk);

/// Several sequences, each with a span of a session's caches of its own. For one thread at a time.
class DecoderSequences {
 public:
  /// `session` has room for `count` times `rows.each` and for as many logits as are asked for, by a
  /// graph with head_rows that with_layer_masks() made. Both outlive this.
  DecoderSequences(const DecoderModel& model, DecoderSession& session, std::int64_t count,
                   const CacheRows& rows, LayerMasks masks);

  /// Of an encoder-decoder: where the keys are that each sequence attends to besides its own.
  void set_cross(graph::CachePages pages) { cross_ = std::move(pages); }

  /// Tokens of a sequence so far.
  std::int64_t length(std::int64_t sequence) const {
    return lengths_[static_cast<std::size_t>(sequence)];
  }
  /// Pages of the caches that hold keys and values of a sequence, and that it has room for.
  std::int64_t pages_in_use(std::int64_t sequence) const {
    return page_ceil(kept(sequence)) / kCachePage;
  }
  std::int64_t pages_each() const { return rows_.each / kCachePage; }

  /// New tokens of a sequence.
  struct Part {
    std::int64_t sequence;
    std::span<const std::int32_t> ids;  ///< at least one
    std::int64_t logits = 1;            ///< of so many of them, the last ones
  };
  /// Reads new tokens, at most one part a sequence, in ascending order. Returns float32 logits of
  /// the tokens that the parts ask for, [tokens, vocabulary]. A token sees itself and those
  /// before that its layer's mask shows, in positions of its whole sequence. Uses the threads of
  /// the calling thread's ThreadScope. Throws InvalidArgument naming the first token that the model
  /// does not know, or positions past the last; the sequences are then as before.
  Tensor forward(const std::vector<Part>& parts, exec::RunTiming& timing);

 private:
  void check(const Part& part) const;
  std::int64_t kept(std::int64_t sequence) const {
    return length(sequence) - dropped_[static_cast<std::size_t>(sequence)];
  }
  /// Gives the pages back that no token from length() on sees: what lies behind them moves up, so
  /// that a sequence's rows stay one behind the other.
  void give_back(std::int64_t sequence);

  const DecoderModel& model_;
  DecoderSession& session_;
  CacheRows rows_;
  LayerMasks masks_;
  std::vector<std::int64_t> lengths_;
  std::vector<std::int64_t> dropped_;  ///< tokens of each that the caches hold no more
  graph::CachePages cross_;
};

}  // namespace stof::model
