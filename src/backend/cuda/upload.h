#pragma once
// Host vectors into device memory.

#include <vector>

#include "backend/cuda/device.h"

namespace stof::cuda {

/// Copies on the default stream, without waiting: synchronise before `values` ends. `what` names
/// the data in errors.
template <class T>
DeviceBuffer upload(const std::vector<T>& values, const char* what) {
  const Driver& driver = Driver::instance();
  const std::size_t bytes = values.size() * sizeof(T);
  DeviceBuffer buffer(bytes, what);
  if (bytes > 0)
    driver.check(driver.cuMemcpyHtoDAsync(buffer.address(), values.data(), bytes, nullptr), what);
  return buffer;
}

/// Zeros; done when it returns. None for 0 bytes.
inline DeviceBuffer zeros(std::size_t bytes, const char* what) {
  DeviceBuffer buffer(bytes, what);
  if (bytes == 0) return buffer;
  const Driver& driver = Driver::instance();
  driver.check(driver.cuMemsetD8Async(buffer.address(), 0, bytes, nullptr), what);
  driver.check(driver.cuStreamSynchronize(nullptr), what);
  return buffer;
}

/// upload() on `stream`, into a buffer that grows, and then by half as much again, where it is too
/// small. Freeing the old one waits for the GPU, which may still read it.
template <class T>
void refill(DeviceBuffer* buffer, const std::vector<T>& values, const char* what, CUstream stream) {
  const Driver& driver = Driver::instance();
  const std::size_t bytes = values.size() * sizeof(T);
  if (bytes > buffer->bytes()) *buffer = DeviceBuffer(bytes + bytes / 2, what);
  if (bytes > 0)
    driver.check(driver.cuMemcpyHtoDAsync(buffer->address(), values.data(), bytes, stream), what);
}

}  // namespace stof::cuda
