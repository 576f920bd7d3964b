#pragma once
// The metadata of a GGUF file as JSON, to be read like any other settings.

#include "model/json_fields.h"
#include "stof/gguf.h"

namespace stof::model {

/// One object; its keys are the file's ("llama.block_count"). Throws Corrupt for text that is not
/// UTF-8.
Json gguf_settings(const GgufFile& file);

}  // namespace stof::model
