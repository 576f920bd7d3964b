#pragma once
// stof run --task translate and summarise: texts from an encoder-decoder.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "commands.h"
#include "generate.h"
#include "stof/load_options.h"

namespace stof::cli {

struct RewriteArguments {
  std::vector<std::string> texts;
  std::string model;
  std::string mask = "all";  ///< over the tokens of a text that is read
  bool translates = false;   ///< else summarises
  std::string source = "en", target;
  std::optional<std::string> prefix;  ///< in place of the task's
  std::int64_t max_tokens = 0;        ///< 0: the task's, or 256
  std::int64_t batch = 1;             ///< texts side by side; 1: streamed
  int threads = 0;
  bool json = false;
  GenerateArguments sampling;  ///< temperature, top_k, top_p, seed, stop
  LoadOptions load;
};

void rewrite_texts(const RewriteArguments& arguments, const Program& program);

}  // namespace stof::cli
