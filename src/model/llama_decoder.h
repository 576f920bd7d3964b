#pragma once
// The LLaMA family's stack of layers on the CPU, in float32.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/cpu/gemm.h"
#include "model/kv_cache.h"
#include "model/llama_weights.h"
#include "stof/attention.h"
#include "stof/mask.h"

namespace stof::model {

/// Wall time of the parts of forward passes, seconds; added to.
struct DecoderTiming {
  double plan = 0, attention = 0;
};

/// Immutable; safe from several threads, each with a cache of its own.
class LlamaDecoder {
 public:
  /// Throws what LlamaWeights does.
  LlamaDecoder(Checkpoint checkpoint, LlamaConfig config);

  const LlamaConfig& config() const { return config_; }
  KvCache make_cache() const {
    return {config_.num_layers, config_.num_kv_heads * config_.head_dim};
  }

  enum class Rows : std::uint8_t { kLast, kAll };
  /// Reads the tokens `ids`, which follow those of `cache`, and adds them to it. Float32 logits
  /// [rows, vocabulary] of the last of them or of all. A token sees itself and those before that
  /// the layer's window and `mask` show, in positions of the whole sequence. Uses the threads of
  /// the calling thread's ThreadScope. Throws InvalidArgument naming the first token that the model
  /// does not know, or positions past the last; the cache is then as before.
  Tensor forward(std::span<const std::int32_t> ids, KvCache& cache, const mask::Mask& mask,
                 Rows rows, DecoderTiming& timing) const;

 private:
  struct Layer {
    Tensor attention_norm;
    cpu::Linear query_key_value;
    cpu::Linear attention_output;  ///< adds the residual stream, as does `down`
    Tensor mlp_norm;
    cpu::Linear gate, up, down;  ///< `gate` through SiLU; `up` times that
  };
  struct Step;  ///< what the layers of one pass share
  void run_layer(std::size_t index, Step& step) const;
  void check_ids(std::span<const std::int32_t> ids, std::int64_t first_position) const;

  LlamaConfig config_;
  Tensor embeddings_, final_norm_;
  std::vector<float> rope_frequencies_;
  std::vector<Layer> layers_;
  std::unique_ptr<cpu::Linear> head_;
};

}  // namespace stof::model
