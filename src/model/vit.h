#pragma once
// ViT (Dosovitskiy et al. 2021, arXiv 2010.11929): an encoder of an image's patches, with a class
// token in front.

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cpu/gemm.h"
#include "graph/graph.h"
#include "model/graph_weights.h"
#include "stof/checkpoint.h"

namespace stof::model {

struct VitConfig {
  std::int64_t hidden_size = 0, num_layers = 0, num_heads = 0, intermediate_size = 0;
  std::int64_t image_height = 0, image_width = 0, patch_height = 0, patch_width = 0;
  cpu::Activation activation = cpu::Activation::kGeluErf;
  float layer_norm_eps = 0;
  bool qkv_bias = true;
  std::vector<std::string> labels;  ///< by id; at least two

  std::int64_t head_dim() const { return hidden_size / num_heads; }
  std::int64_t patch_values() const { return 3 * patch_height * patch_width; }
  /// Tokens of an image: the class token, then the patches row by row.
  std::int64_t num_tokens() const {
    return 1 + image_height / patch_height * (image_width / patch_width);
  }
};

/// Honours every field that changes numbers or refuses it by name; throws Corrupt or Unsupported.
VitConfig parse_vit_config(std::string_view text, const std::string& file);
VitConfig load_vit_config(const std::string& folder);

/// float32 views, into the checkpoint or `converted`.
struct VitWeights {
  std::map<std::string, TensorView> named;  ///< by their names in the graph
  TensorView classifier, classifier_bias;   ///< [labels, hidden], [labels]

  Checkpoint checkpoint;
  std::deque<Tensor> converted;
};

/// Names are those of ViTForImageClassification as transformers writes them. Throws NotFound or
/// Corrupt naming checkpoint, tensor, expected and found shape.
VitWeights load_vit_weights(Checkpoint checkpoint, const VitConfig& config);

/// The graph of `rows` tokens in float32. Inputs: "patches", float32 [rows, patch_values], zeros
/// for class tokens, and "places", int32 [rows]: 0 for a class token, 1 + the number of its patch
/// for others. "places.table" is what stands there before the patch is added: the class token, or
/// the projection's bias, and the position's embedding. The result is the last norm's output,
/// [rows, hidden].
graph::Graph build_vit_graph(const VitConfig& config, std::int64_t rows);

GraphWeights bind_vit_weights(const graph::Graph& graph, const VitWeights& weights);

}  // namespace stof::model
