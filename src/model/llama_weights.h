#pragma once
// Weights of the LLaMA family by role, from Hugging Face names or GGUF names.

#include <string>
#include <vector>

#include "model/llama_config.h"
#include "stof/checkpoint.h"

namespace stof::model {

/// Reads tensors one by one as float32, so that a caller may pack and drop them. Every method
/// throws NotFound or Corrupt naming file, tensor, expected and found shape.
class LlamaWeights {
 public:
  /// What is stated by the tensors of a GGUF file (biases, a tied head) is written to `config`.
  /// Throws Corrupt for tensors that `config` has no place for: biases, layers.
  LlamaWeights(Checkpoint checkpoint, LlamaConfig& config);

  /// A projection; the bias is empty without one.
  struct Dense {
    Tensor weight;  ///< [out, in]
    Tensor bias;    ///< [out]
  };
  struct Layer {
    Tensor attention_norm, mlp_norm;  ///< [hidden]
    Dense query_key_value;  ///< one below the other: [(heads + 2 kv_heads) head_dim, hidden]
    Dense attention_output;
    Dense gate, up, down;
  };

  Tensor embeddings() const;  ///< [vocabulary, hidden]
  Layer layer(std::int64_t index) const;
  Tensor final_norm() const;  ///< [hidden]
  Tensor head() const;        ///< [vocabulary, hidden]; the embeddings where tied
  /// Radians a position of each pair of a head's components, with the checkpoint's own factors
  /// where it has a tensor of them.
  std::vector<float> rope_frequencies() const;

  /// What a tensor is called in Hugging Face's files and in GGUF; of a layer's, the part between
  /// its number and "weight" or "bias".
  struct Name {
    const char *hf, *gguf;
  };

 private:
  std::string layer_name(std::int64_t index, const Name& name, const char* suffix) const;
  Dense dense(std::int64_t index, const Name& name, std::int64_t out, std::int64_t in,
              bool has_bias) const;
  /// Queries or keys: GGUF interleaves the two halves of each head.
  Dense heads(std::int64_t index, const Name& name, std::int64_t num_heads) const;
  void check_places() const;

  Checkpoint checkpoint_;
  LlamaConfig config_;
  bool gguf_;
  std::string prefix_;  ///< "model." or, of a model saved without its head, none
};

}  // namespace stof::model
