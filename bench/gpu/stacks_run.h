#pragma once
// What programs run stacks of layers on, whatever runs them: weights, texts, masks.

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "bench/gpu/stacks.h"
#include "exec/batch.h"
#include "stof/mask.h"
#include "stof/tensor.h"

namespace stof::bench {

struct Shape {
  std::int64_t batch, seq;
};

/// A batch of texts of one length for each part, with the memory their inputs lie in.
struct Texts {
  std::vector<Tensor> x;
  std::vector<std::int32_t> positions;
  std::vector<exec::Batch> batches;

  Texts(const StackModel& model, const Shape& shape, const mask::Mask& mask,
        DType dtype = DType::kBFloat16);
};

/// A model with its random weights, of matrices in `dtype`.
class Stacks {
 public:
  Stacks(StackModel model, const std::string& mask, DType dtype);

  const StackModel& model() const { return model_; }
  const std::string& mask_name() const { return mask_name_; }
  const mask::Mask& mask() const { return mask_; }
  DType dtype() const { return dtype_; }
  const graph::Graph& graph(int part) const { return graphs_[static_cast<std::size_t>(part)]; }
  const exec::WeightViews& weights(int part) const {
    return weights_[static_cast<std::size_t>(part)].views;
  }

  exec::GraphOf graph_of(int part) const {
    return [model = model_, part, dtype = dtype_](std::int64_t rows) {
      return bench::stack_graph(model, rows, part, dtype);
    };
  }

  /// safetensors, under the graphs' names.
  void save_weights(const std::string& path) const;
  /// The last hidden states, [rows, hidden], computed by the CPU's kernels.
  Tensor cpu_states(const Shape& shape) const;

 private:
  StackModel model_;
  std::string mask_name_;
  mask::Mask mask_;
  DType dtype_;
  std::vector<graph::Graph> graphs_;
  std::deque<StackWeights> weights_;  ///< stay where they are, as views do
};

}  // namespace stof::bench
