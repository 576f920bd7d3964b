#pragma once
// stof run --task classify: the likeliest labels of images.

#include <cstdint>
#include <string>
#include <vector>

#include "commands.h"
#include "prune.h"

namespace stof::cli {

struct ClassifyArguments {
  std::vector<std::string> images;
  std::string model;
  std::string mask;
  PruneArguments prune;
  std::int64_t count = 5, batch = 8;
  int threads = 0;
  bool json = false;
};

/// Prints a table for each image, or one JSON object an image.
void classify_images(const ClassifyArguments& arguments, const Program& program);

}  // namespace stof::cli
