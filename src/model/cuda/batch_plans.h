#pragma once
// What a batch needs before it can run on a GPU: attention plans for its lengths and products for
// its number of rows. Both are kept, so that batches like earlier ones are planned at once.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "backend/cuda/cublaslt.h"
#include "model/cuda/device_weights.h"
#include "model/encoder.h"
#include "stof/cuda_attention.h"

namespace stof::model {

/// Texts of one length that lie one behind the other: one attention call.
struct TextGroup {
  std::int64_t first_row = 0, count = 0, length = 0;
  const cuda::AttentionPlan* plan = nullptr;
};

/// The products of a layer, in the order in which they run.
struct LayerProducts {
  cuda::Gemm query_key_value, attention_output, intermediate, output;
};

/// Not safe from several threads.
class BatchPlans {
 public:
  BatchPlans(const cuda::Device& device, const DeviceWeights& weights, const BertConfig& config,
             DType dtype);

  /// Compiles every attention kernel that a text of any length may pick, unless it is cached, all
  /// at once. Masks with strided parts may need others, compiled when they come.
  static void compile_ahead(const cuda::Device& device, const BertConfig& config, DType dtype);

  /// The pointers hold until the next call.
  std::vector<TextGroup> groups(const PackedTexts& texts, const mask::Mask& mask);

  /// Products of padded_rows(rows) rows.
  const std::vector<LayerProducts>& products(std::int64_t rows);

  /// Rows a product computes for a batch of `rows`: rounded up to one of eight sizes an octave, so
  /// that few shapes are planned and at most an eighth of the work is padding.
  static std::int64_t padded_rows(std::int64_t rows);

 private:
  int device_;
  const DeviceWeights& weights_;
  BertConfig config_;
  DType dtype_;
  cuda::GemmPlanner planner_;
  std::map<std::string, cuda::AttentionPlan> plans_;             ///< by mask, count and length
  std::map<std::int64_t, std::vector<LayerProducts>> products_;  ///< by padded rows
};

}  // namespace stof::model
