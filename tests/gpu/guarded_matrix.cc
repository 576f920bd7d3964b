#include "gpu/guarded_matrix.h"

#include <algorithm>

namespace stof::check {
namespace {

bool is_nan(DType dtype, std::uint16_t bits) {
  const unsigned infinity = dtype == DType::kFloat16 ? 0x7c00 : 0x7f80;
  return (bits & 0x7fffu) > infinity;
}

}  // namespace

float real_of(DType dtype, std::uint16_t bits) {
  Float16 half;
  BFloat16 brain;
  half.bits = brain.bits = bits;
  return dtype == DType::kFloat16 ? static_cast<float>(half) : static_cast<float>(brain);
}

std::uint16_t bits_of(DType dtype, float value) {
  return dtype == DType::kFloat16 ? Float16(value).bits : BFloat16(value).bits;
}

void copy_in(cuda::CUdeviceptr to, const void* from, std::size_t bytes) {
  const auto& driver = cuda::Driver::instance();
  driver.check(driver.cuMemcpyHtoDAsync(to, from, bytes, nullptr), "uploading");
  driver.check(driver.cuStreamSynchronize(nullptr), "uploading");
}

void copy_out(void* to, cuda::CUdeviceptr from, std::size_t bytes) {
  const auto& driver = cuda::Driver::instance();
  driver.check(driver.cuMemcpyDtoHAsync(to, from, bytes, nullptr), "downloading");
  driver.check(driver.cuStreamSynchronize(nullptr), "downloading");
}

void fill_bytes(const cuda::DeviceBuffer& buffer) {
  const auto& driver = cuda::Driver::instance();
  if (buffer.bytes() == 0) return;
  driver.check(driver.cuMemsetD8Async(buffer.address(), 0xff, buffer.bytes(), nullptr),
               "poisoning");
  driver.check(driver.cuStreamSynchronize(nullptr), "poisoning");
}

GuardedMatrix::GuardedMatrix(DType dtype, std::int64_t rows, std::int64_t columns,
                             std::int64_t stride, const char* name)
    : dtype_(dtype),
      rows_(rows),
      columns_(columns),
      stride_(stride),
      image_(static_cast<std::size_t>(rows * stride + 2 * kGuard), 0xffff),
      buffer_(image_.size() * 2, name) {}

void GuardedMatrix::fill(Draw& draw, float scale) {
  for (std::int64_t row = 0; row < rows_; ++row)
    for (std::int64_t column = 0; column < columns_; ++column)
      image_[static_cast<std::size_t>(kGuard + row * stride_ + column)] =
          bits_of(dtype_, draw.normal() * scale);
  upload();
}

float GuardedMatrix::at(std::int64_t row, std::int64_t column) const {
  return real_of(dtype_, image_[static_cast<std::size_t>(kGuard + row * stride_ + column)]);
}

void GuardedMatrix::upload() const { copy_in(buffer_.address(), image_.data(), image_.size() * 2); }

void GuardedMatrix::poison() const { fill_bytes(buffer_); }

std::vector<std::uint16_t> GuardedMatrix::download() const {
  std::vector<std::uint16_t> image(image_.size());
  copy_out(image.data(), buffer_.address(), image.size() * 2);
  return image;
}

bool GuardedMatrix::written_exactly() const {
  const auto untouched = [&](std::int64_t begin, std::int64_t end) {
    return std::all_of(image_.begin() + begin, image_.begin() + end,
                       [](std::uint16_t bits) { return bits == 0xffff; });
  };
  const std::int64_t size = kGuard + rows_ * stride_;
  if (!untouched(0, kGuard) || !untouched(size, size + kGuard)) return false;
  for (std::int64_t row = 0; row < rows_; ++row) {
    const std::int64_t begin = kGuard + row * stride_;
    for (std::int64_t i = begin; i < begin + columns_; ++i)
      if (is_nan(dtype_, image_[static_cast<std::size_t>(i)])) return false;
    if (!untouched(begin + columns_, begin + stride_)) return false;
  }
  return true;
}

void DeviceFloats::upload(const char* name) {
  buffer = cuda::DeviceBuffer(values.size() * 4, name);
  copy_in(buffer.address(), values.data(), values.size() * 4);
}

}  // namespace stof::check
