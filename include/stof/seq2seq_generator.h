#pragma once
// Seq2SeqGenerator: a T5 checkpoint in, text that a text is turned into out: translations,
// summaries, answers.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "stof/load_options.h"
#include "stof/tensor.h"
#include "stof/text_generator.h"

namespace stof {

/// What a checkpoint says of a task that it was trained for (task_specific_params of config.json).
struct Seq2SeqTask {
  std::string name;             ///< "summarization", "translation_en_to_de"
  std::string prefix;           ///< stands in front of the text: "summarize: "
  std::int64_t max_tokens = 0;  ///< at most so many are written; 0: not said
};

/// An encoder-decoder loaded from a Hugging Face folder (config.json, model.safetensors or a
/// sharded index, tokenizer.json or spiece.model): T5, FLAN-T5, mT5. Immutable after load; safe
/// from several threads.
class Seq2SeqGenerator {
 public:
  /// Throws NotFound, Corrupt or Unsupported naming file, field or tensor, expected and got; with
  /// Place::kCuda also what of a GPU is missing and what to install. `tuning` plays no part yet.
  static Seq2SeqGenerator load(const std::string& folder, const LoadOptions& options = {});

  std::int64_t encoder_layers() const;
  std::int64_t decoder_layers() const;
  std::int64_t num_heads() const;
  std::int64_t hidden_size() const;
  std::int64_t vocab_size() const;
  std::string describe() const;
  /// "CPU, float32" or "NVIDIA H200, bfloat16"
  std::string place() const;
  /// Why Place::kAuto did not take the GPU that the machine has; else empty.
  std::string place_note() const;

  /// The checkpoint's tasks by name; empty where it says none.
  std::vector<Seq2SeqTask> tasks() const;
  /// The task of translating from one language to another: the checkpoint's, else T5's words for
  /// it. Languages are English names ("German"), or codes that the checkpoint's tasks name or are
  /// among T5's own: en, de, fr, ro. Throws InvalidArgument for another code.
  Seq2SeqTask translation(const std::string& source, const std::string& target) const;
  /// The checkpoint's, else T5's "summarize: ".
  Seq2SeqTask summary() const;

  /// With the end token behind the text. The text stands as it is: prefixes are the caller's.
  std::vector<std::int32_t> tokenize(const std::string& text) const;
  /// As the vocabulary spells it.
  std::string token(std::int32_t id) const;
  /// Special tokens left out.
  std::string detokenize(const std::vector<std::int32_t>& ids) const;

  /// What the encoder makes of a text, float32 [tokens, hidden_size]. Only `mask` and `num_threads`
  /// of the options play a part.
  Tensor encode(const std::vector<std::int32_t>& ids, const GenerateOptions& options = {}) const;
  /// Float32 [written + 1, vocab_size]: what the decoder expects for the text first, and after each
  /// token of `written`. Options as of encode().
  Tensor logits(const std::vector<std::int32_t>& ids, const std::vector<std::int32_t>& written,
                const GenerateOptions& options = {}) const;

  /// Writes until a token ends the text, a stop string or max_tokens. GenerateOptions::mask is over
  /// the tokens of the text that is read, each of which else sees all; `prefill_chunk` plays no
  /// part, as a text is read at once. Texts may be of any length. Throws InvalidArgument naming
  /// option, expected and got.
  GeneratedText generate(const std::string& text, const GenerateOptions& options = {}) const;

  /// Several texts of any lengths side by side: read together without padding, then written a token
  /// of each at a time. Gives what generate() gives for each, but for the rounding of another
  /// number of rows. Times are those of all. Throws InvalidArgument for `on_text`, which could not
  /// tell texts apart, else as generate().
  std::vector<GeneratedText> generate_all(const std::vector<std::string>& texts,
                                          const GenerateOptions& options = {}) const;

 private:
  struct Impl;
  explicit Seq2SeqGenerator(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace stof
