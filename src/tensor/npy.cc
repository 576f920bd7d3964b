#include "stof/npy.h"

#include "core/check.h"
#include "core/file.h"
#include "tensor/file_data.h"
#include "tensor/npy_header.h"

namespace stof {
namespace {

/// Strides of column-major storage: the first axis is the fastest.
Dims fortran_strides(const Dims& shape) {
  Dims reversed = shape;
  const int rank = shape.rank();
  for (int i = 0; i < rank; ++i) reversed[i] = shape[rank - 1 - i];
  const Dims strides = contiguous_strides(reversed);
  Dims result = shape;
  for (int i = 0; i < rank; ++i) result[i] = strides[rank - 1 - i];
  return result;
}

/// Magic, version 1.0, header length and header, padded to a multiple of 64 as NumPy does.
std::string make_prefix(const TensorView& tensor) {
  const std::string_view descr = npy_descr(tensor.dtype);
  STOF_CHECK(!descr.empty(), kUnsupported,
             "npy: NumPy has no dtype {}; convert to float32, or write safetensors",
             to_string(tensor.dtype));
  std::string shape;
  for (const std::int64_t extent : tensor.shape) shape += fmt::format("{}, ", extent);
  if (tensor.shape.rank() > 1) shape.resize(shape.size() - 2);  // "(3, 4)", but "(3,)"
  if (tensor.shape.rank() == 1) shape.resize(shape.size() - 1);
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, shape);
  const std::size_t fixed_bytes = kNpyMagic.size() + 4;
  const std::size_t total = (fixed_bytes + header.size() + 1 + 63) / 64 * 64;
  header.resize(total - fixed_bytes - 1, ' ');
  header += '\n';

  std::string prefix(kNpyMagic);
  prefix += '\x01';
  prefix += '\0';
  prefix += static_cast<char>(header.size() & 0xff);
  prefix += static_cast<char>(header.size() >> 8);
  prefix += header;
  return prefix;
}

/// Calls write(pointer, bytes) for both parts of the file.
template <class Write>
void write_parts(const TensorView& tensor, Write write) {
  const std::string prefix = make_prefix(tensor);
  write(prefix.data(), prefix.size());
  const Tensor copy = tensor.is_contiguous() ? Tensor() : Tensor::copy_of(tensor);
  const auto bytes =
      static_cast<std::size_t>(num_elements(tensor.shape)) * dtype_bytes(tensor.dtype);
  if (bytes > 0) write(copy.data() != nullptr ? copy.data() : tensor.data, bytes);
}

}  // namespace

Tensor load_npy(const std::string& path) {
  const MappedFile map(path);
  return parse_npy(map.bytes(), path);
}

Tensor parse_npy(std::span<const std::byte> bytes, const std::string& name) {
  const NpyHeader header = parse_npy_header(bytes, name);
  const std::span<const std::byte> data = bytes.subspan(header.data_offset);
  if (header.dtype == DType::kBool) check_bool_bytes(data, name);
  const Dims strides =
      header.fortran_order ? fortran_strides(header.shape) : contiguous_strides(header.shape);
  return Tensor::copy_of({data.data(), header.dtype, header.shape, strides});
}

void save_npy(const std::string& path, const TensorView& tensor) {
  AtomicFile file(path);
  write_parts(tensor, [&](const void* data, std::size_t bytes) { file.write(data, bytes); });
  file.commit();
}

std::vector<std::byte> serialize_npy(const TensorView& tensor) {
  std::vector<std::byte> result;
  write_parts(tensor, [&](const void* data, std::size_t bytes) {
    const auto* first = static_cast<const std::byte*>(data);
    result.insert(result.end(), first, first + bytes);
  });
  return result;
}

}  // namespace stof
