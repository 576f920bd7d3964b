#include "graph/deferred_norm.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "core/check.h"
#include "core/text.h"

namespace stof::graph {
namespace {

/// Names of vectors of ones begin so, and end with their width.
constexpr std::string_view kUnitGamma = "unit_gamma.";

/// Operators of the old graph by what becomes of them.
struct Decision {
  std::set<OperatorId> deferred;           ///< norms
  std::set<OperatorId> squared;            ///< whose outputs' squares are summed up
  std::map<OperatorId, OperatorId> norms;  ///< of products: the deferred norm they read
  std::vector<KeptNorm> kept;
};

/// Place of an operator among its layer's; of others none.
std::optional<int> place_of(const Graph& graph, OperatorId id) {
  const int layer = graph.op(id).layer;
  if (layer == kNoId) return std::nullopt;
  return id - graph.layer_range(layer).first;
}

/// Whether all layers have operators of the same kinds in the same order.
bool layers_are_alike(const Graph& graph) {
  const int layers = graph.num_layers();
  if (layers == 0) return true;
  const auto [first, last] = graph.layer_range(0);
  for (int layer = 1; layer < layers; ++layer) {
    const auto [begin, end] = graph.layer_range(layer);
    if (end - begin != last - first) return false;
    for (int i = 0; i <= last - first; ++i)
      if (graph.op(begin + i).op != graph.op(first + i).op) return false;
  }
  return true;
}

class Decider {
 public:
  explicit Decider(const Graph& graph) : graph_(graph) {}

  Decision decide() {
    std::set<OperatorId> fit;
    for (OperatorId i = 0; i < graph_.num_operators(); ++i) {
      const Op op = graph_.op(i).op;
      if (op == Op::kLayerNorm)
        keep(KeptNormCode::kCentred, i,
             "subtracts the mean, which cancels digits where it is large");
      else if (op == Op::kRmsNorm && fits(i))
        fit.insert(i);
    }
    const bool alike = layers_are_alike(graph_);
    std::set<int> squared_places;
    for (const OperatorId i : fit) {
      if (!alike || !fits_everywhere(i, fit)) {
        keep(KeptNormCode::kLayers, i, "can't be deferred in every layer alike");
        continue;
      }
      decision_.deferred.insert(i);
      const OperatorId source = source_of(i);
      if (const std::optional<int> place = place_of(graph_, source))
        squared_places.insert(*place);
      else
        decision_.squared.insert(source);
      for (const OperatorId reader : graph_.value(graph_.op(i).outputs[0]).consumers)
        decision_.norms[reader] = i;
    }
    for (const int place : squared_places)
      for (int layer = 0; layer < graph_.num_layers(); ++layer)
        decision_.squared.insert(graph_.layer_range(layer).first + place);
    return std::move(decision_);
  }

 private:
  OperatorId source_of(OperatorId norm) const {
    return graph_.value(graph_.op(norm).inputs[0]).producer;
  }

  void keep(KeptNormCode code, OperatorId norm, const std::string& why) {
    const std::string& name = graph_.op(norm).name;
    decision_.kept.push_back({code, name, fmt::format("{} {}", quote_text(name), why)});
  }

  /// The norm of the same place in every layer fits, too.
  bool fits_everywhere(OperatorId norm, const std::set<OperatorId>& fit) const {
    const int place = *place_of(graph_, norm);
    for (int layer = 0; layer < graph_.num_layers(); ++layer)
      if (!fit.contains(graph_.layer_range(layer).first + place)) return false;
    return true;
  }

  bool fits(OperatorId norm) {
    const Operator& op = graph_.op(norm);
    const ValueId made = op.outputs[0];
    const Value &x = graph_.value(op.inputs[0]), &result = graph_.value(made);
    const auto refuse = [&](KeptNormCode code, const std::string& why) {
      keep(code, norm, why);
      return false;
    };
    if (x.producer == kNoId || x.view_of != kNoId || x.overwrites != kNoId)
      return refuse(KeptNormCode::kSource,
                    fmt::format("reads {}, which no operator makes in memory of its own",
                                quote_text(x.name)));
    if (x.shape[1] % (2 * kSquaredColumns) != 0)
      return refuse(KeptNormCode::kWidth, fmt::format("has rows of {} columns, no multiple of {}",
                                                      x.shape[1], 2 * kSquaredColumns));
    if (result.live_out) return refuse(KeptNormCode::kLiveOut, "makes a result of the graph");
    for (const Value& value : graph_.values())
      if (value.view_of == made || value.overwrites == made)
        return refuse(KeptNormCode::kOtherConsumer,
                      fmt::format("lends its memory to {}", quote_text(value.name)));
    for (const OperatorId reader : result.consumers) {
      const Operator& product = graph_.op(reader);
      if (product.op != Op::kMatmul || product.inputs[0] != made)
        return refuse(KeptNormCode::kOtherConsumer,
                      fmt::format("is read by {}, no product of it", quote_text(product.name)));
      const Value& weight = graph_.value(product.inputs[1]);
      if (weight.kind != ValueKind::kWeight || weight.view_of != kNoId ||
          weight.consumers.size() != 1)
        return refuse(KeptNormCode::kSharedWeight,
                      fmt::format("is multiplied by {}, which is read elsewhere or is no weight",
                                  quote_text(weight.name)));
    }
    if (op.layer == kNoId)
      return refuse(KeptNormCode::kLayers,
                    "is outside of layers, where segments are not cut by what runs them");
    if (graph_.value(op.inputs[1]).kind != ValueKind::kWeight)
      return refuse(KeptNormCode::kSharedWeight,
                    fmt::format("has a gamma, {}, that is no weight",
                                quote_text(graph_.value(op.inputs[1]).name)));
    if (result.consumers.empty())
      return refuse(KeptNormCode::kOtherConsumer, "is read by no product");
    return true;
  }

