#pragma once
// Chooses where an encoder computes.

#include <memory>
#include <string>

#include "model/encoder.h"
#include "stof/text_encoder.h"

namespace stof::model {

struct PlacedEncoder {
  std::unique_ptr<const Encoder> encoder;
  std::string note;  ///< why Place::kAuto did not take the GPU that is there; else empty
};

/// Loads the weights of `folder`. Throws what the encoder of the chosen place does; with kAuto only
/// what the CPU's does.
PlacedEncoder place_encoder(const std::string& folder, const BertConfig& config,
                            const LoadOptions& options);

}  // namespace stof::model
