#include "model_folder.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/env.h"
#include "core/file.h"
#include "model/model_kind.h"
#include "output.h"

namespace stof::cli {

std::string default_model_folder() { return cache_folder() + "/models/all-minilm-l6-v2"; }

std::string default_generator_folder() { return cache_folder() + "/models/smollm2-135m-instruct"; }

ModelFolderState inspect_model_folder(const std::string& folder) {
  ModelFolderState state{folder, ""};
  const auto has = [&folder](const char* name) { return file_exists(folder + "/" + name); };
  if (!is_folder(folder))
    state.problem = "not there; run scripts/setup --models";
  else if (!has("config.json"))
    state.problem = "config.json is missing";
  else if (!has("model.safetensors") && !has("model.safetensors.index.json"))
    state.problem = "model.safetensors is missing";
  else if (!has("vocab.txt") && !has("tokenizer.json"))
    state.problem = "vocab.txt and tokenizer.json are missing";
  return state;
}

std::string model_type(const std::string& folder) {
  const std::string file = folder + "/config.json";
  constexpr std::uint64_t kMaxBytes = 1 << 20;
  if (!file_exists(file)) return "";
  const nlohmann::json config =
      nlohmann::json::parse(read_text_file(file, kMaxBytes), nullptr, /*allow_exceptions=*/false);
  const auto type = config.is_object() ? config.find("model_type") : config.end();
  return type != config.end() && type->is_string() ? type->get<std::string>() : "";
}

bool is_decoder(const std::string& path) {
  if (!is_folder(path)) return path.ends_with(".gguf");
  if (!file_exists(path + "/config.json")) {
    std::error_code failed;
    for (const auto& entry : std::filesystem::directory_iterator(path, failed))
      if (entry.path().extension() == ".gguf") return true;
    return false;
  }
  return model::is_generator_type(model_type(path));
}

TextEncoder load_encoder(const std::string& folder, const LoadOptions& options) {
  STOF_CHECK(is_folder(folder), kNotFound, "--model: {}: no such folder{}", folder,
             folder == default_model_folder()
                 ? "; run scripts/setup --models to fetch the demo model"
                 : "; expected one with config.json, model.safetensors and vocab.txt");
  return TextEncoder::load(folder, options);
}

void report_place(const std::string& place, const std::string& note, const Program& program) {
  if (program.quiet) return;
  if (!note.empty())
    write_note(fmt::format("computing on the {}; not on the GPU: {}", place, note));
  else if (place.rfind("CPU", 0) != 0)
    write_note("computing on the " + place);
}

}  // namespace stof::cli
