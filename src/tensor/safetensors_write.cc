#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/file.h"
#include "core/text.h"
#include "stof/safetensors.h"
#include "tensor/safetensors_header.h"

namespace stof {
namespace {

/// Larger elements first: with the data section 8-byte aligned, every tensor is then aligned to its
/// element. By name inside one size.
std::vector<const NamedTensor*> sorted(std::span<const NamedTensor> tensors) {
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const NamedTensor* a, const NamedTensor* b) {
    const std::size_t size_a = dtype_bytes(a->view.dtype), size_b = dtype_bytes(b->view.dtype);
    return size_a != size_b ? size_a > size_b : a->name < b->name;
  });
  return order;
}

void check_text(const std::string& text, std::string_view what) {
  STOF_CHECK(is_valid_utf8(text), kInvalidArgument, "safetensors: {} {}: expected UTF-8", what,
             quote_text(text));
}

/// Header with its length in front, padded with spaces to a multiple of 8.
std::string make_prefix(const std::vector<const NamedTensor*>& order, const Metadata& metadata) {
  using OrderedJson = nlohmann::ordered_json;
  // Entries are joined here because an ordered_json object would search all earlier keys for each.
  std::string text = "{";
  const auto add_entry = [&](std::string_view key, const OrderedJson& value) {
    if (text.size() > 1) text += ',';
    text.append(OrderedJson(key).dump()).append(":").append(value.dump());
  };
  for (const auto& [key, value] : metadata) {
    check_text(key, "metadata key");
    check_text(value, "metadata value");
  }
  if (!metadata.empty()) add_entry(kSafetensorsMetadataKey, nlohmann::json(metadata));
  std::vector<std::string_view> names;
  std::uint64_t offset = 0;
  for (const NamedTensor* tensor : order) {
    check_text(tensor->name, "tensor name");
    names.push_back(tensor->name);
    const Dims& shape = tensor->view.shape;
    const auto size = static_cast<std::uint64_t>(num_elements(shape));
    const std::uint64_t end = offset + size * dtype_bytes(tensor->view.dtype);
    add_entry(tensor->name, {{"dtype", safetensors_dtype_name(tensor->view.dtype)},
                             {"shape", std::vector<std::int64_t>(shape.begin(), shape.end())},
                             {"data_offsets", std::vector<std::uint64_t>{offset, end}}});
    offset = end;
  }
  text += '}';
  std::sort(names.begin(), names.end());
  const auto repeated = std::adjacent_find(names.begin(), names.end());
  STOF_CHECK(repeated == names.end(), kInvalidArgument,
             "safetensors: expected distinct tensor names, got {} twice", quote_text(*repeated));
  STOF_CHECK(!std::binary_search(names.begin(), names.end(), kSafetensorsMetadataKey),
             kInvalidArgument, "safetensors: tensor name {} is reserved by the format",
             kSafetensorsMetadataKey);

  text.resize((text.size() + 7) / 8 * 8, ' ');
  STOF_CHECK(text.size() <= kSafetensorsMaxHeaderBytes, kInvalidArgument,
             "safetensors: expected a header of at most {} bytes, got {}; write fewer tensors or "
             "less metadata",
             kSafetensorsMaxHeaderBytes, text.size());
  std::string prefix;
  for (std::size_t i = 0; i < kSafetensorsPrefixBytes; ++i)
    prefix += static_cast<char>(std::uint64_t{text.size()} >> (8 * i) & 0xff);
  prefix += text;
  return prefix;
}

/// Calls write(pointer, bytes) for all parts of the file, in order.
template <class Write>
void write_parts(std::span<const NamedTensor> tensors, const Metadata& metadata, Write write) {
  const std::vector<const NamedTensor*> order = sorted(tensors);
  const std::string prefix = make_prefix(order, metadata);
  write(prefix.data(), prefix.size());
  for (const NamedTensor* tensor : order) {
    const TensorView& view = tensor->view;
    const Tensor copy = view.is_contiguous() ? Tensor() : Tensor::copy_of(view);
    const auto bytes = static_cast<std::size_t>(num_elements(view.shape)) * dtype_bytes(view.dtype);
    if (bytes > 0) write(copy.data() != nullptr ? copy.data() : view.data, bytes);
  }
}

}  // namespace

void save_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                      const Metadata& metadata) {
  AtomicFile file(path);
  write_parts(tensors, metadata,
              [&](const void* data, std::size_t bytes) { file.write(data, bytes); });
  file.commit();
}

std::vector<std::byte> serialize_safetensors(std::span<const NamedTensor> tensors,
                                             const Metadata& metadata) {
  std::vector<std::byte> result;
  write_parts(tensors, metadata, [&](const void* data, std::size_t bytes) {
    const auto* first = static_cast<const std::byte*>(data);
    result.insert(result.end(), first, first + bytes);
  });
  return result;
}

}  // namespace stof
