// Models of stof/models.h: loading them, what they are, their tokens.

#include "capi/model.h"

#include <algorithm>

#include "capi/convert.h"
#include "capi/guard.h"
#include "capi/mask.h"
#include "capi/sized.h"
#include "core/cancel.h"
#include "model/model_kind.h"

namespace stof::capi {
namespace {

constexpr const char* kArticles[] = {"an encoder", "a generator", "an image classifier",
                                     "a seq2seq generator"};
constexpr const char* kKinds[] = {"encoder", "generator", "image classifier", "seq2seq generator"};

template <class Kind>
const Kind& model_of(const stof_model* model, int kind) {
  const auto& held = required(model, "model").model;
  const auto* const found = std::get_if<Kind>(&held);
  STOF_CHECK(found != nullptr, kUnsupported, "model: expected {}, got {}", kArticles[kind],
             kArticles[held.index()]);
  return *found;
}

LoadOptions load_options_of(const stof_load_options& given) {
  LoadOptions options;
  switch (given.device) {
    case STOF_CPU:
      options.place = Place::kCpu;
      break;
    case STOF_GPU:
      options.place = Place::kCuda;
      break;
    case STOF_AUTO:
      options.place = Place::kAuto;
      break;
    default:
      throw_error(ErrorCode::kInvalidArgument,
                  "options.device: expected {} (STOF_CPU), {} (STOF_GPU) or {} (STOF_AUTO), got {}",
                  static_cast<int>(STOF_CPU), static_cast<int>(STOF_GPU),
                  static_cast<int>(STOF_AUTO), given.device);
  }
  if (flag_of(given.has_dtype, "options.has_dtype"))
    options.dtype = dtype_of(given.dtype, "options");
  else
    STOF_CHECK(given.dtype == 0, kInvalidArgument,
               "options.dtype: expected 0 because has_dtype is 0, got {}; set has_dtype to 1",
               given.dtype);
  STOF_CHECK(given.tuning == STOF_TUNING_CACHED || given.tuning == STOF_TUNING_OFF,
             kInvalidArgument,
             "options.tuning: expected {} (STOF_TUNING_CACHED) or {} (STOF_TUNING_OFF), got {}",
             static_cast<int>(STOF_TUNING_CACHED), static_cast<int>(STOF_TUNING_OFF), given.tuning);
  options.tuning = given.tuning == STOF_TUNING_OFF ? Tuning::kOff : Tuning::kCached;
  STOF_CHECK(given.reserved == 0, kInvalidArgument, "options.reserved: expected 0, got {}",
             given.reserved);
  return options;
}

/// Those compute on the CPU in float32 alone.
ImageClassifier load_classifier(const std::string& path, const LoadOptions& options) {
  STOF_CHECK(options.place != Place::kCuda, kUnsupported,
             "device: image classifiers compute on the CPU, got a GPU");
  STOF_CHECK(!options.dtype || *options.dtype == DType::kFloat32, kUnsupported,
             "dtype: image classifiers compute in float32, got {}", to_string(*options.dtype));
  return ImageClassifier::load(path);
}

stof_model load(const std::string& path, const LoadOptions& options) {
  switch (model::model_kind(path)) {
    case model::ModelKind::kGenerator:
      return {TextGenerator::load(path, options)};
    case model::ModelKind::kImageClassifier:
      return {load_classifier(path, options)};
    case model::ModelKind::kSeq2Seq:
      return {Seq2SeqGenerator::load(path, options)};
    case model::ModelKind::kEncoder:
      break;
  }
  return {TextEncoder::load(path, options)};
}

nlohmann::ordered_json facts_of(const TextEncoder& model) {
  return {{"place", model.place()},
          {"place_note", model.place_note()},
          {"num_layers", model.num_layers()},
          {"num_heads", model.num_heads()},
          {"hidden_size", model.hidden_size()},
          {"max_tokens", model.max_tokens()}};
}

nlohmann::ordered_json facts_of(const TextGenerator& model) {
  return {{"place", model.place()},           {"place_note", model.place_note()},
          {"num_layers", model.num_layers()}, {"num_heads", model.num_heads()},
          {"vocab_size", model.vocab_size()}, {"max_positions", model.max_positions()}};
}

nlohmann::ordered_json facts_of(const ImageClassifier& model) {
  return {{"place", "CPU, float32"},
          {"place_note", ""},
          {"num_layers", model.num_layers()},
          {"num_heads", model.num_heads()},
          {"image_height", model.image_height()},
          {"image_width", model.image_width()},
          {"labels", model.labels()}};
}

nlohmann::ordered_json facts_of(const Seq2SeqGenerator& model) {
  auto tasks = nlohmann::ordered_json::array();
  for (const Seq2SeqTask& task : model.tasks()) tasks.push_back(to_json(task));
  return {{"place", model.place()},
          {"place_note", model.place_note()},
          {"num_layers", model.encoder_layers()},
          {"num_decoder_layers", model.decoder_layers()},
          {"num_heads", model.num_heads()},
          {"hidden_size", model.hidden_size()},
          {"vocab_size", model.vocab_size()},
          {"tasks", tasks}};
}

std::string tokens_of(const TextEncoder& model, const std::string& text, std::int64_t max_tokens) {
  const EncodedText encoded = model.tokenize(text, max_tokens);
  return dump({{"ids", encoded.ids}, {"tokens", encoded.tokens}, {"truncated", encoded.truncated}});
}

/// Of a model whose texts are not cut.
template <class Generator>
std::string tokens_of(const Generator& model, const std::string& text, std::int64_t max_tokens) {
  STOF_CHECK(max_tokens == 0, kInvalidArgument,
             "max_tokens: expected 0 of a generator, whose texts are not cut, got {}", max_tokens);
  const std::vector<std::int32_t> ids = model.tokenize(text);
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const std::int32_t id : ids) tokens.push_back(model.token(id));
  return dump({{"ids", ids}, {"tokens", tokens}, {"truncated", false}});
}

std::string tokens_of(const ImageClassifier&, const std::string&, std::int64_t) {
  throw_error(ErrorCode::kUnsupported,
              "model: expected an encoder, a generator or a seq2seq generator, got an image "
              "classifier");
}

}  // namespace

