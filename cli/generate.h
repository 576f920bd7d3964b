#pragma once
// stof run --prompt: text from a decoder.

#include <cstdint>
#include <string>
#include <vector>

#include "commands.h"
#include "prune.h"
#include "stof/load_options.h"
#include "stof/text_generator.h"

namespace stof::cli {

struct GenerateArguments {
  std::string prompt;
  std::string prompt_file;  ///< where the prompt is read from instead; "-" is standard input
  bool chat = false;        ///< the prompt is a user's message
  std::string model;
  LoadOptions load;
  std::string mask;
  PruneArguments prune;
  std::int64_t max_tokens = 0;  ///< 0: GenerateOptions' own
  double temperature = 0;
  std::int64_t top_k = 0;
  double top_p = 1;
  std::uint64_t seed = 0;
  std::vector<std::string> stop;
  int threads = 0;
  bool json = false;
};

/// TextGenerator::load, with advice where the default model was not fetched yet; says where it
/// computes as report_place() does.
TextGenerator load_generator(const std::string& model, const LoadOptions& load,
                             const Program& program);

/// Streams the text to standard output, then says on standard error how fast that went; or prints
/// one JSON object.
void generate_text(const GenerateArguments& arguments, const Program& program);

}  // namespace stof::cli
