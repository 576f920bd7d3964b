#pragma once
// Decoders of any family: what generating text asks of a model.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "model/graph_weights.h"
#include "stof/mask.h"

namespace stof::model {

struct DecoderGraphOptions {
  /// Rows of each layer's cache of keys and values, which what is computed is stored in; 0: none.
  std::int64_t cache_size = 0;
  /// Rows attend to the keys of their sequences in the caches, their own among them, instead of to
  /// the rows of the pass: chunks of a prompt after the first, and decoding.
  bool reads_cache = false;
  /// Gate and up projections, where the family has them, are one product, "layer.3.gate_up.weight"
  /// (gate above up), whose kernel multiplies its own halves; else two, the second of which
  /// multiplies by the first.
  bool joined_gate = false;
  /// Logits are computed of so many rows at most, which input "head_rows" picks; 0: of all.
  std::int64_t head_rows = 0;
  /// The vocabulary is filled up to a multiple of 8, as GPU kernels need it, with tokens whose
  /// embeddings are zeros.
  bool pad_vocabulary = false;

  /// Rows of the table of embeddings, columns of the logits.
  std::int64_t vocabulary(std::int64_t vocab_size) const {
    return pad_vocabulary ? (vocab_size + 7) / 8 * 8 : vocab_size;
  }
  /// Throws InvalidArgument naming an option that cannot be, and rows below 1 or a dtype other than
  /// float32, float16 and bfloat16. `what` begins messages: "LLaMA graph".
  void validate(const std::string& what, std::int64_t rows, DType dtype) const;
};

struct DecoderFacts {
  std::int64_t num_layers = 0, num_heads = 0, vocab_size = 0, max_positions = 0;
  bool position_table = false;           ///< a position past max_positions has no numbers
  std::vector<std::int32_t> end_tokens;  ///< after these the text is over
  std::string description;               ///< one line for people
};

/// A checkpoint with its configuration. Immutable; safe from several threads.
class DecoderModel {
 public:
  explicit DecoderModel(DecoderFacts facts) : facts_(std::move(facts)) {}
  virtual ~DecoderModel() = default;

  const DecoderFacts& facts() const { return facts_; }
  /// Inputs "ids" and "positions", int32 [rows], with a cache "slots", int32 [rows], with head_rows
  /// "head_rows", int32 [head_rows]. The result is the logits, [rows or head_rows, vocabulary].
  virtual graph::Graph graph(std::int64_t rows, DType dtype,
                             const DecoderGraphOptions& options) const = 0;
  /// For every weight of such a graph. Throws what reading them does.
  virtual GraphWeights weights(const graph::Graph& graph) const = 0;
  /// The masks that its attention is under, each & `also`, in the order of Attributes::mask.
  virtual std::vector<mask::Mask> masks(const mask::Mask& also) const = 0;

 private:
  DecoderFacts facts_;
};

}  // namespace stof::model
