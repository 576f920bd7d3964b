#pragma once
// A BERT checkpoint's weights in GPU memory.

#include <vector>

#include "backend/cuda/rows/row_kernels.h"
#include "model/bert_weights.h"

namespace stof::model {

/// Matrices, tables and the biases that products add are elements of `dtype`; norms and the biases
/// that norms add are float32. All lie in one buffer, each at a multiple of 256 bytes.
struct DeviceWeights {
  struct Layer {
    cuda::CUdeviceptr query_key_value, query_key_value_bias;  ///< [3 hidden, hidden]
    cuda::CUdeviceptr attention_output, attention_output_bias;
    cuda::NormParameters attention_norm;
    cuda::CUdeviceptr intermediate, intermediate_bias;
    cuda::CUdeviceptr output, output_bias;
    cuda::NormParameters output_norm;
  };
  cuda::EmbeddingOperands embeddings;
  std::vector<Layer> layers;
  cuda::DeviceBuffer memory;
};

/// Converts and copies; the device must be in use. Throws OutOfMemory, or Unsupported naming a
/// weight that does not fit `dtype`.
DeviceWeights upload_weights(const BertWeights& weights, const BertConfig& config, DType dtype);

}  // namespace stof::model
