// Checks T5 on a GPU against the CPU: small random models, gated and not, in bfloat16 and float16:
// what the encoder makes of texts, logits of the decoder in one pass and step by step (position
// biases over caches, cross-attention), several texts side by side, and a residual stream that
// float16 could not hold as it is.
//   t5_gpu_check

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <list>
#include <nlohmann/json.hpp>
#include <random>

#include "backend/cuda/device.h"
#include "model/seq2seq.h"
#include "model/t5_graph.h"
#include "model/temporary_folder.h"
#include "stof/error.h"
#include "stof/safetensors.h"
#include "tests/gpu/segment_case.h"

namespace {

using namespace stof;
using namespace stof::check;

constexpr std::int64_t kHidden = 256, kHeads = 4, kHeadDim = 64, kInner = 512, kVocabulary = 53,
                       kLayers = 2, kBuckets = 32, kWidth = kHeads * kHeadDim;

/// The CPU rounds nothing to 16 bits; the GPU's roundings of all layers add up.
constexpr double kLayersRoundings = 8;

struct Kind {
  const char* feed_forward;
  bool tied;
  float large;  ///< factor of what the feed-forward part adds
};

nlohmann::json config_of(const Kind& kind) {
  return {{"model_type", "t5"},
          {"d_model", kHidden},
          {"d_kv", kHeadDim},
          {"num_heads", kHeads},
          {"d_ff", kInner},
          {"num_layers", kLayers},
          {"vocab_size", kVocabulary},
          {"relative_attention_num_buckets", kBuckets},
          {"relative_attention_max_distance", 128},
          {"feed_forward_proj", kind.feed_forward},
          {"tie_word_embeddings", kind.tied}};
}

/// Random weights that bfloat16 and float16 hold, so that only what is computed is rounded.
class Weights {
 public:
  void add(const std::string& name, const Dims& shape, float size, float mean = 0) {
    Tensor& tensor = tensors_.emplace_back(name + ".weight", Tensor(DType::kFloat32, shape)).second;
    for (float& x : tensor.as<float>())
      x = static_cast<float>(BFloat16(mean + size * normal_(random_)));
  }
  void matrix(const std::string& name, std::int64_t out, std::int64_t in, float size = 1) {
    add(name, {out, in}, size / std::sqrt(static_cast<float>(in)));
  }
  void save(const model::TemporaryFolder& folder, const nlohmann::json& config) const {
    std::vector<NamedTensor> named;
    for (const auto& [name, tensor] : tensors_) named.push_back({name, tensor.view()});
    save_safetensors(folder.path() + "/model.safetensors", named);
    folder.write("config.json", config.dump());
  }

 private:
  std::mt19937 random_{3};
  std::normal_distribution<float> normal_{0, 1};
  std::list<std::pair<std::string, Tensor>> tensors_;
};

void write_t5(const model::TemporaryFolder& folder, const Kind& kind) {
  Weights weights;
  weights.add("shared", {kVocabulary, kHidden}, 1);
  if (!kind.tied) weights.matrix("lm_head", kVocabulary, kHidden);
  for (const std::string stack : {"encoder", "decoder"}) {
    weights.add(stack + ".final_layer_norm", {kHidden}, 0.1f, 1);
    weights.add(stack + ".block.0.layer.0.SelfAttention.relative_attention_bias",
                {kBuckets, kHeads}, 1);
    std::vector<std::string> attentions = {"SelfAttention"};
    if (stack == "decoder") attentions.emplace_back("EncDecAttention");
    for (std::int64_t i = 0; i < kLayers; ++i) {
      const std::string block = fmt::format("{}.block.{}.layer.", stack, i);
      for (std::size_t a = 0; a < attentions.size(); ++a) {
        const std::string layer = fmt::format("{}{}.", block, a);
        weights.add(layer + "layer_norm", {kHidden}, 0.1f, 1);
        // Scores are not divided by the root of the head size.
        weights.matrix(layer + attentions[a] + ".q", kWidth, kHidden, 0.35f);
        weights.matrix(layer + attentions[a] + ".k", kWidth, kHidden, 0.35f);
        weights.matrix(layer + attentions[a] + ".v", kWidth, kHidden);
        weights.matrix(layer + attentions[a] + ".o", kHidden, kWidth);
      }
      const std::string layer = fmt::format("{}{}.", block, attentions.size());
      weights.add(layer + "layer_norm", {kHidden}, 0.1f, 1);
      const std::string dense = layer + "DenseReluDense.";
      if (std::string(kind.feed_forward).starts_with("gated")) {
        weights.matrix(dense + "wi_0", kInner, kHidden);
        weights.matrix(dense + "wi_1", kInner, kHidden);
      } else {
        weights.matrix(dense + "wi", kInner, kHidden);
      }
      weights.matrix(dense + "wo", kHidden, kInner, kind.large);
    }
  }
  weights.save(folder, config_of(kind));
}

std::vector<std::int32_t> some_ids(std::int64_t count, std::int32_t seed) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < count; ++i) ids.push_back(seed = (seed * 31 + 7) % 53);
  return ids;
}

