// Checks TextGenerator on a GPU against the CPU: a small random Qwen 2 model with grouped queries
// and windows in some layers, prompts in chunks and at once, masks that the decode kernel takes and
// others, steps over caches, and several sequences side by side; a GPT-2; and a Gemma 3 with heads
// of 256 under norms of their own, local and global layers, and attention's own scale.
//   text_gpu_check

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <list>
#include <nlohmann/json.hpp>
#include <random>

#include "backend/cuda/device.h"
#include "model/decoder.h"
#include "model/llama_model.h"
#include "model/temporary_folder.h"
#include "stof/error.h"
#include "stof/safetensors.h"
#include "stof/text_generator.h"
#include "tests/gpu/segment_case.h"

namespace {

using namespace stof;
using namespace stof::check;

constexpr std::int64_t kHidden = 256, kHeads = 8, kKvHeads = 2, kHeadDim = 64, kInner = 512,
                       kVocabulary = 56, kLayers = 3;

/// The CPU rounds nothing to 16 bits; the GPU's roundings of three layers add up.
constexpr double kLayersRoundings = 6;

nlohmann::json config() {
  return {{"model_type", "qwen2"},
          {"hidden_size", kHidden},
          {"intermediate_size", kInner},
          {"num_hidden_layers", kLayers},
          {"num_attention_heads", kHeads},
          {"num_key_value_heads", kKvHeads},
          {"head_dim", kHeadDim},
          {"vocab_size", kVocabulary},
          {"max_position_embeddings", 2048},
          {"rms_norm_eps", 1e-5},
          {"hidden_act", "silu"},
          {"tie_word_embeddings", true},
          {"rope_theta", 10000.0},
          {"use_sliding_window", true},
          {"sliding_window", 40},
          {"max_window_layers", 1}};
}

/// Single letters.
nlohmann::json tokenizer() {
  nlohmann::json vocabulary;
  for (int i = 0; i < 26; ++i) vocabulary[std::string(1, static_cast<char>('a' + i))] = i;
  for (int i = 0; i < 26; ++i) vocabulary[std::string(1, static_cast<char>('A' + i))] = 26 + i;
  return {{"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"decoder", {{"type", "ByteLevel"}}}};
}

/// Random weights that bfloat16 and float16 hold, so that only what is computed is rounded.
class Weights {
 public:
  void add(const std::string& name, const Dims& shape, float size, float mean = 0) {
    Tensor& tensor = tensors_.emplace_back(name, Tensor(DType::kFloat32, shape)).second;
    for (float& x : tensor.as<float>())
      x = std::round((mean + size * normal_(random_)) * 256) / 256;
  }
  /// `terms`: of a sum, which keeps the size of what it reads.
  void matrix(const std::string& name, const Dims& shape, std::int64_t terms) {
    add(name + ".weight", shape, 1.2f / std::sqrt(static_cast<float>(terms)));
  }
  void save(const model::TemporaryFolder& folder, const nlohmann::json& config) const {
    std::vector<NamedTensor> named;
    for (const auto& [name, tensor] : tensors_) named.push_back({name, tensor.view()});
    save_safetensors(folder.path() + "/model.safetensors", named);
    folder.write("config.json", config.dump());
    folder.write("tokenizer.json", tokenizer().dump());
  }

 private:
  std::mt19937 random_{3};
  std::normal_distribution<float> normal_{0, 1};
  std::list<std::pair<std::string, Tensor>> tensors_;
};

void write_qwen2(const model::TemporaryFolder& folder) {
  Weights weights;
  weights.add("model.embed_tokens.weight", {kVocabulary, kHidden}, 0.3f);
  weights.add("model.norm.weight", {kHidden}, 0.1f, 1);
  for (std::int64_t i = 0; i < kLayers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    weights.add(layer + "input_layernorm.weight", {kHidden}, 0.1f, 1);
    weights.add(layer + "post_attention_layernorm.weight", {kHidden}, 0.1f, 1);
    for (const auto& [name, heads] :
         {std::pair{"q_proj", kHeads}, {"k_proj", kKvHeads}, {"v_proj", kKvHeads}}) {
      weights.matrix(layer + "self_attn." + name, {heads * kHeadDim, kHidden}, kHidden);
      weights.add(layer + "self_attn." + name + ".bias", {heads * kHeadDim}, 0.1f);
    }
    weights.matrix(layer + "self_attn.o_proj", {kHidden, kHeads * kHeadDim}, kHeads * kHeadDim);
    weights.matrix(layer + "mlp.gate_proj", {kInner, kHidden}, kHidden);
    weights.matrix(layer + "mlp.up_proj", {kInner, kHidden}, kHidden);
    weights.matrix(layer + "mlp.down_proj", {kHidden, kInner}, kInner);
  }
  weights.save(folder, config());
}

/// With a vocabulary that is filled up on the GPU.
void write_gpt2(const model::TemporaryFolder& folder) {
  constexpr std::int64_t kVocabularyOfGpt2 = 53;
  Weights weights;
  weights.add("wte.weight", {kVocabularyOfGpt2, kHidden}, 0.3f);
  weights.add("wpe.weight", {512, kHidden}, 0.3f);
  const auto norm = [&](const std::string& name) {
    weights.add(name + ".weight", {kHidden}, 0.1f, 1);
    weights.add(name + ".bias", {kHidden}, 0.1f);
  };
  norm("ln_f");
  for (std::int64_t i = 0; i < 2; ++i) {
    const std::string layer = "h." + std::to_string(i) + ".";
    const auto dense = [&](const char* name, std::int64_t in, std::int64_t out) {
      weights.matrix(layer + name, {in, out}, in);
      weights.add(layer + name + ".bias", {out}, 0.1f);
    };
    norm(layer + "ln_1");
    norm(layer + "ln_2");
    dense("attn.c_attn", kHidden, 3 * kHidden);
    dense("attn.c_proj", kHidden, kHidden);
    dense("mlp.c_fc", kHidden, 4 * kHidden);
    dense("mlp.c_proj", 4 * kHidden, kHidden);
  }
  weights.save(folder, {{"model_type", "gpt2"},
                        {"vocab_size", kVocabularyOfGpt2},
                        {"n_positions", 512},
                        {"n_embd", kHidden},
                        {"n_layer", 2},
                        {"n_head", 4}});
}

/// Heads as wide as the published models', scores divided by another number than their width's
/// root, two local layers and one that sees all.
void write_gemma(const model::TemporaryFolder& folder) {
  constexpr std::int64_t kHeadsOfGemma = 2, kDim = 256;
  Weights weights;
  weights.add("model.embed_tokens.weight", {kVocabulary, kHidden}, 0.3f);
  // What is added to 1.
  const auto norm = [&](const std::string& name, std::int64_t width) {
    weights.add(name + ".weight", {width}, 0.3f);
  };
  norm("model.norm", kHidden);
  for (std::int64_t i = 0; i < kLayers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    for (const char* name : {"input_layernorm", "post_attention_layernorm",
                             "pre_feedforward_layernorm", "post_feedforward_layernorm"})
      norm(layer + name, kHidden);
    norm(layer + "self_attn.q_norm", kDim);
    norm(layer + "self_attn.k_norm", kDim);
    weights.matrix(layer + "self_attn.q_proj", {kHeadsOfGemma * kDim, kHidden}, kHidden);
    weights.matrix(layer + "self_attn.k_proj", {kDim, kHidden}, kHidden);
    weights.matrix(layer + "self_attn.v_proj", {kDim, kHidden}, kHidden);
    weights.matrix(layer + "self_attn.o_proj", {kHidden, kHeadsOfGemma * kDim},
                   kHeadsOfGemma * kDim);
    weights.matrix(layer + "mlp.gate_proj", {kInner, kHidden}, kHidden);
    weights.matrix(layer + "mlp.up_proj", {kInner, kHidden}, kHidden);
    weights.matrix(layer + "mlp.down_proj", {kHidden, kInner}, kInner);
  }
  weights.save(folder,
               {{"model_type", "gemma3_text"},
                {"hidden_size", kHidden},
                {"intermediate_size", kInner},
                {"num_hidden_layers", kLayers},
                {"num_attention_heads", kHeadsOfGemma},
                {"num_key_value_heads", 1},
                {"head_dim", kDim},
                {"vocab_size", kVocabulary},
                {"max_position_embeddings", 2048},
                {"rms_norm_eps", 1e-6},
                {"hidden_activation", "gelu_pytorch_tanh"},
                {"query_pre_attn_scalar", 200},
                {"rope_theta", 1e6},
                {"rope_local_base_freq", 1e4},
                {"sliding_window", 40},
                {"layer_types", {"sliding_attention", "sliding_attention", "full_attention"}},
                {"attn_logit_softcapping", nullptr},
                {"final_logit_softcapping", nullptr}});
}

std::vector<std::int32_t> some_ids(std::int64_t count, std::int32_t seed) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < count; ++i) ids.push_back(seed = (seed * 31 + 7) % 52);
  return ids;
}

class Check {
 public:
  Check(const std::string& folder, DType dtype, Tally* tally)
      : dtype_(dtype),
        tally_(tally),
        cpu_(TextGenerator::load(folder)),
        gpu_(TextGenerator::load(folder, {Place::kCuda, dtype, Tuning::kOff})) {}

