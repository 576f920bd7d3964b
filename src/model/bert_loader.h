#pragma once
// Reads a checkpoint's tensors as float32.

#include <deque>
#include <string>

#include "model/bert_family.h"
#include "model/bert_weights.h"

namespace stof::model {

/// Views are into the checkpoint or, where it holds float16, bfloat16 or unaligned data, into
/// `converted`. Throws what load_bert_weights() does.
class BertLoader {
 public:
  /// `prefix` stands before every name.
  BertLoader(const Checkpoint& checkpoint, std::deque<Tensor>& converted, std::string prefix)
      : checkpoint_(checkpoint), converted_(converted), prefix_(std::move(prefix)) {}

  /// The family's prefix in this checkpoint.
  static std::string find_prefix(const Checkpoint& checkpoint, const BertNames& names);

  TensorView tensor(const std::string& name, const Dims& shape);
  BertWeights::Dense dense(const std::string& name, std::int64_t in, std::int64_t out,
                           bool has_bias = true);
  /// Without a bias, beta is of zeros.
  BertWeights::Norm norm(const std::string& name, std::int64_t width, bool has_bias = true);

 private:
  const Checkpoint& checkpoint_;
  std::deque<Tensor>& converted_;
  std::string prefix_;
};

}  // namespace stof::model
