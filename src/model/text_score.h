#pragma once
// The likelihood of a text's tokens.

#include <cstdint>
#include <vector>

#include "model/decoder.h"
#include "stof/text_generator.h"

namespace stof::model {

/// TextGenerator::score().
TextScore score_text(const Decoder& decoder, const std::vector<std::int32_t>& ids,
                     const ScoreOptions& options);

}  // namespace stof::model
