#include "stof/gpu_info.h"

#include <nlohmann/json.hpp>

#include "backend/cuda/cublaslt.h"
#include "backend/cuda/device.h"
#include "core/check.h"
#include "core/text.h"
#include "jit/nvrtc.h"

namespace stof {
namespace {

void read_driver(GpuInfo* info) {
  const cuda::Driver& driver = cuda::Driver::instance();
  info->driver_library = driver.path;
  int version = 0, count = 0;
  driver.check(driver.cuDriverGetVersion(&version), "reading the driver's version");
  info->driver_version = fmt::format("{}.{}", version / 1000, version % 1000 / 10);
  driver.check(driver.cuDeviceGetCount(&count), "counting GPUs");
  for (int i = 0; i < count; ++i) {
    const cuda::DeviceFacts facts = cuda::Device::open(i).facts();
    info->devices.push_back(
        {facts.name, facts.major, facts.minor, facts.num_sms, facts.memory_bytes});
  }
  if (count == 0) info->problem = "the NVIDIA driver sees no GPU";
}

}  // namespace

GpuInfo gpu_info() {
  GpuInfo info;
  try {
    read_driver(&info);
  } catch (const Error& error) {
    info.problem =
        error.code() == ErrorCode::kNotFound ? "no NVIDIA driver (libcuda.so.1)" : error.what();
  }
  try {
    const jit::Nvrtc& compiler = jit::Nvrtc::instance();
    info.compiler_library = compiler.path();
    info.compiler_version = compiler.version();
  } catch (const Error&) {
    // Reported by describe(); cached kernels run without it.
  }
  info.blas_library = cuda::locate_cublaslt();
  return info;
}

std::string GpuInfo::describe() const {
  std::string text = problem;
  for (const GpuDevice& device : devices)
    text += fmt::format("{}{} (sm_{}{}, {} SMs, {})", text.empty() ? "" : ", ", device.name,
                        device.major, device.minor, device.num_sms,
                        human_bytes(static_cast<std::uint64_t>(device.memory_bytes)));
  if (!driver_version.empty()) text += ", driver for CUDA " + driver_version;
  text += compiler_version.empty() ? ", no NVRTC" : ", NVRTC " + compiler_version;
  text += blas_library.empty() ? ", no cuBLASLt" : ", cuBLASLt";
  return text;
}

std::string GpuInfo::to_json() const {
  nlohmann::ordered_json json = {{"driver_library", driver_library},
                                 {"driver_version", driver_version},
                                 {"devices", nlohmann::json::array()},
                                 {"compiler_library", compiler_library},
                                 {"compiler_version", compiler_version},
                                 {"blas_library", blas_library},
                                 {"problem", problem}};
  for (const GpuDevice& device : devices)
    json["devices"].push_back(
        {{"name", device.name},
         {"compute_capability", fmt::format("{}.{}", device.major, device.minor)},
         {"num_sms", device.num_sms},
         {"memory_bytes", device.memory_bytes}});
  return json.dump();
}

}  // namespace stof
