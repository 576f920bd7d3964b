#include "stof/text_encoder.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <utility>

#include "backend/cpu/attention/pruned.h"
#include "backend/cpu/ops/pooling.h"
#include "backend/cpu/thread_scope.h"
#include "core/cancel.h"
#include "core/check.h"
#include "core/clock.h"
#include "core/threads.h"
#include "model/bert_family.h"
#include "model/likeliest.h"
#include "model/mlm_head.h"
#include "model/place.h"
#include "model/pruning.h"
#include "model/sentence_config.h"
#include "model/text_tokenizer.h"
#include "stof/checkpoint.h"

namespace stof {
namespace {

std::string_view name_of(cpu::Activation activation) {
  switch (activation) {
    case cpu::Activation::kNone:
      return "none";
    case cpu::Activation::kRelu:
      return "relu";
    case cpu::Activation::kGeluErf:
      return "gelu (erf)";
    case cpu::Activation::kGeluTanh:
      return "gelu (tanh)";
  }
  return "?";
}

std::string_view name_of(cpu::Pooling pooling) {
  switch (pooling) {
    case cpu::Pooling::kMean:
      return "mean";
    case cpu::Pooling::kCls:
      return "cls";
    case cpu::Pooling::kMax:
      return "max";
  }
  return "?";
}

}  // namespace

struct TextEncoder::Impl {
  /// Read when it is first asked for: most texts are embedded.
  struct LazyHead {
    std::mutex mutex;
    std::unique_ptr<const model::MlmHead> head;
  };

  std::string folder;
  model::SentenceConfig sentence;
  model::TextTokenizer tokenizer;
  model::PlacedEncoder placed;
  std::int64_t max_tokens;  ///< the checkpoint's own limit
  std::unique_ptr<LazyHead> lazy_head = std::make_unique<LazyHead>();

  const model::MlmHead& mlm_head() const {
    const std::lock_guard lock(lazy_head->mutex);
    if (lazy_head->head == nullptr)
      lazy_head->head = std::make_unique<const model::MlmHead>(
          model::load_bert_head_weights(Checkpoint::open(sentence.model_folder), config()),
          config());
    return *lazy_head->head;
  }

  const model::Encoder& encoder() const { return *placed.encoder; }
  const model::BertConfig& config() const { return encoder().config(); }

  /// Checks a limit from the caller; 0 gives the checkpoint's own.
  std::int64_t token_limit(std::int64_t asked) const {
    if (asked == 0) return max_tokens;
    STOF_CHECK(asked >= std::max<std::int64_t>(tokenizer.num_special(), 1) &&
                   asked <= config().max_positions,
               kInvalidArgument,
               "max_tokens: expected 0 (this checkpoint's own limit, {}) or from {} (the special "
               "tokens) to {} (the positions it knows), got {}",
               max_tokens, std::max<std::int64_t>(tokenizer.num_special(), 1),
               config().max_positions, asked);
    return asked;
  }

  void check_options(const EncodeOptions& options) const {
    STOF_CHECK(options.batch >= 1, kInvalidArgument, "batch: expected at least 1, got {}",
               options.batch);
    check_num_threads(options.num_threads);
    options.mask.check(config().num_layers, config().num_heads, "texts");
    if (options.prune) model::check_pruning(*options.prune, encoder().place(), config().num_heads);
  }

  /// A vocabulary may have rows without a token: those have no spelling.
  TokenCandidate candidate(std::int32_t id, float probability) const {
    if (!tokenizer.contains(id)) return {id, "", "", probability};
    return {id, tokenizer.token(id), tokenizer.text(id), probability};
  }

