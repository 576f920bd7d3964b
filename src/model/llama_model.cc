#include "model/llama_model.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "model/llama_graph.h"
#include "model/llama_weights.h"

namespace stof::model {
namespace {

class LlamaModel final : public DecoderModel {
 public:
  LlamaModel(LlamaWeights weights, const LlamaConfig& config, DecoderFacts facts)
      : DecoderModel(std::move(facts)), weights_(std::move(weights)), config_(config) {}

  graph::Graph graph(std::int64_t rows, DType dtype,
                     const DecoderGraphOptions& options) const override {
    return build_llama_graph(config_, rows, dtype, options);
  }
  GraphWeights weights(const graph::Graph& graph) const override {
    return bind_llama_weights(graph, weights_);
  }
  std::vector<mask::Mask> masks(const mask::Mask& also) const override {
    return llama_masks(config_, also);
  }

 private:
  LlamaWeights weights_;
  LlamaConfig config_;
};

}  // namespace

std::unique_ptr<const DecoderModel> make_llama_model(Checkpoint checkpoint, LlamaConfig config) {
  LlamaWeights weights(std::move(checkpoint), config);  // says what of a GGUF file tensors decide
  DecoderFacts facts;
  facts.num_layers = config.num_layers;
  facts.num_heads = config.num_heads;
  facts.vocab_size = config.vocab_size;
  facts.max_positions = config.max_positions;
  facts.position_table = config.rope.bounded;
  facts.end_tokens = config.end_tokens;
  const std::int64_t window = *std::max_element(config.windows.begin(), config.windows.end());
  facts.description = fmt::format(
      "{}: {} layers, hidden {}, {} heads of {} ({} of keys and values), inner {} with silu gates, "
      "vocabulary {}{}, {} positions{}",
      config.family, config.num_layers, config.hidden_size, config.num_heads, config.head_dim,
      config.num_kv_heads, config.intermediate_size, config.vocab_size,
      config.tied_head ? " (tied)" : "", config.max_positions,
      window > 0 ? fmt::format(", window {}", window) : "");
  return std::make_unique<LlamaModel>(std::move(weights), config, std::move(facts));
}

}  // namespace stof::model
