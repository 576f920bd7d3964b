// Checks the BERT encoder on the GPU against plain loops in double, in both 16-bit types.
//   encoder_gpu_check [--tiny] [--batches] [MODEL_DIR]
// Without a folder: random models of several shapes, activations and masks; with one, that
// checkpoint too, on real text. --tiny: one small model, for compute-sanitizer. --batches: only
// batches of ever other lengths.

#include <cstdio>
#include <cstring>
#include <exception>

#include "backend/cuda/device.h"
#include "model/cuda/bert_encoder.h"
#include "model/tiny_bert.h"
#include "model/wordpiece.h"
#include "stof/error.h"

namespace {

using namespace stof;
using namespace stof::model;

/// Bounds on a token's cosine distance to the reference, and on the largest difference over the
/// largest value. Sixteen-bit rounding at each of about ten places a layer, 2^-11 (float16) or 2^-8
/// (bfloat16) each, adds up to about a third of these in six layers.
struct Bounds {
  double cosine, difference;
};
Bounds bounds_of(DType dtype) {
  return dtype == DType::kFloat16 ? Bounds{2e-5, 1e-2} : Bounds{1e-3, 6e-2};
}

struct Worst {
  double cosine = 0, difference = 0, largest = 0;
  bool within(const Bounds& bounds) const {
    return cosine <= bounds.cosine && difference <= bounds.difference * largest;
  }
};

/// A distance that is no number counts as infinite.
void raise(double* worst, double value) {
  *worst = std::isfinite(value) ? std::max(*worst, value) : INFINITY;
}

void compare(const float* found, const std::vector<double>& expected, Worst* worst) {
  double dot = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    raise(&worst->difference, std::abs(found[i] - expected[i]));
    raise(&worst->largest, std::abs(expected[i]));
    dot += found[i] * expected[i];
    aa += static_cast<double>(found[i]) * found[i];
    bb += expected[i] * expected[i];
  }
  raise(&worst->cosine, 1 - dot / std::sqrt(aa * bb));
}

using Rows = std::vector<std::vector<double>>;

std::vector<double> pool(const Rows& rows, cpu::Pooling pooling) {
  std::vector<double> out = rows[0];
  for (std::size_t t = 1; t < rows.size() && pooling != cpu::Pooling::kCls; ++t)
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = pooling == cpu::Pooling::kMax ? std::max(out[i], rows[t][i]) : out[i] + rows[t][i];
  if (pooling == cpu::Pooling::kMean)
    for (double& value : out) value /= static_cast<double>(rows.size());
  return out;
}

struct Tally {
  int passed = 0, failed = 0;
  void count(bool good) { (good ? passed : failed)++; }
};

/// One model, one type: states and pooled vectors of all texts under one mask.
void check_mask(const CudaBertEncoder& encoder, const TinyBert& oracle, const PackedTexts& texts,
                const mask::Mask& mask, DType dtype, const std::string& title, Tally* tally) {
  EncoderTiming timing;
  const Tensor states = encoder.forward(texts, mask, timing);
  const Tensor again = encoder.forward(texts, mask, timing);
  const auto hidden = static_cast<std::size_t>(encoder.config().hidden_size);
  Worst worst, worst_pooled;
  std::vector<Rows> expected;
  for (std::size_t i = 0; i + 1 < texts.offsets.size(); ++i) {
    const auto begin = static_cast<std::size_t>(texts.offsets[i]),
               end = static_cast<std::size_t>(texts.offsets[i + 1]);
    expected.push_back(oracle.run({texts.ids.begin() + static_cast<std::ptrdiff_t>(begin),
                                   texts.ids.begin() + static_cast<std::ptrdiff_t>(end)},
                                  mask));
    for (std::size_t t = begin; t < end; ++t)
      compare(states.as<float>().data() + t * hidden, expected.back()[t - begin], &worst);
  }
  for (const cpu::Pooling pooling : {cpu::Pooling::kMean, cpu::Pooling::kCls, cpu::Pooling::kMax}) {
    const Tensor vectors = encoder.pooled(texts, mask, pooling, timing);
    for (std::size_t i = 0; i < expected.size(); ++i)
      compare(vectors.as<float>().data() + i * hidden, pool(expected[i], pooling), &worst_pooled);
  }
  const Bounds bounds = bounds_of(dtype);
  const bool same = std::memcmp(states.data(), again.data(), states.bytes()) == 0;
  const bool good = same && worst.within(bounds) && worst_pooled.within(bounds);
  std::printf("%s %-34s %-8s cosine distance %.1e, pooled %.1e; difference %.1e of %.1f%s\n",
              good ? "ok " : "BAD", title.c_str(), std::string(to_string(dtype)).c_str(),
              worst.cosine, worst_pooled.cosine, worst.difference, worst.largest,
              same ? "" : "; two calls differ");
  std::fflush(stdout);
  tally->count(good);
}

