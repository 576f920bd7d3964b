#pragma once
// The demo's text: SmolLM2 reads a long document under a window mask and answers.

#include <cstdint>
#include <string>

#include "commands.h"

namespace stof::cli {

struct DemoGeneration {
  std::string model;             ///< a decoder that is told what to do: it has a chat template
  std::string document;          ///< the text itself
  std::int64_t read_tokens = 0;  ///< of the document, the first so many; 0: all
  int threads = 0;
};

void show_generation(const DemoGeneration& demo, const Program& program);

}  // namespace stof::cli
