// Any bytes as a safetensors file.

#include <cstring>
#include <vector>

#include "fuzz.h"
#include "stof/safetensors.h"

namespace stof {
namespace {

void check_same(const SafetensorsFile& a, const SafetensorsFile& b) {
  fuzz::require(a.metadata() == b.metadata() && a.tensors().size() == b.tensors().size());
  for (const auto& [name, view] : a.tensors()) {
    const TensorView* other = b.find(name);
    fuzz::require(other != nullptr && other->dtype == view.dtype && other->shape == view.shape);
    const auto bytes = static_cast<std::size_t>(num_elements(view.shape)) * dtype_bytes(view.dtype);
    fuzz::require(std::memcmp(view.data, other->data, bytes) == 0);
  }
}

/// What is accepted must survive writing and reading again.
void read(std::span<const std::byte> bytes) {
  const SafetensorsFile file = SafetensorsFile::from_bytes(bytes, "fuzz");
  std::vector<NamedTensor> tensors;
  for (const auto& [name, view] : file.tensors()) tensors.push_back({name, view});
  const std::vector<std::byte> again = serialize_safetensors(tensors, file.metadata());
  check_same(file, SafetensorsFile::from_bytes(again, "again"));
}

}  // namespace
}  // namespace stof

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stof;
  const std::span<const std::byte> bytes = fuzz::as_bytes(data, size);
  fuzz::accept_or_refuse([&] { read(bytes); });

  // Mutations seldom keep the length in front right, so everything after it up to the last brace is
  // tried as a header of its own length as well.
  const std::string_view text = fuzz::as_text(data, size);
  const std::size_t brace = text.rfind('}');
  if (brace == std::string_view::npos || brace < 8) return 0;
  std::vector<std::byte> repaired(bytes.begin(), bytes.end());
  const std::uint64_t header_bytes = brace + 1 - 8;
  std::memcpy(repaired.data(), &header_bytes, sizeof(header_bytes));
  fuzz::accept_or_refuse([&] { read(repaired); });
  return 0;
}