/// Texts of unequal and of equal length, the longest first as TextEncoder packs them.
PackedTexts random_texts(std::int64_t longest, std::int64_t vocab) {
  std::mt19937 random(3);
  PackedTexts texts;
  for (const std::int64_t length :
       {longest, longest, std::int64_t{65}, std::int64_t{64}, std::int64_t{17}, std::int64_t{17},
        std::int64_t{17}, std::int64_t{1}}) {
    if (length > longest) continue;
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; i < length; ++i)
      ids.push_back(static_cast<std::int32_t>(random() % static_cast<unsigned>(vocab)));
    texts.add(ids);
  }
  return texts;
}

const std::vector<std::pair<std::string, mask::Mask>>& masks() {
  static const std::vector<std::pair<std::string, mask::Mask>> list = {
      {"dense", mask::all()},
      {"sliding", mask::window(24, 24)},
      {"bigbird", mask::bigbird(32, 1, 1, 2, 11)}};
  return list;
}

/// Random weights of the given sizes. Also: a batch like an earlier one takes no more memory.
void check_random(const cuda::Device& device, const TinyBert::Sizes& sizes,
                  const std::string& activation, std::int64_t longest, Tally* tally) {
  TinyBert tiny(7, sizes);
  tiny.config["hidden_act"] = activation;
  const TemporaryFolder folder;
  tiny.write(folder);
  const BertConfig config = load_bert_config(folder.path());
  const PackedTexts texts = random_texts(longest, config.vocab_size);
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const CudaBertEncoder encoder(load_bert_weights(Checkpoint::open(folder.path()), config),
                                  config, dtype);
    for (const auto& [name, mask] : masks())
      check_mask(encoder, tiny, texts, mask, dtype,
                 std::to_string(sizes.hidden) + "/" + std::to_string(sizes.heads) + " " +
                     activation + " " + name,
                 tally);
    EncoderTiming timing;
    const std::int64_t before = device.free_memory_bytes();
    for (int i = 0; i < 3; ++i) encoder.forward(texts, masks()[2].second, timing);
    const bool kept = device.free_memory_bytes() == before;
    if (!kept) std::printf("BAD a batch like an earlier one took device memory\n");
    tally->count(kept);
  }
}

