#include "model/decoder.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/bits.h"
#include "exec/cpu_session.h"
#include "model/cuda/decoder_place.h"
#include "model/place_choice.h"

namespace stof::model {
namespace {

/// Up to which float32 counts, in which positions are turned to angles.
constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;

/// Sessions that wait for their next sequences, each with caches.
constexpr std::size_t kMaxIdle = 2;

exec::GraphOf graph_of(const DecoderModel& model, std::int64_t cache_size, std::int64_t head_rows) {
  return [&model, cache_size, head_rows](std::int64_t rows) {
    return with_layer_masks(
        model.graph(rows, DType::kFloat32,
                    {.cache_size = cache_size, .reads_cache = true, .head_rows = head_rows}));
  };
}

class CpuDecoderSession final : public DecoderSession {
 public:
  CpuDecoderSession(exec::GraphOf graph, std::shared_ptr<exec::CpuWeights> weights)
      : session_(std::move(graph), std::move(weights)) {}

  Tensor run(const exec::Batch& batch, exec::RunTiming* timing) override {
    return session_.run(batch, timing);
  }
  void move_rows(std::int64_t to, std::int64_t from, std::int64_t count) override {
    session_.move_state_rows(to, from, count);
  }

 private:
  exec::CpuSession session_;
};

class CpuDecoderPlace final : public DecoderPlace {
 public:
  explicit CpuDecoderPlace(const DecoderModel& model) : model_(model) {
    const graph::Graph graph = graph_of(model, kCachePage, 1)(1);
    bound_ = model.weights(graph);
    weights_ = std::make_shared<exec::CpuWeights>(graph, bound_.values);
    // Once in memory, not twice.
    weights_->pack(graph, [this](graph::ValueId id) { bound_.release(id); });
  }

  std::string describe() const override { return "CPU, float32"; }
  std::unique_ptr<DecoderSession> open(std::int64_t cache_size,
                                       std::int64_t head_rows) const override {
    return std::make_unique<CpuDecoderSession>(graph_of(model_, cache_size, head_rows), weights_);
  }

 private:
  const DecoderModel& model_;
  GraphWeights bound_;
  std::shared_ptr<exec::CpuWeights> weights_;
};

}  // namespace

Decoder::Decoder(std::unique_ptr<const DecoderModel> model, const LoadOptions& options)
    : model_(std::move(model)) {
  place_note_ = place_by(
      options, "generators", DType::kBFloat16,
      [&](DType dtype) { place_ = place_decoder_on_gpu(*model_, dtype); },
      [&] { place_ = std::make_unique<CpuDecoderPlace>(*model_); });
  masks_of_layers_ = masks_of_layers(model_->graph(1, DType::kFloat32, {}));
}

Decoder::Lease::Lease(const Decoder& decoder, std::unique_ptr<Kept> kept,
                      const SequencesOptions& options, LayerMasks masks, const CacheRows& rows)
    : decoder_(decoder),
      kept_(std::move(kept)),
      sequences_(*decoder.model_, *kept_->session, options.count, rows, std::move(masks)) {}

Decoder::Lease::~Lease() {
  const std::lock_guard lock(decoder_.mutex_);
  decoder_.idle_.push_front(std::move(kept_));
  if (decoder_.idle_.size() > kMaxIdle) decoder_.idle_.pop_back();
}

LayerMasks Decoder::masks(const mask::MaskSet& also) const {
  also.check(facts().num_layers, facts().num_heads, "texts");
  return combine_masks(
      masks_of_layers_, [this](const mask::Mask& mask) { return model_->masks(mask); }, also,
      facts().num_heads);
}

std::int64_t Decoder::most_tokens(const mask::MaskSet& mask) const {
  if (facts().position_table || !reach_of(masks(mask))) return facts().max_positions;
  return std::max(kMostTokens, facts().max_positions);
}

Decoder::Lease Decoder::start(const SequencesOptions& options) const {
  LayerMasks masks = this->masks(options.mask);
  CacheRows rows;
  rows.reach = reach_of(masks);
  rows.most_tokens = most_tokens(options.mask);
  // Few sizes, so that few are planned for and sessions serve again.
  const std::int64_t tokens =
      std::clamp<std::int64_t>(options.tokens, kCachePage, std::max(kCachePage, rows.most_tokens));
  rows.each = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(tokens)));
  if (rows.reach) {
    const std::int64_t chunk = options.chunk > 0 ? options.chunk : tokens;
    rows.each = std::min(rows.each, page_ceil(exec::bucket_rows(rows_within(*rows.reach, chunk))));
  }
  const std::int64_t count = options.count, most = rows.each;
  const std::int64_t head_rows = options.logit_rows > 0 ? options.logit_rows : count;
  std::unique_ptr<Lease::Kept> kept;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find_if(idle_, [&](const auto& idle) {
      return idle->head_rows == head_rows && idle->cache_size >= count * most;
    });
    if (found != idle_.end()) {
      kept = std::move(*found);
      idle_.erase(found);
    }
  }
  if (kept == nullptr)
    kept = std::make_unique<Lease::Kept>(
        Lease::Kept{count * most, head_rows, place_->open(count * most, head_rows)});
  return Lease(*this, std::move(kept), options, std::move(masks), rows);
}

}  // namespace stof::model
