#pragma once
// Random layers with random operands, and random legal schemes of them.

#include <deque>
#include <optional>
#include <random>
#include <string>

#include "backend/cpu/graph/interpret.h"
#include "fusion/segment.h"
#include "graph/graph.h"

namespace stof::fusion {

class RandomGraph {
 public:
  static constexpr std::int64_t kRows = 5, kWidth = 8, kSquared = 64;

  explicit RandomGraph(unsigned seed) : generator_(seed), seed_(seed) {
    ValueId x = builder_.input("x", DType::kFloat32, {kRows, kWidth});
    positions_ = builder_.input("positions", DType::kInt32, {kRows});
    position_values_ = {0, 1, 2, 0, 7};
    slots_ = builder_.input("slots", DType::kInt32, {kRows});
    slot_values_ = {3, 0, -1, 6, 2};
    builder_.begin_layer(x);
    ValueId residual = x;
    const int parts = 3 + pick(5);
    for (int i = 0; i < parts; ++i) x = append(x, residual);
    builder_.end_layer(x);
    builder_.mark_live_out(builder_.stamp_layers(2));
    graph_.emplace(builder_.build());
    // Operands for the stamped layer too.
    for (const auto kind :
         {graph::ValueKind::kInput, graph::ValueKind::kWeight, graph::ValueKind::kState})
      for (const ValueId id : graph_->of_kind(kind))
        if (graph_->value(id).dtype == DType::kFloat32 && graph_->value(id).view_of == kNoId)
          bind_values(id);
    operands_.values[positions_] = {position_values_.data(), DType::kInt32, {kRows}};
    operands_.values[slots_] = {slot_values_.data(), DType::kInt32, {kRows}};
    operands_.offsets = {0, 3, kRows};
    operands_.mask = mask::causal();
  }

  const Graph& graph() const { return *graph_; }
  const cpu::GraphOperands& operands() const { return operands_; }

  /// 0: as few segments as a greedy cut gives; else cut at random where it must not be.
  Scheme legal_scheme(unsigned cut) const {
    std::mt19937 generator(seed_ * 16 + cut);
    const auto [first, last] = graph_->layer_range(0);
    std::vector<int> sizes = {1};
    for (OperatorId i = first + 1; i <= last; ++i) {
      const bool legal = legality(*graph_, i - sizes.back(), i).empty();
      // What a longer segment allows a shorter one may not: a gate's halves go together.
      const bool gate =
          !legal && i + 1 <= last && legality(*graph_, i - sizes.back(), i + 1).empty();
      if (gate) {
        sizes.back() += 2;
        ++i;
      } else if (legal && (cut == 0 || generator() % 3 != 0)) {
        ++sizes.back();
      } else {
        sizes.push_back(1);
      }
    }
    return Scheme::from_sizes(sizes);
  }

 private:
  int pick(int choices) { return static_cast<int>(generator_() % static_cast<unsigned>(choices)); }
  std::string name(const char* kind) {
    return "layer.0." + std::string(kind) + std::to_string(count_++);
  }

  ValueId weight(const Dims& shape) {
    return builder_.weight(name("weight"), DType::kFloat32, shape);
  }

