#include "stof/gguf.h"

#include <optional>
#include <utility>

#include "core/file.h"
#include "tensor/gguf_blocks.h"
#include "tensor/gguf_header.h"
#include "tensor/lookup.h"

namespace stof {

struct GgufFile::State {
  std::optional<MappedFile> map;  ///< absent where the caller owns the bytes
  std::string path;
  GgufHeader header;
};

GgufFile GgufFile::open(const std::string& path) {
  const auto state = std::make_shared<State>();
  state->path = path;
  state->map.emplace(path);
  state->header = parse_gguf_header(state->map->bytes(), path);
  return GgufFile(state);
}

GgufFile GgufFile::from_bytes(std::span<const std::byte> bytes, const std::string& name) {
  const auto state = std::make_shared<State>();
  state->path = name;
  state->header = parse_gguf_header(bytes, name);
  return GgufFile(state);
}

const std::string& GgufFile::path() const { return state_->path; }

const std::map<std::string, GgufValue, std::less<>>& GgufFile::metadata() const {
  return state_->header.metadata;
}

const std::map<std::string, GgufTensor, std::less<>>& GgufFile::tensors() const {
  return state_->header.tensors;
}

const GgufTensor& GgufFile::require(std::string_view name) const {
  return require_entry(tensors(), name, path());
}

Tensor GgufFile::float32(std::string_view name) const {
  const GgufTensor& stored = require(name);
  Tensor result(DType::kFloat32, stored.shape);
  dequantize(stored.type, stored.data.data(), result.size() / gguf_block(stored.type).elements,
             result.as<float>().data());
  return result;
}

}  // namespace stof