  /// Logits after every token: all chunks but the first attend to what is in the caches.
  void logits(const char* text, const mask::MaskSet& mask, std::int64_t tokens,
              std::int64_t chunk) {
    GenerateOptions options;
    options.mask = mask;
    options.prefill_chunk = chunk;
    const std::vector<std::int32_t> ids = some_ids(tokens, 1);
    say(fmt::format("{} tokens in chunks of {}, {}", tokens, chunk, text),
        error_of(gpu_.logits(ids, options), cpu_.logits(ids, options)));
  }

  /// What the GPU writes must be what the CPU expects most, but for rounding.
  void generate(const char* text, const mask::MaskSet& mask, std::int64_t chunk) {
    GenerateOptions options;
    options.mask = mask;
    options.prefill_chunk = chunk;
    options.max_tokens = 300;  // the keys outgrow the first plan of the decode kernel
    const std::string prompt = gpu_.detokenize(some_ids(70, 5));
    const GeneratedText written = gpu_.generate(prompt, options);
    std::vector<std::int32_t> ids = cpu_.tokenize(prompt);
    const std::size_t read = ids.size();
    ids.insert(ids.end(), written.ids.begin(), written.ids.end());
    const Tensor expected = cpu_.logits(ids, options);
    const auto vocabulary = static_cast<std::size_t>(cpu_.vocab_size());
    Error2 worst;
    for (std::size_t i = read; i < ids.size(); ++i) {
      const auto row = expected.as<float>().subspan((i - 1) * vocabulary, vocabulary);
      double squares = 0;
      for (const float x : row) squares += double{x} * x;
      const double missed =
          *std::max_element(row.begin(), row.end()) - row[static_cast<std::size_t>(ids[i])];
      worst.element =
          std::max(worst.element, missed / std::sqrt(squares / static_cast<double>(vocabulary)));
    }
    say(fmt::format("writes {} tokens after {} in chunks of {}, {}", written.ids.size(), read,
                    chunk, text),
        worst);
    if (written.ids.size() != 300) tally_->count(false);
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
  TextGenerator cpu_, gpu_;
};

/// Several sequences read together, and each alone, give the same logits.
void check_sequences(const std::string& folder, Tally* tally) {
  const model::Decoder decoder(
      model::make_llama_model(Checkpoint::open(folder), model::load_llama_config(folder)),
      {Place::kCuda, DType::kFloat16, Tuning::kOff});
  const std::vector<std::vector<std::int32_t>> prompts = {some_ids(37, 1), some_ids(5, 2),
                                                          some_ids(190, 3)};
  exec::RunTiming timing;
  auto together = decoder.start({.count = 3, .tokens = 256});
  std::vector<Tensor> logits;
  logits.push_back(together->forward({{0, prompts[0]}, {1, prompts[1]}, {2, prompts[2]}}, timing));
  const std::vector<std::int32_t> next = {11, 12, 13};
  const auto part = [&](std::size_t i) {
    return model::DecoderSequences::Part{static_cast<std::int64_t>(i),
                                         std::span(next).subspan(i, 1)};
  };
  for (int step = 0; step < 4; ++step)
    logits.push_back(together->forward({part(0), part(1), part(2)}, timing));
  logits.push_back(together->forward({part(0), part(2)}, timing));
  double worst = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    auto alone = decoder.start({.tokens = 256});
    for (std::size_t step = 0; step < logits.size(); ++step) {
      const bool left = step + 1 == logits.size();
      if (left && i == 1) continue;
      const std::span<const std::int32_t> ids =
          step == 0 ? std::span(prompts[i]) : std::span(next).subspan(i, 1);
      const Tensor one = alone->forward({{0, ids}}, timing);
      TensorView row = logits[step].view();
      row.data = static_cast<const float*>(row.data) +
                 static_cast<std::int64_t>(left ? i / 2 : i) * kVocabulary;
      row.shape[0] = 1;
      worst = std::max(worst, error_of(Tensor::copy_of(row), one).whole);
    }
  }
  // Other numbers of rows are other kernels: both are as far from the CPU as say() allows.
  const bool good = worst <= kLayersRoundings * bounds_of(DType::kFloat16).whole;
  std::printf("%s three sequences together and alone: error %.1e\n", good ? "ok " : "BAD", worst);
  tally->count(good);
}

}  // namespace

