#include "capi/target.h"

#include <nlohmann/json.hpp>

#include "capi/guard.h"
#include "capi/sized.h"

namespace stof::capi {
namespace {

int alignment_bytes(std::int32_t value, const char* name) {
  STOF_CHECK(value >= 0, kInvalidArgument, "{}: expected 0 for {}, or a positive number, got {}",
             name, kDefaultAlignment, value);
  return value == 0 ? kDefaultAlignment : value;
}

}  // namespace

std::optional<GpuTarget> target_of(const stof_target* target) {
  const stof_target given = read_sized_or_default(target, "target");
  if (given.device == STOF_CPU) {
    STOF_CHECK(given.ordinal == 0 && given.alignment == 0 && given.kernel == nullptr,
               kInvalidArgument,
               "target: expected ordinal and alignment 0 and kernel null for STOF_CPU, got {}, {} "
               "and {}; set device to STOF_GPU",
               given.ordinal, given.alignment, given.kernel == nullptr ? "null" : given.kernel);
    return std::nullopt;
  }
  STOF_CHECK(given.device == STOF_GPU, kInvalidArgument,
             "target.device: expected {} (STOF_CPU) or {} (STOF_GPU), got {}",
             static_cast<int>(STOF_CPU), static_cast<int>(STOF_GPU), given.device);
  return GpuTarget{given.kernel == nullptr ? "" : given.kernel, given.ordinal,
                   alignment_bytes(given.alignment, "target.alignment")};
}

cuda::GpuModel model_of(const stof_gpu_model* model) {
  const stof_gpu_model given = read_sized_or_default(model, "model");
  STOF_CHECK(given.compute_capability >= 0, kInvalidArgument,
             "model.compute_capability: expected major * 10 + minor, got {}",
             given.compute_capability);
  STOF_CHECK(given.num_sms >= 0, kInvalidArgument,
             "model.num_sms: expected a positive number, or 0 for the H200's, got {}",
             given.num_sms);
  cuda::GpuModel result;
  if (given.compute_capability != 0) result.compute_capability = given.compute_capability;
  if (given.num_sms != 0) result.num_sms = given.num_sms;
  result.alignment = alignment_bytes(given.alignment, "model.alignment");
  return result;
}

GpuTarget gpu_target_of(const stof_target* target) {
  const auto gpu = target_of(target);
  STOF_CHECK(gpu.has_value(), kUnsupported,
             "target: expected a GPU, got the CPU; set device to STOF_GPU, or use "
             "stof_plan_attention(), which runs on both");
  return *gpu;
}

std::string facts_json(const std::string& problem, const cuda::PlanFacts& facts) {
  return nlohmann::ordered_json{{"problem", problem},         {"kernel", facts.kernel},
                                {"tiles", facts.tiles},       {"device_bytes", facts.device_bytes},
                                {"build_ms", facts.build_ms}, {"predicted_us", facts.predicted_us}}
      .dump();
}

}  // namespace stof::capi
