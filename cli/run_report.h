#pragma once
// What `stof run` prints.

#include <string>
#include <vector>

#include "stof/tensor.h"
#include "stof/text_encoder.h"

namespace stof::cli {

struct RunReport {
  const std::vector<std::string>& texts;
  const std::vector<EncodedText>& tokens;  ///< parallel to texts
  bool json = false;
};

/// A table of the texts with token count, norm and first values, then the cosine similarities of
/// the first twelve; or one JSON object per text.
/// @param embeddings float32 [texts, hidden]
void print_embeddings(const RunReport& report, const Tensor& embeddings);

/// Every token with its id and first values, or one JSON object per text.
/// @param states one float32 [tokens, hidden] per text
void print_token_states(const RunReport& report, const std::vector<Tensor>& states);

/// The likeliest tokens for every mask of a text, or one JSON object per text.
void print_filled_masks(const RunReport& report, const std::vector<std::vector<FilledMask>>& masks);

}  // namespace stof::cli
