#include "model/cuda/batch_plans.h"

#include <algorithm>
#include <bit>

namespace stof::model {
namespace {

/// Attention plans kept. A text's plan holds tens of KiB of device memory; every length up to 512
/// under a few masks fits.
constexpr std::size_t kMaxPlans = 2048;

cuda::Epilogue intermediate_epilogue(cpu::Activation activation) {
  switch (activation) {
    case cpu::Activation::kRelu:
      return cuda::Epilogue::kBiasRelu;
    case cpu::Activation::kGeluTanh:
      return cuda::Epilogue::kBiasGeluTanh;
    case cpu::Activation::kNone:
    case cpu::Activation::kGeluErf:  // by a row kernel
      break;
  }
  return cuda::Epilogue::kBias;
}

}  // namespace

BatchPlans::BatchPlans(const cuda::Device& device, const DeviceWeights& weights,
                       const BertConfig& config, DType dtype)
    : device_(device.facts().ordinal),
      weights_(weights),
      config_(config),
      dtype_(dtype),
      planner_(device) {}

std::vector<TextGroup> BatchPlans::groups(const PackedTexts& texts, const mask::Mask& mask) {
  std::vector<TextGroup> groups;
  for (std::size_t i = 0; i + 1 < texts.offsets.size(); ++i) {
    const std::int64_t length = texts.offsets[i + 1] - texts.offsets[i];
    if (length == 0) continue;
    if (groups.empty() || groups.back().length != length)
      groups.push_back({texts.offsets[i], 0, length, nullptr});
    ++groups.back().count;
  }
  if (plans_.size() + groups.size() > kMaxPlans) plans_.clear();
  const Fingerprint mask_fingerprint = mask.fingerprint();
  for (TextGroup& group : groups) {
    const PlanKey key{mask_fingerprint, group.count, group.length};
    auto found = plans_.find(key);
    if (found == plans_.end()) {
      AttentionProblem problem;
      problem.batch = group.count;
      problem.num_heads_q = problem.num_heads_kv = config_.num_heads;
      problem.seq_q = problem.seq_kv = group.length;
      problem.head_dim_qk = problem.head_dim_v = config_.head_dim();
      problem.dtype = dtype_;
      found = plans_.emplace(key, cuda::AttentionPlan::build(problem, mask, "", device_)).first;
    }
    group.plan = &found->second;
  }
  return groups;
}

std::int64_t BatchPlans::padded_rows(std::int64_t rows) {
  const auto octave = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(rows)));
  const std::int64_t step = std::max<std::int64_t>(8, octave / 8);
  return (rows + step - 1) / step * step;
}

const std::vector<LayerProducts>& BatchPlans::products(std::int64_t rows) {
  const std::int64_t padded = padded_rows(rows);
  const auto found = products_.find(padded);
  if (found != products_.end()) return found->second;
  const std::int64_t hidden = config_.hidden_size, inner = config_.intermediate_size;
  const cuda::Epilogue activation = intermediate_epilogue(config_.activation);
  std::vector<LayerProducts> layers;
  layers.reserve(weights_.layers.size());
  for (const DeviceWeights::Layer& layer : weights_.layers)
    layers.push_back(
        {planner_.plan({dtype_, padded, hidden, 3 * hidden, cuda::Epilogue::kBias},
                       layer.query_key_value_bias),
         planner_.plan({dtype_, padded, hidden, hidden, cuda::Epilogue::kNone}, 0),
         planner_.plan({dtype_, padded, hidden, inner, activation}, layer.intermediate_bias),
         planner_.plan({dtype_, padded, inner, hidden, cuda::Epilogue::kNone}, 0)});
  return products_.emplace(padded, std::move(layers)).first->second;
}

}  // namespace stof::model
