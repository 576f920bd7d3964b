#pragma once
// stof run --prompt: text from a decoder.

#include <cstdint>
#include <string>
#include <vector>

#include "commands.h"
#include "stof/load_options.h"

namespace stof::cli {

struct GenerateArguments {
  std::string prompt;
  bool chat = false;  ///< the prompt is a user's message
  std::string model;
  LoadOptions load;
  std::string mask;
  std::int64_t max_tokens = 0;  ///< 0: GenerateOptions' own
  double temperature = 0;
  std::int64_t top_k = 0;
  double top_p = 1;
  std::uint64_t seed = 0;
  std::vector<std::string> stop;
  int threads = 0;
  bool json = false;
};

/// Streams the text to standard output, then says on standard error how fast that went; or prints
/// one JSON object.
void generate_text(const GenerateArguments& arguments, const Program& program);

}  // namespace stof::cli
