#include "model/cuda/batch_plans.h"

#include <algorithm>
#include <bit>
#include <string>
#include <tuple>
#include <utility>

#include "backend/cuda/attention/packed_plan.h"
#include "backend/cuda/attention/problem_check.h"
#include "jit/compile.h"

namespace stof::model {
namespace {

/// Masks whose lists are kept in device memory: some MiB each for large batches.
constexpr std::size_t kMaxMasks = 16;

AttentionProblem problem_of(const BertConfig& config, DType dtype) {
  AttentionProblem problem;
  problem.num_heads_q = problem.num_heads_kv = config.num_heads;
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
    : device_(device), weights_(weights), config_(config), dtype_(dtype), planner_(device) {}

void BatchPlans::compile_ahead(const cuda::Device& device, const BertConfig& config, DType dtype) {
  const cuda::KernelTarget target{device.facts().major * 10 + device.facts().minor,
                                  device.facts().num_sms};
  const AttentionProblem problem = problem_of(config, dtype);
  cuda::check_problem(problem);
  std::vector<jit::CubinRequest> requests;
  constexpr bool kSharedHeads = true;  // no head shares keys with another: masks change nothing
  for (const auto& kernel : cuda::packed_configs(problem, kSharedHeads, target))
    requests.push_back({kernel.name(), codegen::emit_attention(kernel), device.facts().target()});
  jit::cubins_for(requests);
}

const cuda::PackedAttention& BatchPlans::attention(const PackedTexts& texts, const mask::Mask& mask,
                                                   cuda::CUstream stream) {
  const std::string key = mask.fingerprint().hex();
  auto found = attention_.find(key);
  if (found == attention_.end()) {
    if (attention_.size() == kMaxMasks) attention_.clear();
    found = attention_
                .emplace(std::piecewise_construct, std::forward_as_tuple(key),
                         std::forward_as_tuple(problem_of(config_, dtype_), mask, device_))
                .first;
  }
  found->second.prepare(texts.offsets, stream);
  return found->second;
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
