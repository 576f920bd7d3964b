#pragma once
// A model at a shape: what `stof tune MODEL` and `stof explain MODEL` are about.

#include <memory>
#include <string>

#include "tune/device_bench.h"

namespace CLI {
class App;
}

namespace stof::cli {

struct ModelArguments {
  std::string model;
  std::string shape = "8x512";
  std::string mask = "all";
  std::string device = "auto";
  std::string dtype = "auto";
  int threads = 0;
  std::int64_t rows = 0;  ///< padded to so many; 0: to as many as a session computes
};

void add_model_arguments(CLI::App& command, ModelArguments& arguments);

/// Reads the model's config.json; weights are not needed, random ones take as long. Rows are those
/// that a session computes for the shape. Throws InvalidArgument naming the option that does not
/// fit.
tune::TuningProblem load_problem(const ModelArguments& arguments);

/// Of the device that is asked for, without making it ready.
tune::Environment environment_of(const ModelArguments& arguments);

/// The device that is asked for: with auto the GPU where there is one.
std::unique_ptr<tune::Device> open_device(const ModelArguments& arguments);

}  // namespace stof::cli
