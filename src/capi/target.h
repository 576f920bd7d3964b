#pragma once
// Where a plan runs, and what one on a GPU says of itself.

#include <optional>
#include <string>

#include "stof/cuda_attention.h"
#include "stof/stof.h"

namespace stof::capi {

inline constexpr int kDefaultAlignment = 16;

/// What a GPU plan is built for.
struct GpuTarget {
  std::string kernel;
  int ordinal = 0;
  int alignment = kDefaultAlignment;
};

/// Nothing: the CPU. Throws InvalidArgument naming the field.
std::optional<GpuTarget> target_of(const stof_target* target);
/// For plans that only a GPU runs: throws Unsupported for the CPU.
GpuTarget gpu_target_of(const stof_target* target);
cuda::GpuModel model_of(const stof_gpu_model* model);

std::string facts_json(const std::string& problem, const cuda::PlanFacts& facts);

}  // namespace stof::capi
