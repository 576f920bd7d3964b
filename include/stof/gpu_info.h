#pragma once
// What of a GPU this machine has: driver, devices, run-time compiler, matrix library.

#include <cstdint>
#include <string>
#include <vector>

namespace stof {

struct GpuDevice {
  std::string name;
  int major = 0, minor = 0;  ///< compute capability
  int num_sms = 0;
  std::int64_t memory_bytes = 0;
};

/// Empty strings and lists for what is missing; `problem` says why nothing can run.
struct GpuInfo {
  std::string driver_library;  ///< path of libcuda
  std::string driver_version;  ///< newest CUDA it speaks: "13.0"
  std::vector<GpuDevice> devices;
  std::string compiler_library;  ///< path of libnvrtc
  std::string compiler_version;
  std::string blas_library;  ///< path of libcublasLt, which GPU encoders need; not opened
  std::string problem;

  /// "NVIDIA H200 (sm_90, 132 SMs, 140 GiB), driver for CUDA 13.0, NVRTC 13.0, cuBLASLt" or what is
  /// missing.
  std::string describe() const;
  std::string to_json() const;
};

/// Opens the driver and the compiler where they are installed; never throws for their absence.
GpuInfo gpu_info();

}  // namespace stof
