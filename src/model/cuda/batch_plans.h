#pragma once
// What a batch needs before it can run on a GPU: attention over its lengths and products for its
// number of rows. Kernels, lengths and products are kept, so that later batches find what they
// need.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "backend/cuda/attention/packed_attention.h"
#include "backend/cuda/cublaslt.h"
#include "model/cuda/device_weights.h"
#include "model/encoder.h"

namespace stof::model {

/// The products of a layer, in the order in which they run.
struct LayerProducts {
  cuda::Gemm query_key_value, attention_output, intermediate, output;
};

/// Not safe from several threads.
class BatchPlans {
 public:
  BatchPlans(const cuda::Device& device, const DeviceWeights& weights, const BertConfig& config,
             DType dtype);

  /// Compiles every attention kernel that texts of any length may pick under any mask, unless it is
  /// cached, all at once.
  static void compile_ahead(const cuda::Device& device, const BertConfig& config, DType dtype);

  /// Prepared for the batch on `stream`; holds until the next call.
  const cuda::PackedAttention& attention(const PackedTexts& texts, const mask::Mask& mask,
                                         cuda::CUstream stream);

  /// Products of padded_rows(rows) rows.
  const std::vector<LayerProducts>& products(std::int64_t rows);

  /// Rows a product computes for a batch of `rows`: rounded up to one of eight sizes an octave, so
  /// that few shapes are planned and at most an eighth of the work is padding.
  static std::int64_t padded_rows(std::int64_t rows);

 private:
  cuda::Device device_;
  const DeviceWeights& weights_;
  BertConfig config_;
  DType dtype_;
  cuda::GemmPlanner planner_;
  std::map<std::string, cuda::PackedAttention> attention_;       ///< by mask
  std::map<std::int64_t, std::vector<LayerProducts>> products_;  ///< by padded rows
};

}  // namespace stof::model
