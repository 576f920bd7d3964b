#pragma once
// Where the demo model lives and whether it is complete.

#include <string>

#include "commands.h"
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

/// Whether there is a decoder: a GGUF file, a folder of one, or one whose config.json names a
/// decoder's family.
bool is_decoder(const std::string& path);

/// model_type of folder/config.json, "" where it cannot be read: what is wrong with the file the
/// loader says.
std::string model_type(const std::string& folder);

/// TextEncoder::load, with advice where the default model was not fetched yet.
TextEncoder load_encoder(const std::string& folder, const LoadOptions& options = {});

/// Of Place::kAuto, says where it computes when that is not the plain case: the CPU where there is
/// no GPU. `note`: why not on the GPU.
void report_place(const std::string& place, const std::string& note, const Program& program);

}  // namespace stof::cli
