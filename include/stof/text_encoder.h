#pragma once
// TextEncoder: a BERT, RoBERTa, DistilBERT or ModernBERT checkpoint folder in, token or sentence
// embeddings out.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stof/load_options.h"
#include "stof/mask_set.h"
#include "stof/prune.h"
#include "stof/tensor.h"

namespace stof {

/// What the tokenizer made of one text.
struct EncodedText {
  std::vector<std::int32_t> ids;  ///< with the special tokens
  std::vector<std::string> tokens;
  bool truncated = false;
};

struct EncodeOptions {
  /// Combined by & with the model's own (each text sees only itself); layers and heads may have
  /// masks of their own. Sequence lengths are those of the tokenized text.
  mask::MaskSet mask;
  std::int64_t max_tokens = 0;  ///< 0 = the checkpoint's own limit; longer texts are cut
  std::int64_t batch = 32;      ///< texts per forward pass, packed without padding
  int num_threads = 0;          ///< 0 = all
  /// Whether embed() scales vectors to length 1; default: as the checkpoint says.
  std::optional<bool> normalize;
  /// Attention under what a pruner leaves of each layer's mask (docs/pruning.md); on the CPU.
  std::optional<mask::PruneOptions> prune = {};
  /// Called after each batch with (texts done, texts in all).
  std::function<void(std::int64_t, std::int64_t)> progress;
};

/// A token that may stand where a text has a mask.
struct TokenCandidate {
  std::int32_t id = 0;
  std::string token;      ///< as the vocabulary spells it: "\u0120the"
  std::string text;       ///< as it stands in a text: " the"
  float probability = 0;  ///< among all tokens
};

/// One mask token of a text.
struct FilledMask {
  std::int64_t position = 0;               ///< among the text's tokens
  std::vector<TokenCandidate> candidates;  ///< likeliest first
};

/// Wall time of the parts of the last call, seconds. `attention` is 0 on a GPU, where operators are
/// not waited for one by one.
struct EncodeTiming {
  double tokenize = 0, plan = 0, attention = 0, total = 0;
};

/// An encoder loaded from an ordinary Hugging Face folder: config.json, model.safetensors (or a
/// sharded index), vocab.txt or tokenizer.json, and sentence-transformers' pooling files if there.
/// Immutable after load; safe from several threads.
class TextEncoder {
 public:
  /// Throws NotFound, Corrupt or Unsupported naming file, field or tensor, expected and got; with
  /// Place::kCuda also what of a GPU is missing and what to install.
  static TextEncoder load(const std::string& folder, const LoadOptions& options = {});

  std::int64_t hidden_size() const;
  std::int64_t num_layers() const;
  std::int64_t num_heads() const;
  std::int64_t max_tokens() const;
  std::string describe() const;
  /// "CPU, float32" or "NVIDIA H200, float16"
  std::string place() const;
  /// Why Place::kAuto did not take the GPU that the machine has; else empty.
  std::string place_note() const;

  EncodedText tokenize(const std::string& text, std::int64_t max_tokens = 0) const;

  /// Pooled (and normalised, where the options or the checkpoint say so) embeddings: float32
  /// [texts, hidden].
  Tensor embed(const std::vector<std::string>& texts, const EncodeOptions& options = {},
               EncodeTiming* timing = nullptr) const;

  /// Last hidden states, one float32 [tokens, hidden] per text.
  std::vector<Tensor> encode_tokens(const std::vector<std::string>& texts,
                                    const EncodeOptions& options = {},
                                    EncodeTiming* timing = nullptr) const;

  /// What may stand for the mask tokens ("[MASK]", "<mask>") of each text: the `count` likeliest
  /// tokens by the checkpoint's masked-LM head, which is read at the first call and computed in
  /// float32 on the CPU. Throws NotFound or Corrupt naming the tensor where the checkpoint has no
  /// such head, InvalidArgument for a text without a mask token among the tokens that are read.
  std::vector<std::vector<FilledMask>> fill_mask(const std::vector<std::string>& texts,
                                                 std::int64_t count = 5,
                                                 const EncodeOptions& options = {},
                                                 EncodeTiming* timing = nullptr) const;

  struct Impl;
  explicit TextEncoder(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<const Impl> impl_;
};

}  // namespace stof
