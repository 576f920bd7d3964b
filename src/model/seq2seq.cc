#include "model/seq2seq.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "core/bits.h"
#include "core/check.h"
#include "exec/cpu_session.h"
#include "model/cuda/seq2seq_place.h"
#include "model/decoder_fields.h"
#include "model/place_choice.h"

namespace stof::model {
namespace {

/// Sessions that wait for their next texts, each with caches.
constexpr std::size_t kMaxIdleSessions = 2;
/// Tokens of texts that are read at once, but for a longer text: bounds the memory of activations.
constexpr std::int64_t kMaxEncodedRows = 8192;

Seq2SeqGraphOptions options_of(const Seq2SeqSizes& sizes) {
  Seq2SeqGraphOptions options;
  options.cross_cache_size = sizes.cross_cache;
  options.cache_size = sizes.cache;
  options.head_rows = sizes.head_rows;
  return options;
}

class CpuSeq2SeqSession final : public Seq2SeqSession, private DecoderSession {
 public:
  CpuSeq2SeqSession(const Seq2SeqModel& model, const Seq2SeqSizes& sizes,
                    std::shared_ptr<exec::CpuWeights> encoder,
                    std::shared_ptr<exec::CpuWeights> decoder)
      : states_(std::make_shared<exec::CpuStates>()),
        encoder_(
            [&model, options = options_of(sizes)](std::int64_t rows) {
              return with_layer_masks(model.encoder_graph(rows, DType::kFloat32, options));
            },
            std::move(encoder), {}, states_),
        decoder_(
            [&model, options = options_of(sizes)](std::int64_t rows) {
              return model.decoder_graph(rows, DType::kFloat32, options);
            },
            std::move(decoder), {}, states_) {}

  Tensor encode(const exec::Batch& batch, bool, exec::RunTiming* timing) override {
    return encoder_.run(batch, timing);
  }
  DecoderSession& decoder() override { return *this; }

 private:
  Tensor run(const exec::Batch& batch, exec::RunTiming* timing) override {
    return decoder_.run(batch, timing);
  }
  void move_rows(std::int64_t, std::int64_t, std::int64_t) override { refuse_to_move_rows(); }

  std::shared_ptr<exec::CpuStates> states_;
  exec::CpuSession encoder_, decoder_;
};

class CpuSeq2SeqPlace final : public Seq2SeqPlace {
 public:
  explicit CpuSeq2SeqPlace(const Seq2SeqModel& model) : model_(model) {
    const Seq2SeqGraphOptions options = options_of({kCachePage, kCachePage, 1});
    const graph::Graph encoder = model.encoder_graph(1, DType::kFloat32, options);
    encoder_weights_ = packed(encoder, model.encoder_weights(encoder), bound_[0]);
    const graph::Graph decoder = model.decoder_graph(1, DType::kFloat32, options);
    decoder_weights_ = packed(decoder, model.decoder_weights(decoder), bound_[1]);
  }

  std::string describe() const override { return "CPU, float32"; }
  std::unique_ptr<Seq2SeqSession> open(const Seq2SeqSizes& sizes) const override {
    return std::make_unique<CpuSeq2SeqSession>(model_, sizes, encoder_weights_, decoder_weights_);
  }

 private:
  static std::shared_ptr<exec::CpuWeights> packed(const graph::Graph& graph, GraphWeights weights,
                                                  GraphWeights& kept) {
    kept = std::move(weights);
    auto result = std::make_shared<exec::CpuWeights>(graph, kept.values);
    // Once in memory, not twice.
    result->pack(graph, [&](graph::ValueId id) { kept.release(id); });
    return result;
  }