int main() {
  Tally tally;
  try {
    const model::TemporaryFolder folder, gpt2, gemma;
    write_qwen2(folder);
    write_gpt2(gpt2);
    write_gemma(gemma);
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      Check check(folder.path(), dtype, &tally);
      check.logits("causal", mask::all(), 300, 512);
      check.logits("causal", mask::all(), 300, 128);
      check.logits("causal", mask::all(), 40, 1);
      check.logits("window and sinks", mask::window(30, 0) | mask::sink(4), 200, 64);
      check.logits("every other key", mask::dilated(64, 2), 150, 64);
      check.logits("every other key", mask::dilated(64, 2), 20, 1);
      const mask::MaskSet windows(mask::streaming(3, 50), {{{{1, 1}}, {}, mask::window(20, 0)}});
      const mask::MaskSet heads(mask::all(), {{{{0, 0}}, {}, mask::window(20, 0)},
                                              {{{1, 1}}, {{1, 2}}, mask::streaming(2, 9)}});
      check.logits("windows of layers", windows, 200, 64);
      check.logits("masks of heads", heads, 200, 64);
      check.logits("masks of heads", heads, 20, 1);
      check.logits("a window, pages given back", mask::streaming(4, 40), 1700, 128);
      check.generate("causal", mask::all(), 512);
      check.generate("windows of layers", windows, 32);
      check.generate("window and sinks", mask::window(30, 0) | mask::sink(4), 32);
    }
    check_sequences(folder.path(), &tally);
    std::printf("GPT-2\n");
    {
      Check check(gpt2.path(), DType::kFloat16, &tally);
      check.logits("causal", mask::all(), 300, 512);
      check.logits("causal", mask::all(), 60, 16);
      check.generate("causal", mask::all(), 64);
    }
    std::printf("Gemma 3\n");
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      Check check(gemma.path(), dtype, &tally);
      check.logits("causal", mask::all(), 300, 512);
      check.logits("causal", mask::all(), 300, 64);
      check.logits("causal", mask::all(), 60, 1);
      check.logits("window and sinks", mask::window(30, 0) | mask::sink(4), 200, 64);
      check.generate("causal", mask::all(), 64);
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
