#pragma once
// The files that sentence-transformers lays around a checkpoint: modules.json, pooling, limits.

#include <cstdint>
#include <string>

#include "backend/cpu/ops/pooling.h"

namespace stof::model {

struct SentenceConfig {
  std::string model_folder;  ///< where config.json and the weights are
  cpu::Pooling pooling = cpu::Pooling::kMean;
  bool normalize = false;
  bool stated = false;          ///< false: no modules.json, the defaults above
  std::int64_t max_tokens = 0;  ///< sentence_bert_config.json's max_seq_length; 0 = not stated
  std::int64_t width = 0;       ///< the pooling file's idea of the hidden size; 0 = not stated
};

/// Reads what is there. A folder without modules.json is an ordinary checkpoint: mean pooling, no
/// normalisation, as sentence-transformers itself does. Throws NotFound or Corrupt, or Unsupported
/// naming the module, pooling mode or setting that is not honoured.
SentenceConfig load_sentence_config(const std::string& folder);

}  // namespace stof::model