  /// Calls run_batch(packed texts, their indices, encoder timing) for one batch after the other.
  template <class RunBatch>
  void run(const std::vector<std::string>& texts, const EncodeOptions& options,
           EncodeTiming* timing, RunBatch run_batch) const;
};

template <class RunBatch>
void TextEncoder::Impl::run(const std::vector<std::string>& texts, const EncodeOptions& options,
                            EncodeTiming* timing, RunBatch run_batch) const {
  const auto start = Clock::now();
  check_options(options);
  const std::int64_t limit = token_limit(options.max_tokens);
  const cpu::ThreadScope threads(options.num_threads);
  const cpu::PruneScope pruning(options.prune ? &*options.prune : nullptr);
  std::vector<std::vector<std::int32_t>> ids;
  ids.reserve(texts.size());
  for (const std::string& text : texts) ids.push_back(tokenizer.encode(text, limit));
  EncodeTiming spent;
  spent.tokenize = seconds_since(start);

  // Longest first: texts of one length share a batch and so the plan of its mask, and what the
  // largest batch needs is allocated at once. A text without a token has nothing to encode.
  std::vector<std::size_t> order(texts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return ids[a].size() > ids[b].size(); });
  model::EncoderTiming encoder_timing;
  const auto batch = static_cast<std::size_t>(options.batch);
  for (std::size_t begin = 0; begin < order.size();
       begin += std::min(batch, order.size() - begin)) {
    check_cancelled();
    const std::size_t end = begin + std::min(batch, order.size() - begin);
    model::PackedTexts packed;
    for (std::size_t i = begin; i < end && !ids[order[i]].empty(); ++i)
      packed.add(ids[order[i]], config().padding_id);
    const auto num_packed = static_cast<std::size_t>(packed.num_texts());
    if (num_packed > 0)
      run_batch(packed, std::span(order).subspan(begin, num_packed), encoder_timing);
    if (options.progress)
      options.progress(static_cast<std::int64_t>(end), static_cast<std::int64_t>(texts.size()));
  }
  spent.plan = encoder_timing.plan;
  spent.attention = encoder_timing.attention;
  spent.total = seconds_since(start);
  if (timing != nullptr) *timing = spent;
}

TextEncoder TextEncoder::load(const std::string& folder, const LoadOptions& options) {
  model::SentenceConfig sentence = model::load_sentence_config(folder);
  const std::string& model_folder = sentence.model_folder;
  const model::BertConfig config = model::load_bert_config(model_folder);
  STOF_CHECK(sentence.width == 0 || sentence.width == config.hidden_size, kCorrupt,
             "{}: word_embedding_dimension: expected the model's hidden_size, {}, got {}", folder,
             config.hidden_size, sentence.width);
  model::TextTokenizer tokenizer = model::TextTokenizer::load(model_folder);
  STOF_CHECK(tokenizer.num_ids() <= config.vocab_size, kCorrupt,
             "{}: expected token ids below config.json's vocab_size, {}, got {}", model_folder,
             config.vocab_size, tokenizer.num_ids() - 1);
  std::int64_t limit = sentence.max_tokens > 0 ? sentence.max_tokens : tokenizer.max_tokens();
  limit = limit > 0 ? std::min(limit, config.max_positions) : config.max_positions;
  STOF_CHECK(limit >= tokenizer.num_special(), kCorrupt,
             "{}: expected room for the {} special tokens, got a limit of {} tokens", model_folder,
             tokenizer.num_special(), limit);
  model::PlacedEncoder placed = model::place_encoder(model_folder, config, options);
  return TextEncoder(std::make_shared<const Impl>(
      Impl{folder, std::move(sentence), std::move(tokenizer), std::move(placed), limit}));
}

std::int64_t TextEncoder::hidden_size() const { return impl_->config().hidden_size; }
std::int64_t TextEncoder::num_layers() const { return impl_->config().num_layers; }
std::int64_t TextEncoder::num_heads() const { return impl_->config().num_heads; }
std::int64_t TextEncoder::max_tokens() const { return impl_->max_tokens; }

std::string TextEncoder::place() const { return impl_->encoder().place(); }
std::string TextEncoder::place_note() const { return impl_->placed.note; }

std::string TextEncoder::describe() const {
  const model::BertConfig& config = impl_->config();
  return fmt::format(
      "{}: {} layers, hidden {}, {} heads of {}, inner {} with {}, vocabulary {}, {} of {} "
      "positions; {} pooling{}{}",
      model::names_of(config.family).family, config.num_layers, config.hidden_size,
      config.num_heads, config.head_dim(), config.intermediate_size, name_of(config.activation),
      config.vocab_size, impl_->max_tokens, config.max_positions, name_of(impl_->sentence.pooling),
      impl_->sentence.stated ? "" : " (default: no modules.json)",
      impl_->sentence.normalize ? ", normalised" : "");
}

EncodedText TextEncoder::tokenize(const std::string& text, std::int64_t max_tokens) const {
  EncodedText encoded;
  encoded.ids = impl_->tokenizer.encode(text, impl_->token_limit(max_tokens), &encoded.truncated);
  for (const std::int32_t id : encoded.ids) encoded.tokens.push_back(impl_->tokenizer.token(id));
  return encoded;
}