  const Seq2SeqModel& model_;
  GraphWeights bound_[2];
  std::shared_ptr<exec::CpuWeights> encoder_weights_, decoder_weights_;
};

}  // namespace

void refuse_to_move_rows() {
  throw_error(ErrorCode::kInternal,
              "an encoder-decoder's sequences keep all tokens: there are no rows to move");
}

namespace {

DecoderFacts decoder_facts(const Seq2SeqFacts& facts) {
  DecoderFacts decoder;
  decoder.num_layers = facts.decoder_layers;
  decoder.num_heads = facts.num_heads;
  decoder.vocab_size = facts.vocab_size;
  decoder.max_positions = kMaxPositions;
  decoder.end_tokens = facts.end_tokens;
  decoder.description = facts.description;
  return decoder;
}

/// Pages of texts one behind the other.
graph::CachePages pages_of(const std::vector<std::int64_t>& lengths) {
  graph::CachePages pages;
  pages.page_size = kCachePage;
  pages.lengths = lengths;
  std::int32_t next = 0;
  for (const std::int64_t length : lengths) {
    std::vector<std::int32_t>& mine = pages.pages.emplace_back();
    for (std::int64_t key = 0; key < length; key += kCachePage) mine.push_back(next++);
  }
  return pages;
}

/// Powers of two, so that few sizes are planned for and sessions serve again.
std::int64_t rounded_up(std::int64_t rows) {
  return static_cast<std::int64_t>(
      std::bit_ceil(static_cast<std::uint64_t>(std::max(rows, kCachePage))));
}

}  // namespace

Seq2SeqDecoder::Seq2SeqDecoder(const Seq2SeqModel& model)
    : DecoderModel(decoder_facts(model.facts())), model_(model) {}

graph::Graph Seq2SeqDecoder::graph(std::int64_t rows, DType dtype,
                                   const DecoderGraphOptions& options) const {
  Seq2SeqGraphOptions own;
  own.cross_cache_size = own.cache_size = options.cache_size;
  own.joined_gate = options.joined_gate;
  own.head_rows = options.head_rows;
  own.pad_vocabulary = options.pad_vocabulary;
  return model_.decoder_graph(rows, dtype, own);
}

GraphWeights Seq2SeqDecoder::weights(const graph::Graph& graph) const {
  return model_.decoder_weights(graph);
}

std::vector<mask::Mask> Seq2SeqDecoder::masks(const mask::Mask& also) const {
  return {mask::causal() & also, mask::all()};
}

Seq2Seq::Seq2Seq(std::unique_ptr<const Seq2SeqModel> model, const LoadOptions& options)
    : model_(std::move(model)), decoder_(*model_) {
  place_note_ = place_by(
      options, "generators", DType::kBFloat16,
      [&](DType dtype) { place_ = place_seq2seq_on_gpu(*model_, dtype); },
      [&] { place_ = std::make_unique<CpuSeq2SeqPlace>(*model_); });
  masks_of_layers_ = masks_of_layers(model_->encoder_graph(1, DType::kFloat32, {}));
}

Seq2Seq::Lease::Lease(const Seq2Seq& model, std::unique_ptr<Kept> kept, std::int64_t count,
                      std::int64_t most_written)
    : model_(model),
      kept_(std::move(kept)),
      sequences_(model.decoder_, kept_->session->decoder(), count,
                 {most_written, kMaxPositions, std::nullopt}, {model.decoder_.masks({}), {}, {}}) {}

Seq2Seq::Lease::~Lease() {
  const std::lock_guard lock(model_.mutex_);
  model_.idle_.push_front(std::move(kept_));
  if (model_.idle_.size() > kMaxIdleSessions) model_.idle_.pop_back();
}

Seq2Seq::Lease Seq2Seq::start(const std::vector<std::int64_t>& lengths, std::int64_t written,
                              std::int64_t logit_rows) const {
  const auto count = static_cast<std::int64_t>(lengths.size());
  const std::int64_t most = rounded_up(written);
  std::int64_t read = 0;
  for (const std::int64_t length : lengths) read += ceil_div(length, kCachePage) * kCachePage;
  const Seq2SeqSizes sizes{rounded_up(read), count * most, logit_rows > 0 ? logit_rows : count};
  std::unique_ptr<Lease::Kept> kept;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find_if(idle_, [&](const auto& idle) {
      return idle->sizes.head_rows == sizes.head_rows && idle->sizes.cache >= sizes.cache &&
             idle->sizes.cross_cache >= sizes.cross_cache;
    });
    if (found != idle_.end()) {
      kept = std::move(*found);
      idle_.erase(found);
    }
  }
  if (kept == nullptr)
    kept = std::make_unique<Lease::Kept>(Lease::Kept{sizes, place_->open(sizes)});
  return Lease(*this, std::move(kept), count, most);
}

Tensor Seq2Seq::Lease::encode(const std::vector<std::span<const std::int32_t>>& texts,
                              const mask::MaskSet& mask, exec::RunTiming& timing, bool wanted) {
  const Seq2SeqFacts& facts = model_.facts();
  mask.check(facts.encoder_layers, facts.num_heads, "texts");
  const LayerMasks masks = combine_masks(
      model_.masks_of_layers_, [](const mask::Mask& also) { return std::vector<mask::Mask>{also}; },
      mask, facts.num_heads);
  std::vector<std::int64_t> lengths;
  std::int64_t rows = 0;
  for (const std::span<const std::int32_t> text : texts) {
    STOF_CHECK(!text.empty(), kInvalidArgument, "text: expected at least one token, got none");
    for (std::size_t i = 0; i < text.size(); ++i)
      STOF_CHECK(text[i] >= 0 && text[i] < facts.vocab_size, kInvalidArgument,
                 "token {}: expected an id below {}, got {}", i, facts.vocab_size, text[i]);
    lengths.push_back(static_cast<std::int64_t>(text.size()));
    rows += lengths.back();
  }
  const graph::CachePages pages = pages_of(lengths);
  Tensor result;
  if (wanted) result = Tensor(DType::kFloat32, {rows, facts.hidden_size});
  std::byte* next = wanted ? static_cast<std::byte*>(result.data()) : nullptr;
  for (std::size_t first = 0; first < texts.size();) {
    std::size_t last = first + 1;
    std::int64_t together = lengths[first];
    while (last < texts.size() && together + lengths[last] <= kMaxEncodedRows)
      together += lengths[last++];
    Tensor part;
    encode_some(texts, first, last, pages, masks, timing, wanted ? &part : nullptr);
    if (wanted) {
      std::memcpy(next, std::as_const(part).data(), part.bytes());
      next += part.bytes();
    }
    first = last;
  }
  sequences_.set_cross(pages);
  return result;
}

void Seq2Seq::Lease::encode_some(const std::vector<std::span<const std::int32_t>>& texts,
                                 std::size_t first, std::size_t last,
                                 const graph::CachePages& pages, const LayerMasks& masks,
                                 exec::RunTiming& timing, Tensor* result) {
  exec::Batch batch;
  batch.offsets = {0};
  masks.bind(batch);
  std::vector<std::int32_t> ids, slots;
  for (std::size_t i = first; i < last; ++i) {
    ids.insert(ids.end(), texts[i].begin(), texts[i].end());
    batch.offsets.push_back(static_cast<std::int64_t>(ids.size()));
    for (std::int64_t key = 0; key < pages.lengths[i]; ++key)
      slots.push_back(static_cast<std::int32_t>(pages.row(i, key)));
  }
  const Dims rows = {static_cast<std::int64_t>(ids.size())};
  batch.inputs = {{"ids", {ids.data(), DType::kInt32, rows}},
                  {"slots", {slots.data(), DType::kInt32, rows}}};
  Tensor states = kept_->session->encode(batch, result != nullptr, &timing);
  if (result != nullptr) *result = std::move(states);
}

}  // namespace stof::model
