#pragma once
// A text that is being written, token by token.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/sampler.h"
#include "model/stop_strings.h"
#include "model/subword.h"
#include "stof/text_generator.h"

namespace stof::model {

/// Throws InvalidArgument naming an option, the value expected and the one got.
void check_generate_options(const GenerateOptions& options);

class TextWriter {
 public:
  /// Both outlive this. `begins_text`: what is written is a whole text, else it continues one.
  TextWriter(const SubwordTokenizer& tokenizer, const GenerateOptions& options, bool begins_text);

  /// The token that follows by `logits`; `last`: the model has no position after it. Returns
  /// whether the text goes on.
  bool next(std::span<const float> logits, const std::vector<std::int32_t>& end_tokens, bool last);

  GeneratedText result;

 private:
  bool end(StopReason reason);
  void emit(const std::string& text);

  const SubwordTokenizer& tokenizer_;
  const GenerateOptions& options_;
  Sampler sampler_;
  StopStrings stop_;
  TokenStream stream_;
};

}  // namespace stof::model
