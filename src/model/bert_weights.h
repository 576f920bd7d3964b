#pragma once
// The tensors of a checkpoint of BERT's families, by role.

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "model/bert_config.h"
#include "stof/checkpoint.h"

namespace stof::model {

/// Views are contiguous float32: into the mapped files, or into `converted` where the file holds
/// float16, bfloat16 or unaligned data.
struct BertWeights {
  struct Dense {
    TensorView weight;  ///< [out, in]
    TensorView bias;    ///< [out]
  };
  struct Norm {
    TensorView gamma, beta;  ///< [hidden]
  };
  struct Layer {
    Dense query, key, value, attention_output;
    Norm attention_norm;
    Dense intermediate, output;
    Norm output_norm;
  };

  TensorView word_embeddings;      ///< [vocab, hidden]
  TensorView position_embeddings;  ///< [positions, hidden]
  TensorView segment_embeddings;   ///< [segments, hidden]; empty where the model has none
  Norm embedding_norm;
  std::vector<Layer> layers;
  /// ModernBERT's, by their names in its graph; layers and norms above are empty then.
  std::map<std::string, TensorView> named;

  Checkpoint checkpoint;  ///< keeps the maps
  std::deque<Tensor> converted;
};

/// Of the masked-LM head; views as above.
struct BertHeadWeights {
  BertWeights::Dense dense;  ///< [hidden, hidden]
  BertWeights::Norm norm;
  BertWeights::Dense decoder;  ///< [vocab, hidden]

  Checkpoint checkpoint;
  std::deque<Tensor> converted;
};

/// Names are the family's. They may carry its prefix, as "bert." (task heads), or "0.auto_model."
/// (sentence-transformers), and norms the early names gamma and beta. Other tensors (pooler, heads,
/// position_ids) are left alone. Throws NotFound or Corrupt naming checkpoint, tensor, expected and
/// found shape, or Unsupported naming a tensor that is not float32, float16 or bfloat16.
BertWeights load_bert_weights(Checkpoint checkpoint, const BertConfig& config);

/// Throws the same where the checkpoint has no such head or another.
BertHeadWeights load_bert_head_weights(Checkpoint checkpoint, const BertConfig& config);

}  // namespace stof::model
