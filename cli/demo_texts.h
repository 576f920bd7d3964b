#pragma once
// The demo's own sentences, and a long document cut into pieces a model can take.

#include <string>
#include <vector>

#include "stof/text_encoder.h"

namespace stof::cli {

/// Eight sentences: four pairs of like meaning and unlike words.
const std::vector<std::string>& demo_sentences();

/// Cuts at white space into pieces of at most `max_tokens` tokens, special tokens included, each as
/// long as fits.
std::vector<std::string> split_document(const TextEncoder& encoder, const std::string& text,
                                        std::int64_t max_tokens);

}  // namespace stof::cli
