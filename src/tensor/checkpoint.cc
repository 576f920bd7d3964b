#include "stof/checkpoint.h"

#include "core/check.h"
#include "core/file.h"
#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "tensor/gguf_blocks.h"
#include "tensor/lookup.h"

namespace stof {
namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

/// An index has about a hundred bytes per tensor.
constexpr std::uint64_t kMaxIndexBytes = 64 << 20;

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

/// A shard is a plain file name: an index cannot make us read elsewhere.
void check_shard_name(const std::string& shard, const std::string& tensor,
                      const std::string& index) {
  const bool plain = !shard.empty() && shard != "." && shard != ".." &&
                     shard.find('/') == std::string::npos &&
                     shard.find('\\') == std::string::npos && shard.find('\0') == std::string::npos;
  STOF_CHECK(plain, kCorrupt,
             "{}: weight_map: tensor {}: expected the name of a file in the same folder, got {}",
             index, quote_text(tensor), quote_text(shard));
}

/// weight_map of an index file: tensor name -> shard name, both checked.
std::map<std::string, std::string> parse_weight_map(const std::string& index) {
  const nlohmann::json json = parse_json(read_text_file(index, kMaxIndexBytes), index);
  const auto found = json.is_object() ? json.find("weight_map") : json.end();
  STOF_CHECK(found != json.end() && found->is_object(), kCorrupt,
             "{}: expected an object with the field weight_map, an object of tensor names", index);
  std::map<std::string, std::string> weight_map;
  for (const auto& [tensor, shard] : found->items()) {
    STOF_CHECK(shard.is_string(), kCorrupt, "{}: weight_map: tensor {}: expected a string, got {}",
               index, quote_text(tensor), shard.type_name());
    check_shard_name(shard.get_ref<const std::string&>(), tensor, index);
    weight_map.emplace(tensor, shard.get<std::string>());
  }
  return weight_map;
}

/// Nothing for quantised types.
std::optional<DType> plain_dtype(GgufType type) {
  switch (type) {
    case GgufType::kF32:
      return DType::kFloat32;
    case GgufType::kF16:
      return DType::kFloat16;
    case GgufType::kBF16:
      return DType::kBFloat16;
    default:
      return std::nullopt;
  }
}

}  // namespace

Checkpoint Checkpoint::open(const std::string& path) {
  Checkpoint checkpoint;
  checkpoint.path_ = path;
  if (!is_folder(path)) {
    if (path.ends_with(".json")) {
      checkpoint.read_index(path);
    } else if (path.ends_with(".gguf")) {
      checkpoint.add_gguf(path);
    } else {
      checkpoint.add_file(SafetensorsFile::open(path));
    }
    return checkpoint;
  }
  const std::string single = path + "/" + kSingleFile, index = path + "/" + kIndexFile;
  if (file_exists(single)) {
    checkpoint.add_file(SafetensorsFile::open(single));
    return checkpoint;
  }
  STOF_CHECK(file_exists(index), kNotFound, "{}: expected {} or {} in this folder{}", path,
             kSingleFile, kIndexFile,
             file_exists(path + "/pytorch_model.bin")
                 ? "; pytorch_model.bin is a pickle, which is not read: convert it to safetensors"
                 : "");
  checkpoint.read_index(index);
  return checkpoint;
}

void Checkpoint::add_file(const SafetensorsFile& file) {
  for (const auto& [name, view] : file.tensors())
    entries_.emplace(name, Entry{view, files_.size()});
  files_.push_back(file);
}

void Checkpoint::add_gguf(const std::string& path) {
  gguf_ = GgufFile::open(path);
  for (const auto& [name, tensor] : gguf_->tensors()) {
    Entry entry{};
    entry.view.shape = tensor.shape;
    if (const std::optional<DType> plain = plain_dtype(tensor.type)) {
      entry.view = TensorView(tensor.data.data(), *plain, tensor.shape);
    } else {
      entry.quantized = &tensor;
    }
    entries_.emplace(name, entry);
  }
}

void Checkpoint::read_index(const std::string& index_path) {
  const std::map<std::string, std::string> weight_map = parse_weight_map(index_path);
  const std::string folder = folder_of(index_path);
  std::map<std::string, std::size_t> file_idx_of;
  for (const auto& [name, shard] : weight_map) {
    const auto [known, is_new] = file_idx_of.emplace(shard, files_.size());
    if (is_new) files_.push_back(SafetensorsFile::open(folder + "/" + shard));
    const SafetensorsFile& file = files_[known->second];
    const TensorView* view = file.find(name);
    STOF_CHECK(view != nullptr, kCorrupt,
               "{}: weight_map: tensor {} is not in {}, where the map puts it", index_path,
               quote_text(name), file.path());
    entries_.emplace(name, Entry{*view, known->second});
  }
  std::size_t stored = 0;
  for (const SafetensorsFile& file : files_) stored += file.tensors().size();
  if (stored > entries_.size())
    log_warn("{}: {} tensors of the shards are not in weight_map and are left out", index_path,
             stored - entries_.size());
}

std::vector<std::string_view> Checkpoint::names() const {
  std::vector<std::string_view> names;
  names.reserve(entries_.size());
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

void Checkpoint::add_alias(const std::string& alias, std::string_view name) {
  const Entry entry = require_entry(entries_, name, path_);
  entries_.try_emplace(alias, entry);
}

const std::string& Checkpoint::file_of(const Entry& entry) const {
  return gguf_ ? gguf_->path() : files_[entry.file_idx].path();
}

const TensorView& Checkpoint::view_of(const Entry& entry, std::string_view name) const {
  STOF_CHECK(entry.quantized == nullptr, kUnsupported,
             "{}: tensor {}: expected plain floats, got {}, which has no view; read it with "
             "Checkpoint::float32",
             file_of(entry), quote_text(name), to_string(entry.quantized->type));
  return entry.view;
}

const TensorView* Checkpoint::find(std::string_view name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &view_of(found->second, name);
}

const TensorView& Checkpoint::require(std::string_view name) const {
  return view_of(require_entry(entries_, name, path_), name);
}

const TensorView& Checkpoint::require(std::string_view name, const Dims& shape) const {
  const Entry& entry = require_entry(entries_, name, path_);
  require_shape(entry.view, shape, name, file_of(entry));
  return view_of(entry, name);
}

Tensor Checkpoint::float32(std::string_view name, const Dims& shape) const {
  const Entry& entry = require_entry(entries_, name, path_);
  require_shape(entry.view, shape, name, file_of(entry));
  if (entry.quantized == nullptr) return Tensor::converted(entry.view, DType::kFloat32);
  Tensor result(DType::kFloat32, shape);
  const GgufTensor& stored = *entry.quantized;
  dequantize(stored.type, stored.data.data(), result.size() / gguf_block(stored.type).elements,
             result.as<float>().data());
  return result;
}

}  // namespace stof
