#pragma once
// A small BERT checkpoint with seeded random weights, written as an ordinary folder, and the same
// network as plain loops in double; the loops also run the weights of a real folder.

#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numbers>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "core/file.h"
#include "model/temporary_folder.h"
#include "stof/checkpoint.h"
#include "stof/mask.h"
#include "stof/safetensors.h"

namespace stof::model {

class TinyBert {
 public:
  struct Sizes {
    std::int64_t hidden = 24, heads = 3, inner = 40, layers = 2;
  };

  /// Fields of config.json; tests change them before write().
  nlohmann::json config = {{"model_type", "bert"},           {"hidden_size", 24},
                           {"num_hidden_layers", 2},         {"num_attention_heads", 3},
                           {"intermediate_size", 40},        {"vocab_size", 30},
                           {"max_position_embeddings", 400}, {"type_vocab_size", 2},
                           {"layer_norm_eps", 1e-12},        {"hidden_act", "gelu"}};
  std::map<std::string, Tensor> tensors;
  std::string prefix;  ///< in front of every name in the file

  explicit TinyBert(unsigned seed = 1) : TinyBert(seed, Sizes{}) {}
  TinyBert(unsigned seed, const Sizes& sizes) : generator_(seed) {
    const std::int64_t hidden = sizes.hidden, inner = sizes.inner;
    config["hidden_size"] = hidden;
    config["num_attention_heads"] = sizes.heads;
    config["intermediate_size"] = inner;
    config["num_hidden_layers"] = sizes.layers;
    random("embeddings.word_embeddings.weight", {30, hidden});
    random("embeddings.position_embeddings.weight", {400, hidden});
    random("embeddings.token_type_embeddings.weight", {2, hidden});
    norm("embeddings.LayerNorm", hidden);
    for (std::int64_t i = 0; i < sizes.layers; ++i) {
      const std::string layer = "encoder.layer." + std::to_string(i) + ".";
      for (const char* part : {"query", "key", "value"})
        dense(layer + "attention.self." + part, hidden, hidden);
      dense(layer + "attention.output.dense", hidden, hidden);
      norm(layer + "attention.output.LayerNorm", hidden);
      dense(layer + "intermediate.dense", hidden, inner);
      dense(layer + "output.dense", inner, hidden);
      norm(layer + "output.LayerNorm", hidden);
    }
  }

  /// Weights and settings of an ordinary folder, for run().
  static TinyBert of_folder(const std::string& folder) {
    TinyBert real(1);
    real.config = nlohmann::json::parse(read_text_file(folder + "/config.json", 1 << 20));
    real.tensors.clear();
    const Checkpoint checkpoint = Checkpoint::open(folder);
    for (const std::string_view name : checkpoint.names()) {
      const TensorView& view = checkpoint.require(name);
      const std::size_t start = name.rfind("bert.", 0) == 0 ? 5 : 0;
      if (view.dtype != DType::kInt64)  // position_ids
        real.tensors.insert_or_assign(std::string(name.substr(start)),
                                      Tensor::converted(view, DType::kFloat32));
    }
    return real;
  }

  /// A vocabulary of the special tokens and the letters a to y: ids 5 to 29.
  static std::string vocab() {
    std::string text = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
    for (char letter = 'a'; letter <= 'y'; ++letter) text += std::string(1, letter) + "\n";
    return text;
  }

  /// `count` letters with spaces between: a text of count + 2 tokens.
  static std::string letters(int count, unsigned seed) {
    std::mt19937 generator(seed);
    std::string text;
    for (int i = 0; i < count; ++i) text += {static_cast<char>('a' + generator() % 25), ' '};
    return text;
  }

  void write(const TemporaryFolder& folder) const {
    folder.write("config.json", config.dump());
    folder.write("vocab.txt", vocab());
    std::vector<NamedTensor> named;
    for (const auto& [name, tensor] : tensors) named.push_back({prefix + name, tensor.view()});
    save_safetensors(folder.path() + "/model.safetensors", named);
  }

  /// Last hidden states, [tokens][hidden], as the config says.
  std::vector<std::vector<double>> run(const std::vector<std::int32_t>& ids,
                                       const mask::Mask& unbound) const {
    const auto length = static_cast<std::int64_t>(ids.size());
    const mask::Mask mask =
        unbound.bind({1, config["num_attention_heads"].get<std::int64_t>(), length, length});
    return run_where(ids, [&](int, std::int64_t h, std::int64_t q, std::int64_t k) {
      return mask.visible(0, h, q, k);
    });
  }

  /// The same where each layer and head says which keys a query sees.
  using Visible = std::function<bool(int layer, std::int64_t head, std::int64_t q, std::int64_t k)>;
  std::vector<std::vector<double>> run_where(const std::vector<std::int32_t>& ids,
                                             const Visible& visible) const;

  void random(const std::string& name, const Dims& shape, float scale = 0.5f, float shift = 0) {
    std::normal_distribution<float> normal(shift, scale);
    Tensor tensor(DType::kFloat32, shape);
    for (float& value : tensor.as<float>()) value = normal(generator_);
    tensors.insert_or_assign(name, std::move(tensor));
  }

 private:
  using Rows = std::vector<std::vector<double>>;

