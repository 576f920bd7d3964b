#include "model/mlm_head.h"

#include <memory>

#include "backend/cpu/ops/layer_norm.h"
#include "core/check.h"

namespace stof::model {
namespace {

std::vector<cpu::PostOp> post_ops_of(cpu::Activation activation) {
  switch (activation) {
    case cpu::Activation::kNone:
      return {};
    case cpu::Activation::kRelu:
      return {cpu::PostOp::kRelu};
    case cpu::Activation::kGeluErf:
      return {cpu::PostOp::kGeluErf};
    case cpu::Activation::kGeluTanh:
      return {cpu::PostOp::kGeluTanh};
  }
  throw_error(ErrorCode::kInternal, "activation {} has no post-op", static_cast<int>(activation));
}

/// Few rows are multiplied: a packed copy of a whole vocabulary would cost more than it gains.
std::shared_ptr<const cpu::PackedWeight> in_place(const TensorView& weight) {
  return std::make_shared<const cpu::PackedWeight>(weight, cpu::PackedWeight::Layout::kPlain);
}

}  // namespace

MlmHead::MlmHead(BertHeadWeights weights, const BertConfig& config)
    : weights_(std::move(weights)),
      epsilon_(config.layer_norm_eps),
      dense_(in_place(weights_.dense.weight), weights_.dense.bias,
             post_ops_of(config.head_activation)),
      decoder_(in_place(weights_.decoder.weight), weights_.decoder.bias) {}

Tensor MlmHead::logits(std::span<const float> states) const {
  const std::int64_t hidden = dense_.in_features();
  const std::int64_t rows = static_cast<std::int64_t>(states.size()) / hidden;
  Tensor transformed(DType::kFloat32, {rows, hidden});
  Tensor scores(DType::kFloat32, {rows, decoder_.out_features()});
  if (rows == 0) return scores;
  float* const inner = transformed.as<float>().data();
  dense_.run(states.data(), rows, inner);
  const cpu::LayerNorm norm{static_cast<const float*>(weights_.norm.gamma.data),
                            static_cast<const float*>(weights_.norm.beta.data), hidden, epsilon_};
  norm.rows(inner, rows);
  decoder_.run(inner, rows, scores.as<float>().data());
  return scores;
}

}  // namespace stof::model
