#include "stof/tensor.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>

#include "core/check.h"
#include "tensor/strided.h"

namespace stof {
namespace {

void check_strides(const Dims& shape, const Dims& strides) {
  STOF_CHECK(shape.rank() == strides.rank(), kInvalidArgument,
             "strides: expected {} of them for shape {}, got {}", shape.rank(), shape.to_string(),
             strides.to_string());
}

/// Zeros; of large memory the pages are given back and come as zeros when they are first touched,
/// so that caches of keys and values take what is used of them.
void clear(std::byte* memory, std::size_t bytes) {
  constexpr std::size_t kLarge = 1 << 20;
  static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  if (bytes >= kLarge) {
    void* first = memory;
    std::size_t left = bytes;
    std::align(page, page, first, left);
    const std::size_t whole = left / page * page;
    if (madvise(first, whole, MADV_DONTNEED) == 0) {
      auto* const begin = static_cast<std::byte*>(first);
      std::memset(memory, 0, static_cast<std::size_t>(begin - memory));
      std::memset(begin + whole, 0, left - whole);
      return;
    }
  }
  std::memset(memory, 0, bytes);
}

std::byte* allocate_zeros(DType dtype, const Dims& shape, std::int64_t size) {
  const auto element = static_cast<std::int64_t>(dtype_bytes(dtype));
  const auto alignment = static_cast<std::int64_t>(Tensor::kAlignment);
  const std::int64_t limit = std::numeric_limits<std::int64_t>::max() - alignment;
  std::byte* memory = nullptr;
  if (size <= limit / element) {
    // At least one line, so that an empty tensor has an address as well.
    const std::int64_t lines =
        std::max<std::int64_t>(1, (size * element + alignment - 1) / alignment);
    const auto bytes = static_cast<std::size_t>(lines * alignment);
    memory = static_cast<std::byte*>(std::aligned_alloc(Tensor::kAlignment, bytes));
    if (memory != nullptr) clear(memory, bytes);
  }
  STOF_CHECK(memory != nullptr, kOutOfMemory,
             "no memory for a {}{} tensor; use a smaller shape or a machine with more memory",
             to_string(dtype), shape.to_string());
  return memory;
}

}  // namespace

TensorView::TensorView(const void* data_in, DType dtype_in, const Dims& shape_in)
    : TensorView(data_in, dtype_in, shape_in, contiguous_strides(shape_in)) {}

TensorView::TensorView(const void* data_in, DType dtype_in, const Dims& shape_in,
                       const Dims& strides_in)
    : data(data_in), dtype(dtype_in), shape(shape_in), strides(strides_in) {
  check_strides(shape, strides);
}

bool TensorView::is_contiguous() const {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return true;
  std::int64_t expected = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    if (shape[i] == 1) continue;  // never stepped over
    // A broadcast view may have more elements than 64 bits count; a contiguous one can't.
    if (strides[i] != expected || __builtin_mul_overflow(expected, shape[i], &expected))
      return false;
  }
  return true;
}

bool TensorView::is_aligned() const {
  return reinterpret_cast<std::uintptr_t>(data) % dtype_bytes(dtype) == 0;
}

std::string TensorView::describe() const {
  std::string text = std::string(to_string(dtype)) + shape.to_string();
  if (!is_contiguous()) text += " strides " + strides.to_string();
  return text;
}

MutableTensorView::MutableTensorView(void* data_in, DType dtype_in, const Dims& shape_in)
    : MutableTensorView(data_in, dtype_in, shape_in, contiguous_strides(shape_in)) {}

MutableTensorView::MutableTensorView(void* data_in, DType dtype_in, const Dims& shape_in,
                                     const Dims& strides_in)
    : data(data_in), dtype(dtype_in), shape(shape_in), strides(strides_in) {
  check_strides(shape, strides);
}

void Tensor::FreeAligned::operator()(std::byte* p) const { std::free(p); }

Tensor::Tensor(DType dtype, const Dims& shape)
    : dtype_(dtype), shape_(shape), size_(num_elements(shape)) {
  data_.reset(allocate_zeros(dtype, shape, size_));
}

Tensor::Tensor(const Tensor& other)
    : dtype_(other.dtype_), shape_(other.shape_), size_(other.size_) {
  if (other.data_ == nullptr) return;
  data_.reset(allocate_zeros(dtype_, shape_, size_));
  std::memcpy(data_.get(), other.data_.get(), bytes());
}

Tensor& Tensor::operator=(const Tensor& other) {
  if (this != &other) *this = Tensor(other);
  return *this;
}

Tensor Tensor::copy_of(const TensorView& source) {
  Tensor result(source.dtype, source.shape);
  copy_strided(source, result.data());
  return result;
}

Tensor Tensor::converted(const TensorView& source, DType dtype) {
  check_convertible(source.dtype, dtype);
  if (source.dtype == dtype) return copy_of(source);
  Tensor result(dtype, source.shape);
  convert_strided(source, dtype, result.data());
  return result;
}

void Tensor::require_dtype(DType expected) const {
  STOF_CHECK(dtype_ == expected, kInvalidArgument, "tensor: expected dtype {}, got {}{}",
             to_string(expected), to_string(dtype_), shape_.to_string());
}

}  // namespace stof
