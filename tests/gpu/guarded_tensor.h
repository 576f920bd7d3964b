#pragma once
// A strided tensor in device memory whose every other byte is watched.

#include <cstdint>
#include <cstring>
#include <vector>

#include "backend/cuda/device.h"
#include "stof/tensor.h"
#include "tests/gpu/draw.h"

namespace stof::check {

/// A host image of one allocation and a view into it. Elements outside the view are 0xff bytes:
/// NaN to whoever reads them, and a guard against whoever writes them.
class GuardedTensor {
 public:
  GuardedTensor() = default;
  /// `strides` in elements, unit last; kGuardElements lie before and after.
  GuardedTensor(DType dtype, const Dims& shape, const Dims& strides, const char* name)
      : dtype_(dtype), shape_(shape), strides_(strides) {
    std::int64_t reach = 1;
    for (int i = 0; i < shape.rank(); ++i) reach += (shape[i] - 1) * strides[i];
    const auto bytes = static_cast<std::size_t>(reach + 2 * kGuardElements) * dtype_bytes(dtype);
    image_.assign(bytes, 0xff);
    buffer_ = cuda::DeviceBuffer(bytes, name);
  }

  void* data() const {
    return reinterpret_cast<void*>(buffer_.address() + kGuardElements * dtype_bytes(dtype_));
  }
  TensorView view() const { return {data(), dtype_, shape_, strides_}; }
  MutableTensorView mutable_view() const { return {data(), dtype_, shape_, strides_}; }
  const Dims& shape() const { return shape_; }

  std::int64_t offset(std::initializer_list<std::int64_t> index) const {
    std::int64_t at = kGuardElements;
    int i = 0;
    for (const std::int64_t position : index) at += position * strides_[i++];
    return at;
  }
  template <class T>
  T get(std::int64_t offset) const {
    T value;
    std::memcpy(&value, image_.data() + offset * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    return value;
  }
  template <class T>
  void set(std::int64_t offset, T value) {
    std::memcpy(image_.data() + offset * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
  }
  /// 16-bit elements by value.
  float real(std::int64_t offset) const {
    if (dtype_ == DType::kFloat32) return get<float>(offset);
    const auto bits = get<std::uint16_t>(offset);
    Float16 half;
    BFloat16 brain;
    half.bits = brain.bits = bits;
    return dtype_ == DType::kFloat16 ? static_cast<float>(half) : static_cast<float>(brain);
  }
  void set_real(std::int64_t offset, float value) {
    if (dtype_ == DType::kFloat32) return set(offset, value);
    set(offset, dtype_ == DType::kFloat16 ? Float16(value).bits : BFloat16(value).bits);
  }

  void upload() const {
    const auto& driver = cuda::Driver::instance();
    driver.check(driver.cuMemcpyHtoDAsync(buffer_.address(), image_.data(), image_.size(), nullptr),
                 "uploading a tensor");
    driver.check(driver.cuStreamSynchronize(nullptr), "uploading a tensor");
  }
  std::vector<unsigned char> download() const {
    std::vector<unsigned char> bytes(image_.size());
    const auto& driver = cuda::Driver::instance();
    driver.check(driver.cuMemcpyDtoHAsync(bytes.data(), buffer_.address(), bytes.size(), nullptr),
                 "downloading a tensor");
    driver.check(driver.cuStreamSynchronize(nullptr), "downloading a tensor");
    return bytes;
  }
  bool unchanged() const { return download() == image_; }
  void take(std::vector<unsigned char> bytes) { image_ = std::move(bytes); }
  void poison() { std::fill(image_.begin(), image_.end(), std::uint8_t{0xff}); }
  /// After take(): whether everything outside the view is still 0xff.
  bool guards_intact() const {
    std::vector<unsigned char> rest = image_;
    const auto width = static_cast<std::int64_t>(dtype_bytes(dtype_));
    visit(0, kGuardElements, [&](std::int64_t at) {
      std::memset(rest.data() + at * width, 0xff, static_cast<std::size_t>(width));
    });
    for (const unsigned char byte : rest)
      if (byte != 0xff) return false;
    return true;
  }
  template <class Visit>
  void visit(int dim, std::int64_t at, const Visit& each) const {
    if (dim == shape_.rank()) return each(at);
    for (std::int64_t i = 0; i < shape_[dim]; ++i) visit(dim + 1, at + i * strides_[dim], each);
  }

 private:
  static constexpr std::int64_t kGuardElements = 64;
  DType dtype_ = DType::kFloat32;
  Dims shape_, strides_;
  std::vector<unsigned char> image_;
  cuda::DeviceBuffer buffer_;
};

/// Strides of [A, B, C, D] in one of three layouts: as written, with B and C exchanged in memory
/// ([A, C, B, D]), or as written with gaps.
inline Dims draw_strides(Draw& draw, const Dims& shape) {
  const std::int64_t a = shape[0], b = shape[1], c = shape[2], d = shape[3];
  (void)a;
  switch (draw.between(0, 2)) {
    case 0:
      return {b * c * d, c * d, d, 1};
    case 1:
      return {b * c * d, d, b * d, 1};
    default:
      return {b * (c * (d + 8) + 16) + 24, c * (d + 8) + 16, d + 8, 1};
  }
}

}  // namespace stof::check
