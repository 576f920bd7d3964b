#pragma once
// BERT's stack of layers on the CPU, in float32.

#include <string>

#include "exec/cpu_session.h"
#include "model/bert_graph.h"
#include "model/encoder.h"

namespace stof::model {

/// Immutable; safe from several threads.
class BertEncoder final : public Encoder {
 public:
  BertEncoder(BertWeights weights, const BertConfig& config,
              const exec::SessionOptions& options = {});

  const BertConfig& config() const override { return config_; }
  std::string place() const override { return "CPU, float32"; }

  /// Uses the threads of the calling thread's ThreadScope.
  Tensor forward(const PackedTexts& texts, const mask::MaskSet& mask,
                 EncoderTiming& timing) const override;
  Tensor pooled(const PackedTexts& texts, const mask::MaskSet& mask, cpu::Pooling pooling,
                EncoderTiming& timing) const override;

 private:
  BertConfig config_;
  BertWeights weights_;  ///< read where they are
  GraphWeights bound_;   ///< into weights_, and what is made of several
  mutable exec::CpuSession session_;
};

}  // namespace stof::model
