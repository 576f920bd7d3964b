#include "backend/cuda/driver.h"

#include "core/check.h"
#include "jit/dynamic_library.h"

namespace stof::cuda {
namespace {

jit::DynamicLibrary open_library() {
  try {
    return jit::DynamicLibrary::open({"libcuda.so.1"});
  } catch (const Error&) {
    throw_error(ErrorCode::kNotFound,
                "no NVIDIA driver here (libcuda.so.1): install NVIDIA's driver, or use the CPU");
  }
}

Driver open_driver() {
  const auto library = open_library();
  Driver driver{};
  driver.path = library.path();
  const auto bind = [&](auto& function, const char* name) {
    function = library.function<std::decay_t<decltype(function)>>(name);
  };
  // Where a function was revised, the suffix selects the 64-bit form that every driver since 4.0
  // has.
  bind(driver.cuGetErrorName, "cuGetErrorName");
  bind(driver.cuGetErrorString, "cuGetErrorString");
  bind(driver.cuDriverGetVersion, "cuDriverGetVersion");
  bind(driver.cuDeviceGetCount, "cuDeviceGetCount");
  bind(driver.cuDeviceGet, "cuDeviceGet");
  bind(driver.cuDeviceGetName, "cuDeviceGetName");
  bind(driver.cuDeviceGetAttribute, "cuDeviceGetAttribute");
  bind(driver.cuDeviceTotalMem, "cuDeviceTotalMem_v2");
  bind(driver.cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  bind(driver.cuCtxSetCurrent, "cuCtxSetCurrent");
  bind(driver.cuModuleLoadData, "cuModuleLoadData");
  bind(driver.cuModuleUnload, "cuModuleUnload");
  bind(driver.cuModuleGetFunction, "cuModuleGetFunction");
  bind(driver.cuFuncSetAttribute, "cuFuncSetAttribute");
  bind(driver.cuLaunchKernelEx, "cuLaunchKernelEx");
  bind(driver.cuMemAlloc, "cuMemAlloc_v2");
  bind(driver.cuMemFree, "cuMemFree_v2");
  bind(driver.cuMemGetInfo, "cuMemGetInfo_v2");
  bind(driver.cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2");
  bind(driver.cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2");
  bind(driver.cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2");
  bind(driver.cuMemsetD8Async, "cuMemsetD8Async");
  bind(driver.cuStreamCreate, "cuStreamCreate");
  bind(driver.cuStreamDestroy, "cuStreamDestroy_v2");
  bind(driver.cuStreamSynchronize, "cuStreamSynchronize");
  bind(driver.cuStreamWaitEvent, "cuStreamWaitEvent");
  bind(driver.cuStreamBeginCapture, "cuStreamBeginCapture_v2");
  bind(driver.cuStreamEndCapture, "cuStreamEndCapture");
  bind(driver.cuGraphInstantiate, "cuGraphInstantiateWithFlags");
  bind(driver.cuGraphLaunch, "cuGraphLaunch");
  bind(driver.cuGraphDestroy, "cuGraphDestroy");
  bind(driver.cuGraphExecDestroy, "cuGraphExecDestroy");
  bind(driver.cuEventCreate, "cuEventCreate");
  bind(driver.cuEventDestroy, "cuEventDestroy_v2");
  bind(driver.cuEventRecord, "cuEventRecord");
  bind(driver.cuEventSynchronize, "cuEventSynchronize");
  bind(driver.cuEventElapsedTime, "cuEventElapsedTime");
  bind(driver.cuTensorMapEncodeTiled, "cuTensorMapEncodeTiled");
  try {
    bind(driver.cuOccupancyMaxActiveClusters, "cuOccupancyMaxActiveClusters");
  } catch (const Error&) {
    driver.cuOccupancyMaxActiveClusters = nullptr;
  }
  const auto init = library.function<CUresult (*)(unsigned)>("cuInit");
  const CUresult started = init(0);
  constexpr CUresult kNoDevice = 100;
  STOF_CHECK(
      started != kNoDevice, kNotFound,
      "the NVIDIA driver ({}) sees no GPU: check nvidia-smi and CUDA_VISIBLE_DEVICES, or use "
      "the CPU",
      driver.path);
  driver.check(started, "starting the CUDA driver");
  return driver;
}

}  // namespace

const Driver& Driver::instance() {
  static const Driver driver = open_driver();
  return driver;
}

void Driver::check(CUresult result, const std::string& what) const {
  if (result == 0) return;
  const char* name = "unknown error";
  const char* text = "no description";
  cuGetErrorName(result, &name);
  cuGetErrorString(result, &text);
  constexpr CUresult kOutOfMemory = 2;
  constexpr CUresult kFirstCaptureError = 900, kLastCaptureError = 909;
  if (result >= kFirstCaptureError && result <= kLastCaptureError)
    throw_error(ErrorCode::kCuda,
                "{}: {} ({}, CUDA error {}): a CUDA graph is being captured, which takes launches "
                "only; build plans and run once before the capture begins",
                what, text, name, result);
  throw_error(result == kOutOfMemory ? ErrorCode::kOutOfMemory : ErrorCode::kCuda,
              "{}: {} ({}, CUDA error {})", what, text, name, result);
}

}  // namespace stof::cuda