Tensor TextEncoder::embed(const std::vector<std::string>& texts, const EncodeOptions& options,
                          EncodeTiming* timing) const {
  const std::int64_t hidden = hidden_size();
  Tensor embeddings(DType::kFloat32, {static_cast<std::int64_t>(texts.size()), hidden});
  float* const out = embeddings.as<float>().data();
  const bool normalize = options.normalize.value_or(impl_->sentence.normalize);
  impl_->run(texts, options, timing,
             [&](const model::PackedTexts& packed, std::span<const std::size_t> indices,
                 model::EncoderTiming& spent) {
               const Tensor vectors =
                   impl_->encoder().pooled(packed, options.mask, impl_->sentence.pooling, spent);
               const float* vector = vectors.as<float>().data();
               for (const std::size_t text : indices) {
                 float* row = out + static_cast<std::int64_t>(text) * hidden;
                 std::copy_n(vector, hidden, row);
                 if (normalize) cpu::normalize_l2(row, hidden);
                 vector += hidden;
               }
             });
  return embeddings;
}

std::vector<Tensor> TextEncoder::encode_tokens(const std::vector<std::string>& texts,
                                               const EncodeOptions& options,
                                               EncodeTiming* timing) const {
  std::vector<Tensor> result(texts.size());
  for (Tensor& states : result) states = Tensor(DType::kFloat32, {0, hidden_size()});
  impl_->run(texts, options, timing,
             [&](const model::PackedTexts& packed, std::span<const std::size_t> indices,
                 model::EncoderTiming& spent) {
               const Tensor states = impl_->encoder().forward(packed, options.mask, spent);
               for (std::size_t i = 0; i < indices.size(); ++i) {
                 const std::int64_t begin = packed.offsets[i], end = packed.offsets[i + 1];
                 result[indices[i]] =
                     Tensor::copy_of({states.as<float>().data() + begin * hidden_size(),
                                      DType::kFloat32,
                                      {end - begin, hidden_size()}});
               }
             });
  return result;
}

std::vector<std::vector<FilledMask>> TextEncoder::fill_mask(const std::vector<std::string>& texts,
                                                            std::int64_t count,
                                                            const EncodeOptions& options,
                                                            EncodeTiming* timing) const {
  const std::int32_t mask_id = impl_->tokenizer.mask_id();
  STOF_CHECK(
      mask_id >= 0, kUnsupported,
      "{}: expected a tokenizer with a mask token, got none; was this model trained with one?",
      impl_->folder);
  STOF_CHECK(count >= 1, kInvalidArgument, "count: expected at least 1 candidate, got {}", count);
  const model::MlmHead& head = impl_->mlm_head();
  std::vector<std::vector<FilledMask>> result(texts.size());
  const auto hidden = static_cast<std::size_t>(hidden_size());
  impl_->run(
      texts, options, timing,
      [&](const model::PackedTexts& packed, std::span<const std::size_t> indices,
          model::EncoderTiming& spent) {
        const Tensor states = impl_->encoder().forward(packed, options.mask, spent);
        const std::span<const float> values = states.as<float>();
        std::vector<float> masked;
        for (std::size_t i = 0; i < indices.size(); ++i)
          for (std::int64_t t = packed.offsets[i]; t < packed.offsets[i + 1]; ++t) {
            const auto row = static_cast<std::size_t>(t);
            if (packed.ids[row] != mask_id) continue;
            result[indices[i]].push_back({t - packed.offsets[i], {}});
            masked.insert(masked.end(), values.begin() + static_cast<std::ptrdiff_t>(row * hidden),
                          values.begin() + static_cast<std::ptrdiff_t>((row + 1) * hidden));
          }
        std::vector<FilledMask*> places;
        for (const std::size_t text : indices)
          for (FilledMask& place : result[text]) places.push_back(&place);
        // A few rows at a time: each has a number for every token of the vocabulary.
        constexpr std::size_t kRows = 64;
        const auto vocab = static_cast<std::size_t>(impl_->config().vocab_size);
        for (std::size_t first = 0; first < places.size(); first += kRows) {
          const std::size_t rows = std::min(kRows, places.size() - first);
          const Tensor logits =
              head.logits(std::span<const float>(masked).subspan(first * hidden, rows * hidden));
          for (std::size_t i = 0; i < rows; ++i)
            for (const auto& [id, probability] :
                 model::likeliest(logits.as<float>().subspan(i * vocab, vocab), count))
              places[first + i]->candidates.push_back(impl_->candidate(id, probability));
        }
      });
  for (std::size_t i = 0; i < texts.size(); ++i)
    STOF_CHECK(!result[i].empty(), kInvalidArgument,
               "text {}: expected the mask token \"{}\" among the tokens that are read, got none",
               i + 1, impl_->tokenizer.token(mask_id));
  return result;
}

}  // namespace stof
