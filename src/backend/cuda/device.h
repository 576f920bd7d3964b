#pragma once
// A GPU, its primary context, and owners of what lives on it.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "backend/cuda/driver.h"

namespace stof::cuda {

/// Facts the kernels and the model need.
struct DeviceFacts {
  int ordinal = 0;
  std::string name;
  int major = 0, minor = 0;
  int num_sms = 0;
  std::int64_t l2_bytes = 0;
  std::int64_t memory_bytes = 0;
  /// "sm_90a", "sm_80"
  std::string target() const;
};

/// A device with its primary context current on the calling thread (the context that frameworks
/// share). The context stays retained until the process ends.
class Device {
 public:
  /// Throws NotFound without driver or device.
  static Device open(int ordinal = 0);
  /// A GPU that need not be here, for who asks for facts alone: what would run on it, and what to
  /// compile for it. Nothing is launched on it.
  static Device described(DeviceFacts facts);
  const DeviceFacts& facts() const { return facts_; }
  /// Makes the context current on this thread.
  void use() const;
  /// Makes the context current, too.
  std::int64_t free_memory_bytes() const;

 private:
  DeviceFacts facts_;
  CUcontext context_ = nullptr;
};

/// An address as the pointer that views and CUDA libraries take; never read on the host.
void* device_pointer(CUdeviceptr address);

/// Device memory; freed with its owner.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  /// Throws OutOfMemory naming `what`, the size asked for and what is free.
  DeviceBuffer(std::size_t bytes, const std::string& what);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : address_(std::exchange(other.address_, 0)), bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  CUdeviceptr address() const { return address_; }
  std::size_t bytes() const { return bytes_; }

 private:
  CUdeviceptr address_ = 0;
  std::size_t bytes_ = 0;
};

/// A loaded cubin and its one entry.
class Kernel {
 public:
  Kernel() = default;
  /// `shared_bytes` is the dynamic shared memory the entry will be launched with. `early_start`:
  /// the kernel may start while its predecessor in the stream still runs, and waits for it by
  /// itself (kernels/ptx/grid.cuh). `shared_percent`: of a multiprocessor's memory, wished for as
  /// shared memory, so that loads have the rest as cache; below 0 the driver decides.
  Kernel(const std::string& name, const std::string& cubin, const char* entry, int shared_bytes,
         bool early_start = false, int shared_percent = -1);
  ~Kernel();
  Kernel(Kernel&& other) noexcept { *this = std::move(other); }
  Kernel& operator=(Kernel&& other) noexcept {
    std::swap(name_, other.name_);
    std::swap(module_, other.module_);
    std::swap(function_, other.function_);
    std::swap(shared_bytes_, other.shared_bytes_);
    std::swap(early_start_, other.early_start_);
    return *this;
  }
  /// Asynchronous. `after_all`: does not start early, whatever the kernel may. Throws Cuda naming
  /// kernel and grid.
  void launch(unsigned blocks, unsigned threads, CUstream stream, void** arguments,
              bool after_all = false) const;
  /// Clusters of `blocks` blocks of `threads` threads that the device runs at once. Throws Cuda
  /// naming kernel and cluster.
  int max_clusters(int blocks, int threads) const;
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
  int shared_bytes_ = 0;
  bool early_start_ = false;
};

}  // namespace stof::cuda
