#pragma once
// Strided views of memory somebody else owns, and an owning, aligned tensor.

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>

#include "stof/dtype.h"

namespace stof {

/// A short list of extents or strides (elements, not bytes), rank 0 to 8.
class Dims {
 public:
  static constexpr int kMaxRank = 8;

  Dims() = default;
  Dims(std::initializer_list<std::int64_t> values);
  explicit Dims(std::span<const std::int64_t> values);

  int rank() const { return rank_; }
  std::int64_t operator[](int i) const { return values_[static_cast<std::size_t>(i)]; }
  std::int64_t& operator[](int i) { return values_[static_cast<std::size_t>(i)]; }
  const std::int64_t* begin() const { return values_.data(); }
  const std::int64_t* end() const { return values_.data() + rank_; }
  void push_back(std::int64_t value);

  /// "[2, 12, 512, 64]"
  std::string to_string() const;
  bool operator==(const Dims& other) const;

 private:
  std::array<std::int64_t, kMaxRank> values_{};
  int rank_ = 0;
};

/// Product of extents (1 for rank 0). Throws InvalidArgument on a negative extent, or when the
/// product of the non-zero extents overflows.
std::int64_t num_elements(const Dims& shape);

/// Row-major strides of a contiguous tensor.
Dims contiguous_strides(const Dims& shape);

/// Read-only strided view. Strides are in elements and may be 0 (broadcast) or negative.
struct TensorView {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  Dims shape;
  Dims strides;

  TensorView() = default;
  /// Contiguous, row-major.
  TensorView(const void* data, DType dtype, const Dims& shape);
  TensorView(const void* data, DType dtype, const Dims& shape, const Dims& strides);

  bool defined() const { return data != nullptr; }
  bool is_contiguous() const;
  /// Whether `data` is a multiple of the element size. Views into files written by others may not
  /// be: read those through Tensor::copy_of or Tensor::converted.
  bool is_aligned() const;
  /// "float32[2, 12, 512, 64]", with strides where they are not row-major.
  std::string describe() const;
};

/// The same for memory that may be written.
struct MutableTensorView {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  Dims shape;
  Dims strides;

  MutableTensorView() = default;
  MutableTensorView(void* data, DType dtype, const Dims& shape);
  MutableTensorView(void* data, DType dtype, const Dims& shape, const Dims& strides);

  operator TensorView() const { return {data, dtype, shape, strides}; }
  bool defined() const { return data != nullptr; }
};

/// Owns a contiguous, 64-byte aligned, row-major tensor. Copying copies the elements.
class Tensor {
 public:
  static constexpr std::size_t kAlignment = 64;

  Tensor() = default;
  /// Elements are zero. Throws OutOfMemory naming the shape.
  Tensor(DType dtype, const Dims& shape);
  Tensor(const Tensor& other);
  Tensor& operator=(const Tensor& other);
  Tensor(Tensor&&) noexcept = default;
  Tensor& operator=(Tensor&&) noexcept = default;

  /// Copies any strided view into a new contiguous tensor of the same dtype.
  static Tensor copy_of(const TensorView& source);
  /// Copies and converts with one rounding (nearest, ties to even): from any float type to
  /// float32, float16, bfloat16 or float64. Throws Unsupported for other dtypes.
  static Tensor converted(const TensorView& source, DType dtype);

  DType dtype() const { return dtype_; }
  const Dims& shape() const { return shape_; }
  std::int64_t size() const { return size_; }
  std::size_t bytes() const { return static_cast<std::size_t>(size_) * dtype_bytes(dtype_); }
  bool empty() const { return size_ == 0; }

  void* data() { return data_.get(); }
  const void* data() const { return data_.get(); }

  /// Typed access; throws InvalidArgument when T is not this tensor's dtype.
  template <class T>
  std::span<T> as() {
    require_dtype(kDTypeOf<T>);
    return {reinterpret_cast<T*>(data_.get()), static_cast<std::size_t>(size_)};
  }
  template <class T>
  std::span<const T> as() const {
    require_dtype(kDTypeOf<T>);
    return {reinterpret_cast<const T*>(data_.get()), static_cast<std::size_t>(size_)};
  }

  TensorView view() const { return {data_.get(), dtype_, shape_}; }
  MutableTensorView view() { return {data_.get(), dtype_, shape_}; }

 private:
  void require_dtype(DType expected) const;

  struct FreeAligned {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte[], FreeAligned> data_;
  DType dtype_ = DType::kFloat32;
  Dims shape_;
  std::int64_t size_ = 0;
};

}  // namespace stof
