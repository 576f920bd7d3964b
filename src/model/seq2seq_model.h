#pragma once
// Encoder-decoders of any family: what turning one text into another asks of a model.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "model/graph_weights.h"

namespace stof::model {

struct Seq2SeqGraphOptions {
  /// Rows of each decoder layer's cache of the encoder's keys and values, "layer.3.cross_cache",
  /// [cross_cache_size, 2 heads head_dim]: the encoder's graph stores to it what the decoder's
  /// cross-attention reads. The encoder's with 0: none is stored.
  std::int64_t cross_cache_size = 0;
  std::int64_t cache_size = 0;  ///< the decoder: rows of each layer's own cache, "layer.3.cache"
  /// Gate and up projections are one product, as of DecoderGraphOptions.
  bool joined_gate = false;
  std::int64_t head_rows = 0;  ///< the decoder: as of DecoderGraphOptions
  bool pad_vocabulary = false;

  /// Rows of the table of embeddings, columns of the logits.
  std::int64_t vocabulary(std::int64_t vocab_size) const {
    return pad_vocabulary ? (vocab_size + 7) / 8 * 8 : vocab_size;
  }
};

struct Seq2SeqFacts {
  std::int64_t encoder_layers = 0, decoder_layers = 0, num_heads = 0, hidden_size = 0,
               vocab_size = 0;
  std::int32_t start_token = 0;          ///< what the decoder reads first
  std::vector<std::int32_t> end_tokens;  ///< after these the text is over
  std::string description;               ///< one line for people
};

/// A checkpoint with its configuration. Immutable; safe from several threads.
class Seq2SeqModel {
 public:
  explicit Seq2SeqModel(Seq2SeqFacts facts) : facts_(std::move(facts)) {}
  virtual ~Seq2SeqModel() = default;

  const Seq2SeqFacts& facts() const { return facts_; }
  /// Of `rows` packed tokens. Inputs "ids", int32 [rows], and with a cross cache "slots", int32
  /// [rows]: each row's place in it. The result is what the encoder made of the text, [rows,
  /// hidden_size]. Attention is under mask 0.
  virtual graph::Graph encoder_graph(std::int64_t rows, DType dtype,
                                     const Seq2SeqGraphOptions& options) const = 0;
  /// Inputs "ids" and "slots", int32 [rows], with head_rows "head_rows", int32 [head_rows]. The
  /// result is the logits, [rows or head_rows, vocabulary]. Attention to the decoder's own tokens
  /// is under mask 0, which shows no later ones; cross-attention is under mask 1.
  virtual graph::Graph decoder_graph(std::int64_t rows, DType dtype,
                                     const Seq2SeqGraphOptions& options) const = 0;
  /// For every weight of such a graph. Throws what reading them does.
  virtual GraphWeights encoder_weights(const graph::Graph& graph) const = 0;
  virtual GraphWeights decoder_weights(const graph::Graph& graph) const = 0;

 private:
  Seq2SeqFacts facts_;
};

}  // namespace stof::model
