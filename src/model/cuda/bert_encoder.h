#pragma once
// BERT's stack of layers on an NVIDIA GPU, in float16 or bfloat16 with float32 accumulation.

#include <memory>
#include <string>

#include "exec/batch.h"
#include "model/bert_weights.h"
#include "model/encoder.h"

namespace stof::model {

/// Weights are uploaded once. Memory grows to what the largest batch needs; kernels are compiled
/// when the encoder is made and loaded when the model first picks them; a length is planned when it
/// first comes under a mask, a number of rows when a batch first has it. All other batches, of
/// whatever lengths, allocate, plan and compile nothing and wait only for their result; one that
/// comes twice becomes a CUDA graph. Calls from several threads wait for each other.
class CudaBertEncoder final : public Encoder {
 public:
  /// Throws NotFound naming what is missing and what to install (driver, GPU, compiler of kernels
  /// that are not cached, cuBLASLt), or Unsupported naming what the GPU kernels do not take.
  CudaBertEncoder(const BertWeights& weights, const BertConfig& config, DType dtype, int device = 0,
                  const exec::SessionOptions& options = {});
  ~CudaBertEncoder() override;

  const BertConfig& config() const override;
  std::string place() const override;

  /// Throws Unsupported when float16 overflowed.
  Tensor forward(const PackedTexts& texts, const mask::MaskSet& mask,
                 EncoderTiming& timing) const override;
  Tensor pooled(const PackedTexts& texts, const mask::MaskSet& mask, cpu::Pooling pooling,
                EncoderTiming& timing) const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stof::model
