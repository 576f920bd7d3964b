// Encoders of stof/models.h.

#include <algorithm>

#include "capi/guard.h"
#include "capi/model.h"
#include "capi/sized.h"

namespace stof::capi {
namespace {

EncodeOptions encode_options_of(const stof_encode_options* options) {
  const stof_encode_options given = read_sized_or_default(options, "options");
  EncodeOptions result;
  result.num_threads = given.num_threads;
  result.mask = masks_of(given.mask, given.mask_set);
  result.max_tokens = given.max_tokens;
  result.batch = value_or(given.batch, result.batch);
  STOF_CHECK(given.normalize >= STOF_NORMALIZE_AS_STATED && given.normalize <= STOF_NORMALIZE_NOT,
             kInvalidArgument,
             "options.normalize: expected {} (STOF_NORMALIZE_AS_STATED), {} (STOF_NORMALIZE) or {} "
             "(STOF_NORMALIZE_NOT), got {}",
             static_cast<int>(STOF_NORMALIZE_AS_STATED), static_cast<int>(STOF_NORMALIZE),
             static_cast<int>(STOF_NORMALIZE_NOT), given.normalize);
  if (given.normalize != STOF_NORMALIZE_AS_STATED)
    result.normalize = given.normalize == STOF_NORMALIZE;
  STOF_CHECK(given.reserved == 0, kInvalidArgument, "options.reserved: expected 0, got {}",
             given.reserved);
  result.progress = progress_of(given.on_progress, given.context);
  return result;
}

/// Of what gives no embeddings.
EncodeOptions options_without_normalize(const stof_encode_options* options) {
  EncodeOptions result = encode_options_of(options);
  STOF_CHECK(!result.normalize.has_value(), kInvalidArgument,
             "options.normalize: expected 0, of embeddings alone");
  return result;
}

}  // namespace
}  // namespace stof::capi

using namespace stof::capi;

extern "C" {

stof_status stof_model_embed(const stof_model* model, int64_t num_texts, const char* const* texts,
                             const int64_t* num_bytes, const stof_encode_options* options,
                             const stof_tensor* embeddings) {
  return guard([&] {
    const stof::TextEncoder& encoder = encoder_of(model);
    const auto given = texts_of(num_texts, texts, num_bytes, "texts");
    const auto output =
        float32_output_of(embeddings, "embeddings", {num_texts, encoder.hidden_size()});
    write_to(output, encoder.embed(given, encode_options_of(options)));
  });
}

stof_status stof_model_encode_tokens(const stof_model* model, int64_t num_texts,
                                     const char* const* texts, const int64_t* num_bytes,
                                     const stof_encode_options* options,
                                     const stof_tensor* states) {
  return guard([&] {
    const stof::TextEncoder& encoder = encoder_of(model);
    const auto given = texts_of(num_texts, texts, num_bytes, "texts");
    const stof::EncodeOptions encode = options_without_normalize(options);
    std::int64_t rows = 0;
    for (const std::string& text : given)
      rows += static_cast<std::int64_t>(encoder.tokenize(text, encode.max_tokens).ids.size());
    const auto output = float32_output_of(states, "states", {rows, encoder.hidden_size()});
    auto* next = static_cast<std::byte*>(output.data);
    for (const stof::Tensor& state : encoder.encode_tokens(given, encode))
      next = std::copy_n(static_cast<const std::byte*>(state.data()), state.bytes(), next);
  });
}

stof_status stof_model_fill_mask(const stof_model* model, int64_t num_texts,
                                 const char* const* texts, const int64_t* num_bytes, int64_t count,
                                 const stof_encode_options* options, char** json) {
  return make_text(json, "json", [&] {
    constexpr std::int64_t kDefaultCount = 5;
    const auto filled = encoder_of(model).fill_mask(texts_of(num_texts, texts, num_bytes, "texts"),
                                                    value_or(count, kDefaultCount),
                                                    options_without_normalize(options));
    auto all = nlohmann::ordered_json::array();
    for (const auto& places : filled) {
      auto of_text = nlohmann::ordered_json::array();
      for (const stof::FilledMask& place : places) {
        auto candidates = nlohmann::ordered_json::array();
        for (const stof::TokenCandidate& candidate : place.candidates)
          candidates.push_back({{"id", candidate.id},
                                {"token", candidate.token},
                                {"text", candidate.text},
                                {"probability", candidate.probability}});
        of_text.push_back({{"position", place.position}, {"candidates", std::move(candidates)}});
      }
      all.push_back(std::move(of_text));
    }
    return dump(all);
  });
}

}  // extern "C"
