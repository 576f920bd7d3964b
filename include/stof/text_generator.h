#pragma once
// TextGenerator: a checkpoint of the LLaMA family in, text that continues a prompt out.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stof/load_options.h"
#include "stof/mask_set.h"
#include "stof/prune.h"
#include "stof/tensor.h"

namespace stof {

struct GenerateOptions {
  std::int64_t max_tokens = 256;  ///< at most so many are written
  double temperature = 0;         ///< 0: the likeliest token, always
  std::int64_t top_k = 0;         ///< only the k likeliest tokens; 0: all
  double top_p = 1;               ///< only the likeliest that make up this probability
  std::uint64_t seed = 0;         ///< of the random choices
  std::vector<std::string> stop;  ///< the text ends before the first of these
  /// Combined by & with the model's own (causal, and its window where it has one), in positions of
  /// prompt and answer together. Layers and heads may have masks of their own.
  mask::MaskSet mask;
  std::int64_t prefill_chunk = 512;  ///< tokens of the prompt that are read at once
  int num_threads = 0;               ///< 0 = all
  /// Attention under what a pruner leaves of each layer's mask (docs/pruning.md), of a prompt's
  /// part and of each new token; on the CPU.
  std::optional<mask::PruneOptions> prune = {};
  /// Called with each piece of text as soon as it is certain; together they are the whole.
  std::function<void(std::string_view)> on_text;
};

/// How a text is read whose tokens' probabilities are asked for.
struct ScoreOptions {
  /// As GenerateOptions::mask.
  mask::MaskSet mask;
  /// Tokens that are read together; 0: as many as generate() takes under the mask.
  std::int64_t window = 0;
  /// Tokens by which the next window begins later; of a window after the first only its last so
  /// many are scored. 0: the window's length, so that windows have no token in common.
  std::int64_t stride = 0;
  std::int64_t chunk = 256;  ///< tokens that are computed at once, with logits of the vocabulary
  int num_threads = 0;       ///< 0 = all
  /// As GenerateOptions::prune, of each chunk.
  std::optional<mask::PruneOptions> prune = {};
  /// Called after each chunk with (tokens scored, tokens in all).
  std::function<void(std::int64_t, std::int64_t)> progress;
};

/// What a model expects of a text's tokens.
struct TextScore {
  /// Of each token, the natural logarithm of its probability after those before it in its window;
  /// NaN of one with none before it: the first, and each window's where windows do not overlap.
  std::vector<float> log_likelihoods;
  std::int64_t num_scored = 0;  ///< of them that are no NaN
  double log_likelihood = 0;    ///< their sum
  double seconds = 0;

  /// exp(-log_likelihood / num_scored); NaN where nothing is scored.
  double perplexity() const;
};

/// Why a text ended.
enum class StopReason : std::uint8_t {
  kEndToken,    ///< the model said so
  kStopString,  ///< one of GenerateOptions::stop
  kMaxTokens,
  kPositions,  ///< the model knows no further ones
};

/// "end token", "stop string", ...
std::string_view to_string(StopReason reason);

/// A turn of a conversation.
struct ChatMessage {
  std::string role;  ///< "system", "user" or "assistant"
  std::string content;
};

struct GeneratedText {
  std::string text;               ///< UTF-8, without the prompt, special tokens and the stop string
  std::vector<std::int32_t> ids;  ///< all that were chosen, an end token included
  StopReason reason = StopReason::kMaxTokens;
  std::int64_t prompt_tokens = 0;
  /// Tokens that there was room for in the caches of keys and values. Under a mask of a window and
  /// first keys in all layers no more than those, a chunk and some pages, however long the text.
  std::int64_t cached_tokens = 0;
  /// Wall time, seconds: reading the prompt, writing, and of both planning masks and attention,
  /// the latter 0 on a GPU, where operators are not waited for one by one.
  double prefill = 0, decode = 0, plan = 0, attention = 0;
};

/// A decoder loaded from a Hugging Face folder (config.json, model.safetensors or a sharded index,
/// tokenizer.json) or a GGUF file, which holds all of that. Immutable after load; safe from several
/// threads.
class TextGenerator {
 public:
  /// `path` is a folder or a .gguf file, or a folder whose only model is a .gguf file. Throws
  /// NotFound, Corrupt or Unsupported naming file, field or tensor, expected and got; with
  /// Place::kCuda also what of a GPU is missing and what to install. `tuning` plays no part yet.
  static TextGenerator load(const std::string& path, const LoadOptions& options = {});

  std::int64_t num_layers() const;
  std::int64_t num_heads() const;
  std::int64_t vocab_size() const;
  std::int64_t max_positions() const;
  std::string describe() const;
  /// "CPU, float32" or "NVIDIA H200, bfloat16"
  std::string place() const;
  /// Why Place::kAuto did not take the GPU that the machine has; else empty.
  std::string place_note() const;

  /// With what the tokenizer puts in front of every text.
  std::vector<std::int32_t> tokenize(const std::string& text) const;
  /// As the vocabulary spells it: "\u0120the". Throws InvalidArgument on an id that no token has.
  std::string token(std::int32_t id) const;
  /// The prompt by which an instruct model answers the last of `messages`, by the checkpoint's chat
  /// template. Special tokens that a content spells are taken as such. Throws Unsupported for a
  /// template that is not known (ChatML and SmolLM2's are) or where there is none.
  std::string chat_prompt(const std::vector<ChatMessage>& messages) const;
  /// Special tokens left out.
  std::string detokenize(const std::vector<std::int32_t>& ids) const;

  /// Float32 [tokens, vocab_size]: what the model expects after each token. Only `mask`,
  /// `prefill_chunk` and `num_threads` of the options play a part.
  Tensor logits(const std::vector<std::int32_t>& ids, const GenerateOptions& options = {}) const;

  /// The likelihood of a text, window by window, each from the first position on (as
  /// transformers documents it). Memory is a chunk's logits, whatever the
  /// text. Throws InvalidArgument naming the option, or a token that the model does not know.
  TextScore score(const std::vector<std::int32_t>& ids, const ScoreOptions& options = {}) const;

  /// Throws InvalidArgument naming the option, or where the prompt has no token or more than
  /// max_positions(). Where positions are no table (all but GPT-2) and all layers are under a mask
  /// of a window and first keys, as mask::streaming() is, a text may have 2^24 tokens: positions go
  /// on, and keys that no later token sees are given back.
  GeneratedText generate(const std::string& prompt, const GenerateOptions& options = {}) const;

  /// The same of several prompts of any lengths, side by side: one pass reads a token of each, or
  /// chunks of several prompts one behind the other, without padding. Each text is the one that
  /// generate() writes, but for roundings; times are those of all together. Throws InvalidArgument
  /// for GenerateOptions::on_text, and naming the prompt.
  std::vector<GeneratedText> generate_all(const std::vector<std::string>& prompts,
                                          const GenerateOptions& options = {}) const;

  struct Impl;
  explicit TextGenerator(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<const Impl> impl_;
};

}  // namespace stof
