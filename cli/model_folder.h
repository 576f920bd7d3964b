#pragma once
// Where the demo model lives and whether it is complete.

#include <string>

#include "stof/text_encoder.h"

namespace stof::cli {

/// <cache folder>/models/all-minilm-l6-v2, filled by scripts/setup.
std::string default_model_folder();

/// <cache folder>/models/smollm2-135m-instruct, filled by scripts/setup.
std::string default_generator_folder();

struct ModelFolderState {
  std::string folder;
  std::string problem;  ///< empty when the files an encoder needs are there
};

ModelFolderState inspect_model_folder(const std::string& folder);

/// TextEncoder::load, with advice where the default model was not fetched yet.
TextEncoder load_encoder(const std::string& folder, const LoadOptions& options = {});

}  // namespace stof::cli
