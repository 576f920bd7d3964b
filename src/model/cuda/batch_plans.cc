#include "model/cuda/batch_plans.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <string>

#include "backend/cuda/attention/candidates.h"
#include "jit/compile.h"

namespace stof::model {
namespace {

/// Attention plans kept. A text's plan holds tens of KiB of device memory; every length up to 512
/// under a few masks fits.
constexpr std::size_t kMaxPlans = 2048;

AttentionProblem problem_of(const BertConfig& config, DType dtype, std::int64_t texts,
                            std::int64_t tokens) {
  AttentionProblem problem;
  problem.batch = texts;
  problem.num_heads_q = problem.num_heads_kv = config.num_heads;
  problem.seq_q = problem.seq_kv = tokens;
  problem.head_dim_qk = problem.head_dim_v = config.head_dim();
  problem.dtype = dtype;
  return problem;
}

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

void BatchPlans::compile_ahead(const cuda::Device& device, const BertConfig& config, DType dtype) {
  const cuda::KernelTarget target{device.facts().major * 10 + device.facts().minor,
                                  device.facts().num_sms};
  std::map<std::string, std::string> sources;
  for (const std::int64_t tokens : {16, 64, 256, 512}) {
    const AttentionProblem problem = problem_of(config, dtype, 32, tokens);
    constexpr bool kByName = false;
    for (const mask::Mask& mask : {mask::all(), mask::window(16, 16)})
      for (const auto& candidate : enumerate_candidates(problem, mask, target, kByName)) {
        for (const cuda::Pass& pass : candidate.passes)
          sources.emplace(pass.config.name(), codegen::emit_attention(pass.config));
        if (candidate.rowwise)
          sources.emplace(candidate.rowwise->config.name(),
                          codegen::emit_rowwise(candidate.rowwise->config));
      }
  }
  std::vector<jit::CubinRequest> requests;
  requests.reserve(sources.size());
  for (const auto& [name, source] : sources)
    requests.push_back({name, source, device.facts().target()});
  jit::cubins_for(requests);
}

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
  const std::string mask_key = mask.fingerprint().hex();
  for (TextGroup& group : groups) {
    const std::string key = fmt::format("{} {} {}", mask_key, group.count, group.length);
    auto found = plans_.find(key);
    if (found == plans_.end()) {
      const AttentionProblem problem = problem_of(config_, dtype_, group.count, group.length);
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
