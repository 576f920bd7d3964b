#pragma once
// An encoder-decoder that reads texts and writes others, on the CPU in float32 or on a GPU in 16
// bits.

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "model/decoder_sequences.h"
#include "model/seq2seq_model.h"
#include "stof/load_options.h"

namespace stof::model {

/// What sessions are made for.
struct Seq2SeqSizes {
  std::int64_t cross_cache = 0;  ///< rows of all texts that are read, in whole pages
  std::int64_t cache = 0;        ///< rows of all that is written
  std::int64_t head_rows = 1;    ///< logits of so many rows at most
};

/// Both graphs of a model with caches in common: the encoder's stores what the decoder's reads.
class Seq2SeqSession {
 public:
  virtual ~Seq2SeqSession() = default;
  /// Reads texts; returns what the encoder made of them, float32 [rows, hidden], if `wanted`.
  virtual Tensor encode(const exec::Batch& batch, bool wanted, exec::RunTiming* timing) = 0;
  virtual DecoderSession& decoder() = 0;
};

/// DecoderSession::move_rows() of such sessions, whose decoder sees all that it has written. Throws
/// Internal.
[[noreturn]] void refuse_to_move_rows();

/// Weights where they compute, and the sessions that run on them.
class Seq2SeqPlace {
 public:
  virtual ~Seq2SeqPlace() = default;
  /// "CPU, float32" or "NVIDIA H200, bfloat16"
  virtual std::string describe() const = 0;
  virtual std::unique_ptr<Seq2SeqSession> open(const Seq2SeqSizes& sizes) const = 0;
};

/// The decoder of an encoder-decoder, whose sequences have no last position.
class Seq2SeqDecoder final : public DecoderModel {
 public:
  explicit Seq2SeqDecoder(const Seq2SeqModel& model);

  graph::Graph graph(std::int64_t rows, DType dtype,
                     const DecoderGraphOptions& options) const override;
  GraphWeights weights(const graph::Graph& graph) const override;
  std::vector<mask::Mask> masks(const mask::Mask& also) const override;

 private:
  const Seq2SeqModel& model_;
};

/// Safe from several threads. Sessions are kept from text to text.
class Seq2Seq {
 public:
  /// As Decoder.
  explicit Seq2Seq(std::unique_ptr<const Seq2SeqModel> model, const LoadOptions& options = {});

  const Seq2SeqFacts& facts() const { return model_->facts(); }
  std::string place() const { return place_->describe(); }
  /// Why Place::kAuto did not take the GPU that the machine has; else empty.
  const std::string& place_note() const { return place_note_; }

  /// Texts and what is written for each, with the session that they run in, which goes back to the
  /// model afterwards. For one thread at a time.
  class Lease {
   public:
    /// Reads all texts, as many as start() was told, each attending to itself alone where `mask`
    /// shows it, which may have rules for the encoder's layers and heads: once, before forward().
    /// Uses the threads of the calling thread's ThreadScope.
    /// Throws InvalidArgument naming the first token that the model does not know, and what the
    /// mask's check() does. Returns what the encoder made of them, float32 [tokens of all, hidden],
    /// if `wanted`.
    Tensor encode(const std::vector<std::span<const std::int32_t>>& texts,
                  const mask::MaskSet& mask, exec::RunTiming& timing, bool wanted = false);
    /// New tokens of what is written, as DecoderSequences::forward().
    Tensor forward(const std::vector<DecoderSequences::Part>& parts, exec::RunTiming& timing) {
      return sequences_.forward(parts, timing);
    }
    ~Lease();
    Lease(const Lease&) = delete;

   private:
    friend Seq2Seq;
    struct Kept {
      Seq2SeqSizes sizes;
      std::unique_ptr<Seq2SeqSession> session;
    };
    Lease(const Seq2Seq& model, std::unique_ptr<Kept> kept, std::int64_t count,
          std::int64_t most_written);
    void encode_some(const std::vector<std::span<const std::int32_t>>& texts, std::size_t first,
                     std::size_t last, const graph::CachePages& pages, const LayerMasks& masks,
                     exec::RunTiming& timing, Tensor* result);

    const Seq2Seq& model_;
    std::unique_ptr<Kept> kept_;
    DecoderSequences sequences_;
  };
  /// For texts of these lengths, at most `written` tokens to be written for each. `logit_rows`: as
  /// of SequencesOptions.
  Lease start(const std::vector<std::int64_t>& lengths, std::int64_t written,
              std::int64_t logit_rows = 0) const;

 private:
  std::unique_ptr<const Seq2SeqModel> model_;
  Seq2SeqDecoder decoder_;
  std::vector<int> masks_of_layers_;  ///< the encoder's
  std::unique_ptr<const Seq2SeqPlace> place_;
  std::string place_note_;
  mutable std::mutex mutex_;
  mutable std::list<std::unique_ptr<Lease::Kept>> idle_;  ///< guarded; used last comes first
};

}  // namespace stof::model