  /// Wider rows get smaller weights: sums, and so the scores of attention, keep their size.
  void dense(const std::string& name, std::int64_t in, std::int64_t out) {
    random(name + ".weight", {out, in}, 0.3f * std::sqrt(24.f / static_cast<float>(in)));
    random(name + ".bias", {out}, 0.2f);
  }
  void norm(const std::string& name, std::int64_t width) {
    random(name + ".weight", {width}, 0.2f, 1);
    random(name + ".bias", {width}, 0.2f);
  }

  std::span<const float> values(const std::string& name) const {
    return tensors.at(name).as<float>();
  }
  Rows apply_dense(const Rows& x, const std::string& name) const {
    const std::span<const float> weight = values(name + ".weight"), bias = values(name + ".bias");
    Rows y(x.size(), std::vector<double>(bias.size()));
    for (std::size_t t = 0; t < x.size(); ++t)
      for (std::size_t o = 0; o < bias.size(); ++o) {
        y[t][o] = bias[o];
        for (std::size_t i = 0; i < x[t].size(); ++i)
          y[t][o] += x[t][i] * weight[o * x[t].size() + i];
      }
    return y;
  }
  void add_and_norm(Rows& x, const Rows& update, const std::string& name) const {
    const std::span<const float> scale = values(name + ".weight"), shift = values(name + ".bias");
    const double epsilon = config["layer_norm_eps"];
    for (std::size_t t = 0; t < x.size(); ++t) {
      double mean = 0, variance = 0;
      const auto width = static_cast<double>(x[t].size());
      for (std::size_t i = 0; i < x[t].size(); ++i) {
        x[t][i] += update[t][i];
        mean += x[t][i] / width;
      }
      for (const double v : x[t]) variance += (v - mean) * (v - mean) / width;
      for (std::size_t i = 0; i < x[t].size(); ++i)
        x[t][i] = (x[t][i] - mean) / std::sqrt(variance + epsilon) * scale[i] + shift[i];
    }
  }
  static double activate(const std::string& name, double x) {
    if (name == "relu") return std::max(x, 0.0);
    if (name == "gelu") return x / 2 * (1 + std::erf(x / std::numbers::sqrt2));
    return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
  }
  Rows attend(const Rows& q, const Rows& k, const Rows& v, int layer, const Visible& visible) const;

  std::mt19937 generator_;
};

inline TinyBert::Rows TinyBert::attend(const Rows& q, const Rows& k, const Rows& v, int layer,
                                       const Visible& visible) const {
  const std::size_t heads = config["num_attention_heads"], dim = q[0].size() / heads;
  Rows out(q.size(), std::vector<double>(q[0].size()));
  for (std::size_t h = 0; h < heads; ++h)
    for (std::size_t i = 0; i < q.size(); ++i) {
      double sum = 0;
      for (std::size_t j = 0; j < k.size(); ++j) {
        if (!visible(layer, static_cast<std::int64_t>(h), static_cast<std::int64_t>(i),
                     static_cast<std::int64_t>(j)))
          continue;
        double score = 0;
        for (std::size_t d = h * dim; d < (h + 1) * dim; ++d) score += q[i][d] * k[j][d];
        const double weight = std::exp(score / std::sqrt(static_cast<double>(dim)));
        sum += weight;
        for (std::size_t d = h * dim; d < (h + 1) * dim; ++d) out[i][d] += weight * v[j][d];
      }
      for (std::size_t d = h * dim; sum > 0 && d < (h + 1) * dim; ++d) out[i][d] /= sum;
    }
  return out;
}

inline std::vector<std::vector<double>> TinyBert::run_where(const std::vector<std::int32_t>& ids,
                                                            const Visible& visible) const {
  const std::size_t hidden = config["hidden_size"];
  const auto words = values("embeddings.word_embeddings.weight"),
             positions = values("embeddings.position_embeddings.weight"),
             segments = values("embeddings.token_type_embeddings.weight");
  Rows x(ids.size(), std::vector<double>(hidden)), embedded = x;
  for (std::size_t t = 0; t < ids.size(); ++t)
    for (std::size_t i = 0; i < hidden; ++i)
      embedded[t][i] = static_cast<double>(words[static_cast<std::size_t>(ids[t]) * hidden + i]) +
                       positions[t * hidden + i] + segments[i];
  add_and_norm(x, embedded, "embeddings.LayerNorm");
  const std::string activation = config["hidden_act"];
  for (int i = 0; i < config["num_hidden_layers"].get<int>(); ++i) {
    const std::string layer = "encoder.layer." + std::to_string(i) + ".";
    const Rows context = attend(apply_dense(x, layer + "attention.self.query"),
                                apply_dense(x, layer + "attention.self.key"),
                                apply_dense(x, layer + "attention.self.value"), i, visible);
    add_and_norm(x, apply_dense(context, layer + "attention.output.dense"),
                 layer + "attention.output.LayerNorm");
    Rows inner = apply_dense(x, layer + "intermediate.dense");
    for (auto& row : inner)
      for (double& value : row) value = activate(activation, value);
    add_and_norm(x, apply_dense(inner, layer + "output.dense"), layer + "output.LayerNorm");
  }
  return x;
}

}  // namespace stof::model
