#pragma once
// The LLaMA family as decoders that generate text.

#include <memory>

#include "model/decoder_model.h"
#include "model/llama_config.h"
#include "stof/checkpoint.h"

namespace stof::model {

/// Throws what LlamaWeights does.
std::unique_ptr<const DecoderModel> make_llama_model(Checkpoint checkpoint, LlamaConfig config);

}  // namespace stof::model