std::unique_ptr<model::Seq2Seq> load(const std::string& folder, const LoadOptions& options = {}) {
  return std::make_unique<model::Seq2Seq>(
      model::make_t5_model(Checkpoint::open(folder), model::load_t5_config(folder)), options);
}

class Check {
 public:
  Check(const std::string& folder, DType dtype, Tally* tally)
      : dtype_(dtype),
        tally_(tally),
        cpu_(load(folder)),
        gpu_(load(folder, {Place::kCuda, dtype, Tuning::kOff})) {}

  void text(std::int64_t read, std::int64_t written, std::size_t chunk, const char* name = "all",
            const mask::MaskSet& mask = {}) {
    const std::vector<std::int32_t> source = some_ids(read, 3), target = some_ids(written, 5);
    Tensor states[2], logits[2];
    for (const bool gpu : {false, true}) {
      exec::RunTiming timing;
      const model::Seq2Seq& model = gpu ? *gpu_ : *cpu_;
      auto lease = model.start({read}, written, written);
      states[gpu] = lease.encode({source}, mask, timing, /*wanted=*/true);
      Tensor& all = logits[gpu] = Tensor(DType::kFloat32, {written, kVocabulary});
      float* next = all.as<float>().data();
      for (std::size_t at = 0; at < target.size(); at += chunk) {
        const std::size_t count = std::min(chunk, target.size() - at);
        const Tensor part = lease.forward(
            {{0, std::span(target).subspan(at, count), static_cast<std::int64_t>(count)}}, timing);
        next = std::copy(part.as<float>().begin(), part.as<float>().end(), next);
      }
    }
    say(fmt::format("encodes {} tokens, mask {}", read, name), error_of(states[1], states[0]));
    say(fmt::format("decodes {} in parts of {}", written, chunk), error_of(logits[1], logits[0]));
  }

  /// Several texts read together, and each alone, give the same logits.
  void texts() {
    const std::vector<std::vector<std::int32_t>> sources = {some_ids(37, 1), some_ids(5, 2),
                                                            some_ids(190, 3)};
    exec::RunTiming timing;
    auto together = gpu_->start({37, 5, 190}, 20);
    together.encode({sources.begin(), sources.end()}, {}, timing);
    const std::vector<std::int32_t> ids = some_ids(12, 9);
    std::vector<Tensor> all;
    for (const std::int32_t& id : ids) {
      const std::span<const std::int32_t> one(&id, 1);
      all.push_back(together.forward({{0, one}, {1, one}, {2, one}}, timing));
    }
    Error2 worst;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      auto single = cpu_->start({static_cast<std::int64_t>(sources[i].size())}, 20);
      single.encode({sources[i]}, {}, timing);
      for (std::size_t step = 0; step < ids.size(); ++step) {
        const Tensor expected = single.forward({{0, std::span(ids).subspan(step, 1)}}, timing);
        TensorView row = std::as_const(all[step]).view();
        row.data = static_cast<const float*>(row.data) + static_cast<std::int64_t>(i) * kVocabulary;
        row.shape[0] = 1;
        const Error2 here = error_of(Tensor::copy_of(row), expected);
        worst.whole = std::max(worst.whole, here.whole);
        worst.element = std::max(worst.element, here.element);
      }
    }
    say("three texts side by side", worst);
  }

 private:
  void say(const std::string& what, const Error2& error) const {
    const Error2 bounds = bounds_of(dtype_);
    const bool good = error.whole <= kLayersRoundings * bounds.whole &&
                      error.element <= kLayersRoundings * bounds.element;
    std::printf("%s %s, %s: error %.1e, element %.1e\n", good ? "ok " : "BAD",
                std::string(to_string(dtype_)).c_str(), what.c_str(), error.whole, error.element);
    std::fflush(stdout);
    tally_->count(good);
  }

  DType dtype_;
  Tally* tally_;
  std::unique_ptr<model::Seq2Seq> cpu_, gpu_;
};

}  // namespace

int main() {
  Tally tally;
  try {
    for (const Kind& kind : {Kind{"relu", true, 1}, Kind{"gated-gelu", false, 1},
                             Kind{"relu", true, 2e4f}, Kind{"gated-gelu", true, 2e4f}}) {
      std::printf("%s%s, wo times %g\n", kind.feed_forward, kind.tied ? ", tied" : "",
                  double{kind.large});
      const model::TemporaryFolder folder;
      write_t5(folder, kind);
      for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
        Check check(folder.path(), dtype, &tally);
        check.text(300, 40, 100);
        check.text(40, 300, 64);
        check.text(7, 30, 1);
        check.text(200, 20, 20, "window(30, 30)", mask::window(30, 30));
        check.texts();
      }
    }
    std::printf("%d passed, %d failed on %s\n", tally.passed, tally.failed,
                cuda::Device::open().facts().name.c_str());
  } catch (const std::exception& error) {
    std::printf("%s\n%d passed, %d failed on a GPU\n", error.what(), tally.passed,
                tally.failed + 1);
    return 1;
  }
  return tally.failed > 0;
}
