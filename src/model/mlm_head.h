#pragma once
// The masked-LM head: what token stands where a text has a mask. float32 on the CPU.

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/gemm.h"
#include "model/bert_weights.h"
#include "stof/tensor.h"

namespace stof::model {

/// Immutable; safe from several threads.
class MlmHead {
 public:
  MlmHead(BertHeadWeights weights, const BertConfig& config);

  /// The scores of all tokens for some rows of the last layer's states, [rows, hidden]: float32
  /// [rows, vocabulary]. Uses the threads of the calling thread's ThreadScope.
  Tensor logits(std::span<const float> states) const;

 private:
  BertHeadWeights weights_;
  float epsilon_;
  cpu::Linear dense_, decoder_;  ///< into weights_
};

}  // namespace stof::model
