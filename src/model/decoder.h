#pragma once
// A decoder that reads sequences of tokens, on the CPU in float32 or on a GPU in 16 bits.

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "model/decoder_model.h"
#include "model/decoder_sequences.h"
#include "stof/load_options.h"

namespace stof::model {

/// Sequences that a decoder is to read.
struct SequencesOptions {
  std::int64_t count = 1;
  std::int64_t tokens = 0;  ///< at most, of each; or Decoder::most_tokens()
  std::int64_t chunk = 0;   ///< at most, of a part; 0: all its tokens
  mask::MaskSet mask = {};  ///< & the model's own
  /// Most logits of a pass (Part::logits of all parts together); 0: one of each sequence.
  std::int64_t logit_rows = 0;
};

/// Weights where they compute, and the sessions that run on them.
class DecoderPlace {
 public:
  virtual ~DecoderPlace() = default;
  /// "CPU, float32" or "NVIDIA H200, bfloat16"
  virtual std::string describe() const = 0;
  /// A session with caches of `cache_size` rows; logits of `head_rows` rows at most.
  virtual std::unique_ptr<DecoderSession> open(std::int64_t cache_size,
                                               std::int64_t head_rows) const = 0;
};

/// Safe from several threads. Sessions are kept from sequence to sequence.
class Decoder {
 public:
  /// Throws what reading the weights does, Unsupported for a dtype that the place does not compute
  /// in, with Place::kCuda also what of a GPU is missing or what it cannot run.
  explicit Decoder(std::unique_ptr<const DecoderModel> model, const LoadOptions& options = {});

  const DecoderFacts& facts() const { return model_->facts(); }
  std::string place() const { return place_->describe(); }
  /// Why Place::kAuto did not take the GPU that the machine has; else empty.
  const std::string& place_note() const { return place_note_; }

  /// DecoderSequences and the session that they run in, which goes back to the decoder afterwards.
  class Lease {
   public:
    DecoderSequences& operator*() { return sequences_; }
    DecoderSequences* operator->() { return &sequences_; }
    ~Lease();
    Lease(const Lease&) = delete;

   private:
    friend Decoder;
    struct Kept {
      std::int64_t cache_size, head_rows;
      std::unique_ptr<DecoderSession> session;
    };
    Lease(const Decoder& decoder, std::unique_ptr<Kept> kept, const SequencesOptions& options,
          LayerMasks masks, const CacheRows& rows);
    const Decoder& decoder_;
    std::unique_ptr<Kept> kept_;
    DecoderSequences sequences_;
  };
  /// Tokens that a sequence may have: as many as the model has positions. Where they are no table
  /// and all layers see windows and first keys alone, positions go on. Throws what start() does.
  std::int64_t most_tokens(const mask::MaskSet& mask) const;

  /// Caches have room for all tokens, or where all layers see windows and first keys alone, for
  /// these. Throws what the mask's check() does.
  Lease start(const SequencesOptions& options) const;

 private:
  LayerMasks masks(const mask::MaskSet& also) const;

  std::unique_ptr<const DecoderModel> model_;
  std::unique_ptr<const DecoderPlace> place_;
  std::string place_note_;
  std::vector<int> masks_of_layers_;
  mutable std::mutex mutex_;
  mutable std::list<std::unique_ptr<Lease::Kept>> idle_;  ///< guarded; used last comes first
};

}  // namespace stof::model
