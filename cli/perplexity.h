#pragma once
// stof run --task perplexity: how well a decoder expects a text.

#include <cstdint>
#include <string>
#include <vector>

#include "commands.h"
#include "prune.h"
#include "stof/load_options.h"

namespace stof::cli {

struct PerplexityArguments {
  std::vector<std::string> texts;
  std::string file;  ///< a text as a whole
  std::string model;
  LoadOptions load;
  std::string mask;
  PruneArguments prune;
  std::int64_t window = 0, stride = 0;
  int threads = 0;
  bool json = false;
  std::string output;  ///< .npy of the tokens' log-likelihoods, of all texts one behind the other
};

/// Prints a line for each text, or one JSON object a text.
void print_perplexity(const PerplexityArguments& arguments, const Program& program);

}  // namespace stof::cli
