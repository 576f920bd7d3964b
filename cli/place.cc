#include "place.h"

#include <CLI/CLI.hpp>

#include "core/check.h"
#include "options.h"

namespace stof::cli {

void add_place_arguments(CLI::App& command, PlaceArguments& arguments) {
  command
      .add_option("--device", arguments.device,
                  "auto takes a GPU where all it needs is there, and says so")
      ->check(one_of({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  command
      .add_option("--dtype", arguments.dtype,
                  "Element type to compute in; auto: fp32 on the CPU, on a GPU fp16, for decoders "
                  "bf16")
      ->check(one_of({"auto", "fp32", "fp16", "bf16"}))
      ->capture_default_str();
}

LoadOptions load_options(const PlaceArguments& arguments) {
  LoadOptions load;
  load.place = arguments.device == "cuda"  ? Place::kCuda
               : arguments.device == "cpu" ? Place::kCpu
                                           : Place::kAuto;
  if (arguments.dtype != "auto") load.dtype = dtype_from_string(arguments.dtype);
  STOF_CHECK(load.place != Place::kCpu || !load.dtype || load.dtype == DType::kFloat32,
             kUnsupported, "--dtype: on the CPU models compute in fp32, got {}", arguments.dtype);
  STOF_CHECK(load.place != Place::kCuda || load.dtype != DType::kFloat32, kUnsupported,
             "--dtype: on a GPU models compute in fp16 or bf16, got {}", arguments.dtype);
  return load;
}

}  // namespace stof::cli
