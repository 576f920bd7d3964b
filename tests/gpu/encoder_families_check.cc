// Checks RoBERTa, DistilBERT and ModernBERT on the GPU in both 16-bit types against their encoders
// on the CPU in float32, which tests hold to transformers' numbers.
//   encoder_families_gpu_check

#include <cstdio>
#include <exception>

#include "backend/cuda/device.h"
#include "model/bert_encoder.h"
#include "model/cuda/bert_encoder.h"
#include "model/tiny_bert.h"
#include "stof/error.h"

namespace {

using namespace stof;
using namespace stof::model;

/// Largest difference over the largest value: 16-bit rounding at about ten places in each of two or
/// three layers, as encoder_gpu_check has it.
double bound_of(DType dtype) { return dtype == DType::kFloat16 ? 1e-2 : 6e-2; }

TinyBert roberta() {
  TinyBert tiny(3, {64, 4, 96, 2});
  tiny.config["model_type"] = "roberta";
  tiny.config["pad_token_id"] = 1;
  return tiny;
}

TinyBert distilbert() {
  TinyBert tiny(4, {64, 4, 96, 2});
  tiny.config.update({{"model_type", "distilbert"},
                      {"dim", 64},
                      {"n_layers", 2},
                      {"n_heads", 4},
                      {"hidden_dim", 96},
                      {"activation", "gelu"}});
  static constexpr std::pair<const char*, const char*> kNames[] = {
      {"encoder.layer.", "transformer.layer."},
      {"attention.self.query", "attention.q_lin"},
      {"attention.self.key", "attention.k_lin"},
      {"attention.self.value", "attention.v_lin"},
      {"attention.output.dense", "attention.out_lin"},
      {"attention.output.LayerNorm", "sa_layer_norm"},
      {"intermediate.dense", "ffn.lin1"},
      {"output.dense", "ffn.lin2"},
      {"output.LayerNorm", "output_layer_norm"}};
  std::map<std::string, Tensor> renamed;
  for (auto& [name, tensor] : tiny.tensors) {
    std::string own = name;
    for (const auto& [bert, theirs] : kNames)
      if (const std::size_t at = own.find(bert); at != std::string::npos)
        own.replace(at, std::string(bert).size(), theirs);
    renamed[own] = std::move(tensor);
  }
  tiny.tensors = std::move(renamed);
  return tiny;
}

/// Of four layers, of which the first and the last look at all tokens, the others at 16 on each
/// side.
TinyBert modernbert() {
  TinyBert tiny(5, {64, 4, 96, 0});
  tiny.config.update({{"model_type", "modernbert"},
                      {"num_hidden_layers", 4},
                      {"global_attn_every_n_layers", 3},
                      {"local_attention", 32},
                      {"hidden_activation", "gelu"},
                      {"attention_bias", true}});
  tiny.tensors.clear();
  const auto matrix = [&](const std::string& name, std::int64_t out, std::int64_t in) {
    tiny.random(name, {out, in}, 1.f / std::sqrt(static_cast<float>(in)));
  };
  tiny.random("embeddings.tok_embeddings.weight", {30, 64});
  for (const char* norm : {"embeddings.norm.weight", "final_norm.weight"})
    tiny.random(norm, {64}, 0.2f, 1);
  for (int i = 0; i < 4; ++i) {
    const std::string layer = "layers." + std::to_string(i) + ".";
    if (i > 0) tiny.random(layer + "attn_norm.weight", {64}, 0.2f, 1);
    tiny.random(layer + "mlp_norm.weight", {64}, 0.2f, 1);
    matrix(layer + "attn.Wqkv.weight", 192, 64);
    matrix(layer + "attn.Wo.weight", 64, 64);
    tiny.random(layer + "attn.Wqkv.bias", {192}, 0.3f);
    tiny.random(layer + "attn.Wo.bias", {64}, 0.3f);
    matrix(layer + "mlp.Wi.weight", 192, 64);
    matrix(layer + "mlp.Wo.weight", 64, 96);
  }
  return tiny;
}

PackedTexts unequal_texts(const BertConfig& config) {
  std::mt19937 random(3);
  PackedTexts texts;
  for (const int length : {200, 130, 64, 17, 17, 1}) {
    std::vector<std::int32_t> ids;
    for (int i = 0; i < length; ++i)
      ids.push_back(static_cast<std::int32_t>(random() % static_cast<unsigned>(config.vocab_size)));
    texts.add(ids, config.padding_id);
  }
  return texts;
}

/// How many of the checks were good.
int check(const TinyBert& tiny, const char* name, int* failed) {
  const TemporaryFolder folder;
  tiny.write(folder);
  const BertConfig config = load_bert_config(folder.path());
  const auto weights = [&] { return load_bert_weights(Checkpoint::open(folder.path()), config); };
  const BertEncoder cpu(weights(), config);
  const PackedTexts texts = unequal_texts(config);
  EncoderTiming timing;
  int passed = 0;
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const CudaBertEncoder gpu(weights(), config, dtype);
    const mask::MaskSet by_layer(mask::all(), {{{{0, 0}}, {}, mask::window(24, 24)},
                                               {{{1, 1}}, {{0, 0}}, mask::sliding(4)}});
    for (const auto& [title, mask] : {std::pair<const char*, mask::MaskSet>{"dense", mask::all()},
                                      {"sliding", mask::window(24, 24)},
                                      {"bigbird", mask::bigbird(32, 1, 1, 2, 11)},
                                      {"by layer", by_layer}}) {
      const Tensor expected = cpu.forward(texts, mask, timing);
      double worst = 0, largest = 0;
      for (int run = 0; run < 3; ++run) {  // the third is a CUDA graph's
        const Tensor found = gpu.forward(texts, mask, timing);
        for (std::size_t i = 0; i < expected.as<float>().size(); ++i) {
          const double off = std::abs(static_cast<double>(found.as<float>()[i]) -
                                      static_cast<double>(expected.as<float>()[i]));
          worst = std::isfinite(off) ? std::max(worst, off) : INFINITY;
          largest = std::max(largest, std::abs(static_cast<double>(expected.as<float>()[i])));
        }
      }
      const bool good = worst <= bound_of(dtype) * largest;
      std::printf("%s %-10s %-8s %-8s difference %.1e of %.1f\n", good ? "ok " : "BAD", name, title,
                  std::string(to_string(dtype)).c_str(), worst, largest);
      ++(good ? passed : *failed);
    }
  }
  return passed;
}

}  // namespace

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // nothing is lost when a check ends the program
  int passed = 0, failed = 0;
  try {
    passed += check(roberta(), "RoBERTa", &failed);
    passed += check(distilbert(), "DistilBERT", &failed);
    passed += check(modernbert(), "ModernBERT", &failed);
  } catch (const std::exception& error) {
    std::printf("BAD %s\n", error.what());
    ++failed;
  }
  std::printf("%d passed, %d failed on GPU\n", passed, failed);
  return failed == 0 ? 0 : 1;
}
