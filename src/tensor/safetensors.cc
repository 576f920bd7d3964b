#include "stof/safetensors.h"

#include <optional>
#include <utility>

#include "core/check.h"
#include "core/file.h"
#include "core/text.h"
#include "tensor/file_data.h"
#include "tensor/lookup.h"
#include "tensor/safetensors_header.h"

namespace stof {

struct SafetensorsFile::State {
  std::optional<MappedFile> map;  ///< absent where the caller owns the bytes
  std::string path;
  Metadata metadata;
  std::map<std::string, TensorView, std::less<>> tensors;

  void read(std::span<const std::byte> file) {
    SafetensorsHeader header = parse_safetensors_header(file, path);
    const std::byte* data = file.data() + header.data_offset;
    for (const auto& tensor : header.tensors) {
      const TensorView view(data + tensor.begin, tensor.dtype, tensor.shape);
      if (view.dtype == DType::kBool)
        check_bool_bytes({data + tensor.begin, data + tensor.end},
                         fmt::format("{}: tensor {}", path, quote_text(tensor.name)));
      tensors.emplace(tensor.name, view);
    }
    metadata = std::move(header.metadata);
  }
};

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  const auto state = std::make_shared<State>();
  state->path = path;
  state->map.emplace(path);
  state->read(state->map->bytes());
  return SafetensorsFile(state);
}

SafetensorsFile SafetensorsFile::from_bytes(std::span<const std::byte> bytes,
                                            const std::string& name) {
  const auto state = std::make_shared<State>();
  state->path = name;
  state->read(bytes);
  return SafetensorsFile(state);
}

const std::string& SafetensorsFile::path() const { return state_->path; }

const Metadata& SafetensorsFile::metadata() const { return state_->metadata; }

const std::map<std::string, TensorView, std::less<>>& SafetensorsFile::tensors() const {
  return state_->tensors;
}

const TensorView* SafetensorsFile::find(std::string_view name) const {
  const auto found = state_->tensors.find(name);
  return found == state_->tensors.end() ? nullptr : &found->second;
}

const TensorView& SafetensorsFile::require(std::string_view name) const {
  return require_entry(state_->tensors, name, state_->path);
}

const TensorView& SafetensorsFile::require(std::string_view name, const Dims& shape) const {
  const TensorView& view = require(name);
  require_shape(view, shape, name, state_->path);
  return view;
}

const TensorView& SafetensorsFile::require(std::string_view name, DType dtype,
                                           const Dims& shape) const {
  const TensorView& view = require(name, shape);
  STOF_CHECK(view.dtype == dtype, kCorrupt, "{}: tensor {}: expected dtype {}, got {}",
             state_->path, quote_text(name), to_string(dtype), to_string(view.dtype));
  return view;
}

}  // namespace stof