  /// One to four operators; keeps the width. `residual` is what a later one may add.
  ValueId append(ValueId x, ValueId& residual) {
    using graph::Activation;
    switch (pick(12)) {
      case 10: {  // a norm of a wide row deferred behind its product
        const ValueId wide = builder_.matmul(name("wide"), x, weight({kSquared, kWidth}));
        const ValueId squares = builder_.row_squares(name("squares"), wide);
        const ValueId product = builder_.matmul(name("narrow"), wide, weight({kWidth, kSquared}));
        return builder_.rms_scale(name("scaled"), product, squares, pick(2) == 0 ? 1e-5 : 0.3);
      }
      case 0:
        return builder_.matmul(name("matmul"), x, weight({kWidth, kWidth}));
      case 1:
        return builder_.bias(name("bias"), x, weight({kWidth}));
      case 2:
        return builder_.activation(name("act"), x, static_cast<Activation>(1 + pick(4)));
      case 3: {
        const bool swapped = pick(2) == 0;
        const ValueId sum =
            builder_.add(name("add"), swapped ? residual : x, swapped ? x : residual);
        residual = sum;
        return sum;
      }
      case 4:
        return builder_.layer_norm(name("norm"), x, weight({kWidth}), weight({kWidth}),
                                   pick(2) == 0 ? 1e-12 : 0.3);
      case 5:
        return builder_.rms_norm(name("rms"), x, weight({kWidth}), pick(2) == 0 ? 1e-6 : 0.2);
      case 6: {
        const ValueId scale = builder_.input(name("scale"), DType::kFloat32, {kRows, 1});
        return builder_.multiply(name("scaled"), x, scale);
      }
      case 7: {  // also as layers with a cache have it, which the rows are read beside
        if (pick(2) == 0)
          x = builder_.head_norm(name("heads"), x, weight({2}), weight({2}), 2, 1, 2,
                                 pick(2) == 0 ? 1e-6 : 0.2);
        const ValueId turned = builder_.rope(name("rope"), x, positions_, weight({1}), 2, 1, 2);
        if (pick(2) == 0) {
          const ValueId cache = builder_.state(name("cache"), DType::kFloat32, {7, 4});
          builder_.cache_store(name("stored"), turned, slots_, cache, 2, 1, 2);
        }
        return turned;
      }
      case 8: {  // gate and up in one product
        const ValueId wide = builder_.matmul(name("wide"), x, weight({2 * kWidth, kWidth}));
        const std::int64_t column = pick(2) * kWidth;
        const ValueId gate = builder_.columns(name("gate"), wide, column, kWidth);
        const ValueId up = builder_.columns(name("up"), wide, kWidth - column, kWidth);
        const ValueId act = builder_.activation(name("act"), gate, Activation::kSilu);
        return builder_.multiply(name("gated"), up, act);
      }
      case 9: {  // attention over columns of one product
        const ValueId qkv = builder_.matmul(name("qkv"), x, weight({kWidth + 8, kWidth}));
        const ValueId q = builder_.columns(name("q"), qkv, 0, kWidth);
        const ValueId k = builder_.columns(name("k"), qkv, kWidth, 4);
        const ValueId v = builder_.columns(name("v"), qkv, kWidth + 4, 4);
        return builder_.attention(name("attention"), q, k, v, 2, 1, 4, pick(2) * 0.4);
      }
      default: {  // a residual stream that goes on beside the norm, as in pre-norm layers
        residual = builder_.add(name("add"), x, residual);
        const ValueId norm = builder_.rms_norm(name("rms"), residual, weight({kWidth}), 1e-5);
        return builder_.add(name("add"), norm, residual);
      }
    }
  }

  void bind_values(ValueId id) {
    const graph::Value& value = graph_->value(id);
    Tensor tensor(DType::kFloat32, value.shape);
    const bool matrix = value.kind == graph::ValueKind::kWeight && value.shape.rank() == 2;
    std::normal_distribution<float> normal(0, matrix ? 0.4f : 1.f);
    for (float& element : tensor.as<float>()) element = normal(generator_);
    tensors_.push_back(std::move(tensor));
    operands_.values[id] = std::as_const(tensors_.back()).view();
  }

  std::mt19937 generator_;
  unsigned seed_;
  graph::GraphBuilder builder_;
  std::optional<Graph> graph_;
  int count_ = 0;
  ValueId positions_ = kNoId, slots_ = kNoId;
  std::vector<std::int32_t> position_values_, slot_values_;
  std::deque<Tensor> tensors_;
  cpu::GraphOperands operands_;
};

}  // namespace stof::fusion
