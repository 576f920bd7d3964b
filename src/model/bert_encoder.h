#pragma once
// BERT's stack of layers over packed texts.

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/gemm.h"
#include "backend/cpu/ops/embedding.h"
#include "model/bert_weights.h"
#include "stof/attention.h"

namespace stof::model {

/// Texts one behind the other, without padding.
struct PackedTexts {
  std::vector<std::int32_t> ids;        ///< [tokens]
  std::vector<std::int32_t> positions;  ///< [tokens], from 0 in every text
  std::vector<std::int64_t> offsets;    ///< [texts + 1]: text i is ids[offsets[i]..offsets[i+1])

  void add(std::span<const std::int32_t> text_ids);
  std::int64_t num_tokens() const { return static_cast<std::int64_t>(ids.size()); }
};

/// Wall time of the parts of a forward pass, seconds; added to.
struct EncoderTiming {
  double plan = 0, attention = 0;
};

/// Immutable; safe from several threads.
class BertEncoder {
 public:
  BertEncoder(BertWeights weights, const BertConfig& config);

  const BertConfig& config() const { return config_; }

  /// Hidden states of the last layer, float32 [tokens, hidden]. Every id must be below vocab_size
  /// and every position below max_positions. `mask` is applied within each text, with the text's
  /// own length. Uses the threads of the calling thread's ThreadScope.
  Tensor forward(const PackedTexts& texts, const mask::Mask& mask, EncoderTiming& timing) const;

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