/// Batches of ever other lengths: right, and those that fit what earlier ones needed take no
/// memory.
void check_batches(const cuda::Device& device, Tally* tally) {
  TinyBert tiny(5, {128, 4, 256, 2});
  const TemporaryFolder folder;
  tiny.write(folder);
  const BertConfig config = load_bert_config(folder.path());
  const CudaBertEncoder encoder(load_bert_weights(Checkpoint::open(folder.path()), config), config,
                                DType::kFloat16);
  const auto hidden = static_cast<std::size_t>(config.hidden_size);
  for (const auto& [name, mask] : masks()) {
    std::vector<std::vector<std::int32_t>> pool;
    std::vector<Rows> expected;
    std::mt19937 random(11);
    for (const std::size_t length : {1, 2, 17, 63, 64, 65, 100, 128, 130, 200}) {
      pool.emplace_back();
      for (std::size_t i = 0; i < length; ++i)
        pool.back().push_back(
            static_cast<std::int32_t>(random() % static_cast<unsigned>(config.vocab_size)));
      expected.push_back(tiny.run(pool.back(), mask));
    }
    std::vector<std::vector<std::size_t>> batches(30);
    for (auto& batch : batches) {
      batch.resize(1 + random() % 12);
      for (std::size_t& text : batch) text = random() % pool.size();
    }
    Worst worst;
    std::int64_t before = 0;
    for (const bool again : {false, true}) {
      if (again) before = device.free_memory_bytes();
      for (const auto& batch : batches) {
        PackedTexts texts;
        for (const std::size_t text : batch) texts.add(pool[text]);
        EncoderTiming timing;
        const Tensor states = encoder.forward(texts, mask, timing);
        const float* row = states.as<float>().data();
        for (const std::size_t text : batch)
          for (const auto& want : expected[text]) {
            compare(row, want, &worst);
            row += hidden;
          }
      }
    }
    const bool kept = device.free_memory_bytes() == before;
    const bool good = kept && worst.within(bounds_of(DType::kFloat16));
    std::printf(
        "%s 60 batches of other lengths, %-8s cosine distance %.1e; difference %.1e of %.1f%s\n",
        good ? "ok " : "BAD", name.c_str(), worst.cosine, worst.difference, worst.largest,
        kept ? "" : "; took device memory");
    std::fflush(stdout);
    tally->count(good);
  }
}

constexpr const char* kTexts[] = {
    "Masked attention computes only what the mask leaves visible.", "A cat sleeps on the sofa.",
    "Stock prices fell.",
    "The library reads ordinary checkpoints, plans the mask of each text once, and multiplies "
    "matrices in sixteen bits while it adds up in thirty-two. A longer text crosses several "
    "tiles of the score matrix, so that a window hides most of it and a few global tokens see "
    "everything; what nobody sees is neither loaded nor computed. This sentence is here to make "
    "the text long enough for that, with numbers such as 1,234.5 and words such as tokenizer."};

void check_folder(const std::string& folder, Tally* tally) {
  const BertConfig config = load_bert_config(folder);
  const WordPiece tokenizer(load_wordpiece(folder), folder);
  const TinyBert oracle = TinyBert::of_folder(folder);
  std::vector<std::vector<std::int32_t>> ids;
  for (const char* text : kTexts) ids.push_back(tokenizer.encode(text, config.max_positions));
  std::sort(ids.begin(), ids.end(), [](auto& a, auto& b) { return a.size() > b.size(); });
  PackedTexts texts;
  for (const auto& text : ids) texts.add(text);
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const CudaBertEncoder encoder(load_bert_weights(Checkpoint::open(folder), config), config,
                                  dtype);
    for (const auto& [name, mask] : masks())
      check_mask(encoder, oracle, texts, mask, dtype, "checkpoint " + name, tally);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // nothing is lost when a check ends the program
  bool tiny = false, only_batches = false;
  std::string folder;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--tiny") == 0)
      tiny = true;
    else if (std::strcmp(argv[i], "--batches") == 0)
      only_batches = true;
    else
      folder = argv[i];
  }
  Tally tally;
  try {
    const cuda::Device device = cuda::Device::open();
    if (!only_batches) check_random(device, {24, 3, 40, 2}, "gelu", 130, &tally);
    if (!tiny) check_batches(device, &tally);
    if (!tiny && !only_batches) {
      check_random(device, {128, 2, 256, 2}, "gelu", 300, &tally);
      check_random(device, {384, 12, 512, 2}, "gelu_new", 100, &tally);
      check_random(device, {1032, 43, 64, 1}, "relu", 70, &tally);
      if (!folder.empty()) check_folder(folder, &tally);
    }
    std::printf("%d passed, %d failed on %s\n", tally.passed, tally.failed,
                device.facts().name.c_str());
  } catch (const std::exception& error) {
    std::printf("%s\n%d passed, %d failed on a GPU\n", error.what(), tally.passed,
                tally.failed + 1);
    return 1;
  }
  return tally.failed > 0;
}
