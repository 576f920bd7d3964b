#pragma once
// A stack of encoder layers over packed texts, wherever it runs.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/cpu/ops/pooling.h"
#include "exec/batch.h"
#include "model/bert_config.h"
#include "stof/mask_set.h"
#include "stof/tensor.h"

namespace stof::model {

/// Texts one behind the other, without padding.
struct PackedTexts {
  std::vector<std::int32_t> ids;        ///< [tokens]
  std::vector<std::int32_t> positions;  ///< [tokens], rows of the position table
  std::vector<std::int64_t> offsets;    ///< [texts + 1]: text i is ids[offsets[i]..offsets[i+1])

  /// Positions are counted as BertConfig::padding_id says.
  void add(std::span<const std::int32_t> text_ids, std::int32_t padding_id = -1);
  std::int64_t num_tokens() const { return static_cast<std::int64_t>(ids.size()); }
  std::int64_t num_texts() const {
    return offsets.empty() ? 0 : static_cast<std::int64_t>(offsets.size()) - 1;
  }

  /// What a session of bert_session_graph() runs on; views into this. The set has passed check().
  exec::Batch batch(const mask::MaskSet& mask, const BertConfig& config) const;

  /// Throws InvalidArgument naming the first token whose id or position the model does not know.
  void validate(const BertConfig& config) const;
};

/// Wall time of the parts of a forward pass, seconds; added to.
struct EncoderTiming {
  double plan = 0;
  double attention = 0;  ///< stays 0 on a GPU, where operators are not waited for one by one
};

/// Safe from several threads.
class Encoder {
 public:
  virtual ~Encoder() = default;

  virtual const BertConfig& config() const = 0;
  /// "CPU, float32" or "NVIDIA H200, float16"
  virtual std::string place() const = 0;

  /// Hidden states of the last layer, float32 [tokens, hidden]. `mask` is applied within each text,
  /// with the text's own length; the set has passed check(). Throws what texts.validate() does.
  virtual Tensor forward(const PackedTexts& texts, const mask::MaskSet& mask,
                         EncoderTiming& timing) const = 0;

  /// The same, pooled: float32 [texts, hidden]. Every text has a token.
  virtual Tensor pooled(const PackedTexts& texts, const mask::MaskSet& mask, cpu::Pooling pooling,
                        EncoderTiming& timing) const = 0;
};

}  // namespace stof::model
