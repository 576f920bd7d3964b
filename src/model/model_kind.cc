#include "model/model_kind.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <system_error>

#include "core/check.h"
#include "core/file.h"
#include "model/decoder_fields.h"
#include "model/json_fields.h"

namespace stof::model {
namespace {

struct KnownType {
  std::string_view name;
  ModelKind kind;
};

constexpr KnownType kKnownTypes[] = {
    {"bert", ModelKind::kEncoder},          {"roberta", ModelKind::kEncoder},
    {"distilbert", ModelKind::kEncoder},    {"modernbert", ModelKind::kEncoder},
    {"llama", ModelKind::kGenerator},       {"mistral", ModelKind::kGenerator},
    {"qwen2", ModelKind::kGenerator},       {"gpt2", ModelKind::kGenerator},
    {"gemma3_text", ModelKind::kGenerator}, {"gemma3", ModelKind::kGenerator},
    {"vit", ModelKind::kImageClassifier},   {"t5", ModelKind::kSeq2Seq},
    {"mt5", ModelKind::kSeq2Seq},
};

const KnownType* find_type(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kKnownTypes), std::end(kKnownTypes),
                                         [&](const KnownType& type) { return type.name == name; });
  return found == std::end(kKnownTypes) ? nullptr : found;
}

std::string known_names() {
  std::string names;
  for (const KnownType& type : kKnownTypes)
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", type.name);
  return names;
}

bool has_gguf(const std::string& folder) {
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failed))
    if (entry.path().extension() == ".gguf") return true;
  return false;
}

}  // namespace

bool is_generator_type(std::string_view model_type) {
  const KnownType* type = find_type(model_type);
  return type != nullptr && type->kind == ModelKind::kGenerator;
}

ModelKind model_kind(const std::string& path) {
  if (!is_folder(path)) {
    STOF_CHECK(file_exists(path), kNotFound,
               "{}: expected the folder of a model or a .gguf file, got no such folder or file",
               path);
    STOF_CHECK(path.ends_with(".gguf"), kInvalidArgument,
               "{}: expected the folder of a model or a .gguf file, got another file", path);
    return ModelKind::kGenerator;
  }
  const std::string file = path + "/config.json";
  if (!file_exists(file)) {
    if (has_gguf(path)) return ModelKind::kGenerator;
    if (file_exists(path + "/modules.json")) return ModelKind::kEncoder;  // names a folder inside
    throw_error(ErrorCode::kNotFound,
                "{}: expected config.json or a .gguf file in this folder, got neither", path);
  }
  const Json json = read_json_file(file, kMaxConfigBytes);
  const JsonFields fields(json, file);
  if (!fields.has("model_type")) return ModelKind::kEncoder;  // early ones, which name their class
  const KnownType* type = find_type(fields.string("model_type"));
  if (type == nullptr) fields.refuse("model_type", known_names());
  return type->kind;
}

}  // namespace stof::model