  const Graph& graph_;
  Decision decision_;
};

/// The new graph, value by value and operator by operator.
class Rewriter {
 public:
  Rewriter(const Graph& graph, const Decision& decision, NormPlace place)
      : graph_(graph), decision_(decision), behind_(place == NormPlace::kBehind) {}

  Graph rewrite(std::vector<FoldedWeight>* folded) {
    for (const auto& [product, norm] : decision_.norms) {
      const ValueId weight = graph_.op(product).inputs[1], gamma = graph_.op(norm).inputs[1];
      const std::string& name = graph_.value(weight).name;
      folded_[weight] = name + ".times_gamma";
      folded->push_back({folded_[weight], name, graph_.value(gamma).name});
    }
    for (std::size_t i = 0; i < graph_.values().size(); ++i) take_value(static_cast<ValueId>(i));
    for (Value& value : values_) {
      if (value.view_of != kNoId) value.view_of = values_of_.at(value.view_of);
      if (value.overwrites != kNoId) value.overwrites = values_of_.at(value.overwrites);
    }
    for (OperatorId i = 0; i < graph_.num_operators(); ++i) take_operator(i);
    connect();
    Graph result(std::move(values_), std::move(operators_));
    result.validate();
    return result;
  }

 private:
  ValueId add(Value value) {
    values_.push_back(std::move(value));
    return static_cast<ValueId>(values_.size()) - 1;
  }

  static Value activation(const std::string& name, DType dtype, const Dims& shape) {
    Value value;
    value.name = name;
    value.dtype = dtype;
    value.shape = shape;
    return value;
  }

  ValueId unit_gamma(const Dims& shape) {
    const auto found = unit_gammas_.find(shape[0]);
    if (found != unit_gammas_.end()) return found->second;
    Value ones = activation(fmt::format("{}{}", kUnitGamma, shape[0]), DType::kFloat32, shape);
    ones.kind = ValueKind::kWeight;
    return unit_gammas_[shape[0]] = add(std::move(ones));
  }

  void take_value(ValueId id) {
    const Value& value = graph_.value(id);
    const bool made = value.producer != kNoId && value.view_of == kNoId;
    if (behind_ && made && decision_.deferred.contains(value.producer)) return;
    const auto is_deferred = [&](OperatorId reader) { return decision_.deferred.contains(reader); };
    if (value.kind == ValueKind::kWeight && !value.consumers.empty() &&
        std::all_of(value.consumers.begin(), value.consumers.end(), is_deferred)) {  // gamma
      if (!behind_) values_of_[id] = unit_gamma(value.shape);
      return;
    }
    if (behind_ && made && decision_.norms.contains(value.producer))
      unscaled_[id] = add(activation(value.name + ".unscaled", value.dtype, value.shape));
    Value copy = value;
    if (const auto found = folded_.find(id); found != folded_.end()) copy.name = found->second;
    values_of_[id] = add(std::move(copy));
    if (behind_ && made && decision_.squared.contains(value.producer))
      squares_[id] = add(activation(value.name + ".squares", DType::kFloat32,
                                    {value.shape[0], value.shape[1] / kSquaredColumns}));
  }

