#pragma once
// Where a model computes, by what its caller asked for.

#include <functional>
#include <string>

#include "stof/load_options.h"

namespace stof::model {

/// Calls on_gpu(dtype) or on_cpu() as the options say; with Place::kAuto on_cpu() too where
/// on_gpu() throws, and returns what it threw; else an empty string. `what` names such models
/// ("encoders"), which compute in `gpu_dtype` where none is asked for. Throws Unsupported for a
/// dtype that the CPU does not compute in, and what the two throw.
std::string place_by(const LoadOptions& options, const std::string& what, DType gpu_dtype,
                     const std::function<void(DType)>& on_gpu, const std::function<void()>& on_cpu);

}  // namespace stof::model
