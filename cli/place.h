#pragma once
// --device and --dtype of commands that run models.

#include <string>

#include "commands.h"
#include "stof/load_options.h"

namespace stof::cli {

struct PlaceArguments {
  std::string device = "auto", dtype = "auto";
};

void add_place_arguments(CLI::App& command, PlaceArguments& arguments);

/// Throws Unsupported for an element type that the device does not compute in.
LoadOptions load_options(const PlaceArguments& arguments);

}  // namespace stof::cli
