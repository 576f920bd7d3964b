#pragma once
// The handle of a model, and what its functions share.

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

#include "stof/image_classifier.h"
#include "stof/mask_set.h"
#include "stof/models.h"
#include "stof/seq2seq_generator.h"
#include "stof/text_encoder.h"
#include "stof/text_generator.h"

/// In the order of STOF_ENCODER and so on.
struct stof_model {
  std::variant<stof::TextEncoder, stof::TextGenerator, stof::ImageClassifier,
               stof::Seq2SeqGenerator>
      model;
};

namespace stof::capi {

/// Throws Unsupported where the model is of another kind, naming both.
const TextEncoder& encoder_of(const stof_model* model);
const TextGenerator& generator_of(const stof_model* model);
const ImageClassifier& classifier_of(const stof_model* model);
const Seq2SeqGenerator& seq2seq_of(const stof_model* model);

/// Of `num_bytes` bytes, or up to a NUL where that is below 0.
std::string text_of(const char* text, std::int64_t num_bytes, const std::string& name);
/// `name` is what a text is called: "texts" gives "texts[1]".
std::vector<std::string> texts_of(std::int64_t count, const char* const* texts,
                                  const std::int64_t* num_bytes, const std::string& name);
std::vector<std::int32_t> ids_of(std::int64_t count, const std::int32_t* ids);
/// Of options; at most one is not null. Throws InvalidArgument for both.
mask::MaskSet masks_of(const stof_mask* mask, const char* mask_set);

/// Null: the defaults.
GenerateOptions generate_options_of(const stof_generate_options* options);
/// The same of a model that reads texts at once; throws InvalidArgument for a chunk.
GenerateOptions seq2seq_options_of(const stof_generate_options* options);

/// The field that 0 leaves at its default.
template <class T>
T value_or(T given, T fallback) {
  return given == T{} ? fallback : given;
}

using ProgressFunction = std::int32_t (*)(void*, std::int64_t, std::int64_t);
/// Ends the call, by Cancelled, where the caller's function wants it; empty for null.
std::function<void(std::int64_t, std::int64_t)> progress_of(ProgressFunction function,
                                                            void* context);

/// Float32 of this shape, row-major. Throws InvalidArgument naming the tensor.
MutableTensorView float32_output_of(const stof_tensor* tensor, const char* name, const Dims& shape);
void write_to(const MutableTensorView& output, const Tensor& values);

/// {"name", "prefix", "max_tokens"}
nlohmann::ordered_json to_json(const Seq2SeqTask& task);

/// What is not UTF-8 becomes U+FFFD.
std::string dump(const nlohmann::ordered_json& json);

}  // namespace stof::capi
