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
  std::int64_t tokens = 0;  ///< at most, of each; or as many as the model has positions
  mask::MaskSet mask = {};  ///< & the model's own
  bool all_rows = false;    ///< logits of all tokens, not of the last of each part alone
};

/// Weights where they compute, and the sessions that run on them.
class DecoderPlace {
 public:
  virtual ~DecoderPlace() = default;
  /// "CPU, float32" or "NVIDIA H200, bfloat16"
  virtual std::string describe() const = 0;
  /// A session with caches of `cache_size` rows; logits of `head_rows` rows at most, 0: of all.
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
          LayerMasks masks, std::int64_t most_tokens);
    const Decoder& decoder_;
    std::unique_ptr<Kept> kept_;
    DecoderSequences sequences_;
  };
  /// The user's mask may have rules for layers and heads of the model. Throws what its check()
  /// does.
  Lease start(const SequencesOptions& options) const;

 private:
  std::unique_ptr<const DecoderModel> model_;
  std::unique_ptr<const DecoderPlace> place_;
  std::string place_note_;
  std::vector<int> masks_of_layers_;
  mutable std::mutex mutex_;
  mutable std::list<std::unique_ptr<Lease::Kept>> idle_;  ///< guarded; used last comes first
};

}  // namespace stof::model