const TextEncoder& encoder_of(const stof_model* model) {
  return model_of<TextEncoder>(model, STOF_ENCODER);
}
const TextGenerator& generator_of(const stof_model* model) {
  return model_of<TextGenerator>(model, STOF_GENERATOR);
}
const ImageClassifier& classifier_of(const stof_model* model) {
  return model_of<ImageClassifier>(model, STOF_IMAGE_CLASSIFIER);
}
const Seq2SeqGenerator& seq2seq_of(const stof_model* model) {
  return model_of<Seq2SeqGenerator>(model, STOF_SEQ2SEQ_GENERATOR);
}

nlohmann::ordered_json to_json(const Seq2SeqTask& task) {
  return {{"name", task.name}, {"prefix", task.prefix}, {"max_tokens", task.max_tokens}};
}

std::string text_of(const char* text, std::int64_t num_bytes, const std::string& name) {
  required(text, name.c_str());
  return num_bytes < 0 ? std::string(text) : std::string(text, static_cast<std::size_t>(num_bytes));
}

std::vector<std::string> texts_of(std::int64_t count, const char* const* texts,
                                  const std::int64_t* num_bytes, const std::string& name) {
  STOF_CHECK(count >= 0, kInvalidArgument, "num_{}: expected 0 or more, got {}", name, count);
  if (count > 0) required(texts, name.c_str());
  std::vector<std::string> result;
  for (std::int64_t i = 0; i < count; ++i) {
    STOF_CHECK(num_bytes == nullptr || num_bytes[i] >= 0, kInvalidArgument,
               "num_bytes[{}]: expected 0 or more, got {}", i, num_bytes[i]);
    result.push_back(text_of(texts[i], num_bytes == nullptr ? -1 : num_bytes[i],
                             fmt::format("{}[{}]", name, i)));
  }
  return result;
}

std::vector<std::int32_t> ids_of(std::int64_t count, const std::int32_t* ids) {
  STOF_CHECK(count >= 0, kInvalidArgument, "num_ids: expected 0 or more, got {}", count);
  if (count == 0) return {};
  required(ids, "ids");
  return {ids, ids + count};
}

mask::MaskSet masks_of(const stof_mask* mask, const char* mask_set) {
  STOF_CHECK(mask == nullptr || mask_set == nullptr, kInvalidArgument,
             "options.mask_set: expected null beside a mask, got both");
  if (mask_set != nullptr) return mask::MaskSet::from_json(mask_set, "mask", /*base_dir=*/"");
  return mask == nullptr ? mask::MaskSet() : mask::MaskSet(mask->mask);
}

std::function<void(std::int64_t, std::int64_t)> progress_of(ProgressFunction function,
                                                            void* context) {
  if (function == nullptr) return {};
  return [=](std::int64_t done, std::int64_t total) {
    if (function(context, done, total) != 0) throw Cancelled();
  };
}

MutableTensorView float32_output_of(const stof_tensor* tensor, const char* name,
                                    const Dims& shape) {
  required(tensor, name);
  const MutableTensorView output = output_of(tensor, name);
  STOF_CHECK(output.dtype == DType::kFloat32 && output.shape == shape &&
                 TensorView(output).is_contiguous(),
             kInvalidArgument, "{}: expected row-major float32{}, got {}", name, shape.to_string(),
             TensorView(output).describe());
  return output;
}

void write_to(const MutableTensorView& output, const Tensor& values) {
  std::copy_n(static_cast<const std::byte*>(values.data()), values.bytes(),
              static_cast<std::byte*>(output.data));
}

std::string dump(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace stof::capi

using namespace stof::capi;

extern "C" {

stof_status stof_model_load(const char* path, const stof_load_options* options,
                            stof_model** model) {
  return guard([&] {
    stof_model*& out = required(model, "model");
    const stof_load_options given = read_sized_or_default(options, "options");
    out = new stof_model(load(&required(path, "path"), load_options_of(given)));
  });
}

void stof_model_release(stof_model* model) { delete model; }

stof_status stof_model_kind(const stof_model* model, int32_t* kind) {
  return guard([&] {
    required(kind, "kind") = static_cast<std::int32_t>(required(model, "model").model.index());
  });
}

stof_status stof_model_to_json(const stof_model* model, char** json) {
  return make_text(json, "json", [&] {
    const auto& held = required(model, "model").model;
    nlohmann::ordered_json facts = {{"kind", kKinds[held.index()]}};
    std::visit(
        [&](const auto& loaded) {
          facts["description"] = loaded.describe();
          facts.update(facts_of(loaded));
        },
        held);
    return dump(facts);
  });
}

stof_status stof_model_tokenize(const stof_model* model, const char* text, int64_t num_bytes,
                                int64_t max_tokens, char** json) {
  return make_text(json, "json", [&] {
    return std::visit(
        [&](const auto& loaded) {
          return tokens_of(loaded, text_of(text, num_bytes, "text"), max_tokens);
        },
        required(model, "model").model);
  });
}

}  // extern "C"
