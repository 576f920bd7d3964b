#pragma once
// Operands in device memory with guards around them, and copies that wait.

#include <cstdint>
#include <vector>

#include "backend/cuda/device.h"
#include "gpu/draw.h"
#include "stof/dtype.h"

namespace stof::check {

/// A 16-bit element's value, and the element nearest to a value.
float real_of(DType dtype, std::uint16_t bits);
std::uint16_t bits_of(DType dtype, float value);

void copy_in(cuda::CUdeviceptr to, const void* from, std::size_t bytes);
void copy_out(void* to, cuda::CUdeviceptr from, std::size_t bytes);
/// 0xff throughout.
void fill_bytes(const cuda::DeviceBuffer& buffer);

/// A row-major matrix of 16-bit elements; what lies between its rows, before and after it is 0xff
/// bytes: NaN to whoever reads them, and a guard against whoever writes them.
class GuardedMatrix {
 public:
  GuardedMatrix() = default;
  GuardedMatrix(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                const char* name);
  void fill(Draw& draw, float scale);
  cuda::CUdeviceptr address() const { return buffer_.address() + kGuard * 2; }
  float at(std::int64_t row, std::int64_t column) const;
  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  std::int64_t stride() const { return stride_; }

  void upload() const;
  /// NaN everywhere on the device.
  void poison() const;
  std::vector<std::uint16_t> download() const;
  void take(std::vector<std::uint16_t> image) { image_ = std::move(image); }
  bool unchanged() const { return download() == image_; }
  /// Whether every element was written and nothing else: no NaN inside, 0xff outside.
  bool written_exactly() const;

 private:
  static constexpr std::int64_t kGuard = 8 * 1024;  // elements
  DType dtype_ = DType::kBFloat16;
  std::int64_t rows_ = 0, columns_ = 0, stride_ = 0;
  std::vector<std::uint16_t> image_;
  cuda::DeviceBuffer buffer_;
};

/// float32 values in device memory.
struct DeviceFloats {
  std::vector<float> values;
  cuda::DeviceBuffer buffer;
  void upload(const char* name);
};

}  // namespace stof::check