  void take_operator(OperatorId id) {
    if (behind_ && decision_.deferred.contains(id)) return;
    Operator op = graph_.op(id);
    const ValueId made = op.outputs[0];
    const auto norm = decision_.norms.find(id);
    if (behind_ && norm != decision_.norms.end()) {
      const Operator& deferred = graph_.op(norm->second);
      Operator scale{Op::kRmsScale,
                     op.name,
                     op.layer,
                     {unscaled_.at(made), squares_.at(deferred.inputs[0])},
                     {values_of_.at(made)},
                     {}};
      scale.attributes.epsilon = deferred.attributes.epsilon;
      op.name += ".unscaled";
      op.inputs = {values_of_.at(deferred.inputs[0]), values_of_.at(op.inputs[1])};
      op.outputs = {unscaled_.at(made)};
      operators_.push_back(std::move(op));
      operators_.push_back(std::move(scale));
    } else {
      // In front, a deferred norm has ones for gamma, whatever else reads the gamma.
      const bool ones = decision_.deferred.contains(id);
      for (std::size_t i = 0; i < op.inputs.size(); ++i)
        op.inputs[i] = ones && i == 1 ? unit_gamma(graph_.value(op.inputs[1]).shape)
                                      : values_of_.at(op.inputs[i]);
      for (ValueId& output : op.outputs) output = values_of_.at(output);
      operators_.push_back(std::move(op));
    }
    if (const auto sums = squares_.find(made); sums != squares_.end())
      operators_.push_back({Op::kRowSquares,
                            graph_.value(made).name + ".squares",
                            graph_.op(id).layer,
                            {values_of_.at(made)},
                            {sums->second},
                            {}});
  }

  /// Producers and consumers, by the operators.
  void connect() {
    const auto at = [&](ValueId id) -> Value& { return values_[static_cast<std::size_t>(id)]; };
    for (Value& value : values_) value.consumers.clear();
    for (std::size_t i = 0; i < operators_.size(); ++i) {
      const auto id = static_cast<OperatorId>(i);
      for (const ValueId output : operators_[i].outputs) at(output).producer = id;
      for (const ValueId input : operators_[i].inputs)
        for (ValueId read = input; read != kNoId; read = at(read).view_of)
          if (at(read).consumers.empty() || at(read).consumers.back() != id)
            at(read).consumers.push_back(id);
    }
    for (Value& value : values_)
      if (value.view_of != kNoId) value.producer = at(value.view_of).producer;
  }

  const Graph& graph_;
  const Decision& decision_;
  const bool behind_;
  std::map<std::int64_t, ValueId> unit_gammas_;  ///< by width
  std::map<ValueId, std::string> folded_;        ///< weights of the old graph, and their new names
  std::map<ValueId, ValueId> values_of_, unscaled_, squares_;  ///< by the old graph's
  std::vector<Value> values_;
  std::vector<Operator> operators_;
};

}  // namespace

std::string_view to_string(KeptNormCode code) {
  switch (code) {
    case KeptNormCode::kCentred:
      return "centred";
    case KeptNormCode::kLiveOut:
      return "live_out";
    case KeptNormCode::kOtherConsumer:
      return "other_consumer";
    case KeptNormCode::kSharedWeight:
      return "shared_weight";
    case KeptNormCode::kSource:
      return "source";
    case KeptNormCode::kWidth:
      return "width";
    case KeptNormCode::kLayers:
      return "layers";
  }
  throw_error(ErrorCode::kInternal, "kept norm {} has no name", static_cast<int>(code));
}

DeferredNorms defer_norms(const Graph& graph, NormPlace place) {
  const Decision decision = Decider(graph).decide();
  std::vector<FoldedWeight> folded;
  Graph rewritten = Rewriter(graph, decision, place).rewrite(&folded);
  return {std::move(rewritten), std::move(folded), decision.kept};
}

DeferredWeights::DeferredWeights(const Graph& old, const DeferredNorms& deferred,
                                 const std::map<ValueId, TensorView>& old_views) {
  const auto view_of = [&](const std::string& name) {
    const auto found = old_views.find(old.find(name));
    STOF_CHECK(found != old_views.end(), kInvalidArgument, "weight {}: expected a tensor, got none",
               quote_text(name));
    return found->second;
  };
  std::map<std::string, const FoldedWeight*> folded;
  for (const FoldedWeight& one : deferred.folded) folded[one.name] = &one;
  for (const ValueId id : deferred.graph.of_kind(ValueKind::kWeight)) {
    const std::string& name = deferred.graph.value(id).name;
    const auto found = folded.find(name);
    if (name.starts_with(kUnitGamma) && old.find(name) == kNoId) {
      Tensor& ones = tensors.emplace_back(DType::kFloat32, deferred.graph.value(id).shape);
      std::ranges::fill(ones.as<float>(), 1.f);
      views[id] = std::as_const(ones).view();
      continue;
    }
    if (found == folded.end()) {
      views[id] = view_of(name);
      continue;
    }
    const TensorView source = view_of(found->second->weight);
    Tensor weight = Tensor::converted(source, DType::kFloat32);
    const Tensor gamma = Tensor::converted(view_of(found->second->gamma), DType::kFloat32);
    const std::span<const float> factors = gamma.as<float>();
    std::size_t column = 0;
    for (float& element : weight.as<float>()) {
      element *= factors[column];
      if (++column == factors.size()) column = 0;
    }
    tensors.push_back(source.dtype == DType::kFloat32
                          ? std::move(weight)
                          : Tensor::converted(std::as_const(weight).view(), source.dtype));
    views[id] = std::as_const(tensors.back()).view();
  }
}

}  // namespace stof::graph
