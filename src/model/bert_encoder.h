#pragma once
// BERT's stack of layers on the CPU, in float32.

#include <string>
#include <vector>

#include "backend/cpu/gemm.h"
#include "backend/cpu/ops/embedding.h"
#include "model/bert_weights.h"
#include "model/encoder.h"
#include "stof/attention.h"

namespace stof::model {

/// Immutable; safe from several threads.
class BertEncoder final : public Encoder {
 public:
  BertEncoder(BertWeights weights, const BertConfig& config);

  const BertConfig& config() const override { return config_; }
  std::string place() const override { return "CPU, float32"; }

  /// Uses the threads of the calling thread's ThreadScope.
  Tensor forward(const PackedTexts& texts, const mask::Mask& mask,
                 EncoderTiming& timing) const override;
  Tensor pooled(const PackedTexts& texts, const mask::Mask& mask, cpu::Pooling pooling,
                EncoderTiming& timing) const override;

 private:
  struct Layer {
    cpu::Linear query_key_value;   ///< [3 hidden, hidden]: one product instead of three
    cpu::Linear attention_output;  ///< adds to the residual stream, as does `output`
    cpu::LayerNorm attention_norm;
    cpu::Linear intermediate, output;
    cpu::LayerNorm output_norm;
  };
  Layer make_layer(const BertWeights::Layer& weights) const;
  cpu::LayerNorm make_norm(const BertWeights::Norm& norm) const;

  BertConfig config_;
  BertWeights weights_;  ///< embeddings and norms are read where they are
  std::vector<Layer> layers_;
};

}  // namespace stof::model
