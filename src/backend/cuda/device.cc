#include "backend/cuda/device.h"

#include "core/check.h"
#include "core/text.h"

namespace stof::cuda {
namespace {

// CUdevice_attribute and CUfunction_attribute values.
constexpr int kMultiprocessorCount = 16, kL2CacheSize = 38, kComputeMajor = 75, kComputeMinor = 76;
constexpr int kMaxDynamicSharedBytes = 8, kPreferredSharedCarveout = 9;
constexpr int kDefaultSharedLimit = 48 * 1024;

}  // namespace

std::string DeviceFacts::target() const {
  // sm_90's tensor-core and register instructions exist only in the architecture-specific target.
  return fmt::format("sm_{}{}{}", major, minor, major >= 9 ? "a" : "");
}

Device Device::open(int ordinal) {
  const Driver& driver = Driver::instance();
  int count = 0;
  driver.check(driver.cuDeviceGetCount(&count), "counting GPUs");
  STOF_CHECK(ordinal >= 0 && ordinal < count, kNotFound, "GPU {}: this machine has {} GPU(s)",
             ordinal, count);
  Device device;
  CUdevice handle = 0;
  driver.check(driver.cuDeviceGet(&handle, ordinal), "opening the GPU");
  char name[256] = "";
  driver.check(driver.cuDeviceGetName(name, sizeof name, handle), "reading the GPU's name");
  const auto attribute = [&](int which) {
    int value = 0;
    driver.check(driver.cuDeviceGetAttribute(&value, which, handle), "reading a GPU attribute");
    return value;
  };
  std::size_t memory = 0;
  driver.check(driver.cuDeviceTotalMem(&memory, handle), "reading the GPU's memory size");
  device.facts_ = {ordinal,
                   name,
                   attribute(kComputeMajor),
                   attribute(kComputeMinor),
                   attribute(kMultiprocessorCount),
                   attribute(kL2CacheSize),
                   static_cast<std::int64_t>(memory)};
  driver.check(driver.cuDevicePrimaryCtxRetain(&device.context_, handle), "creating a context");
  device.use();
  return device;
}

Device Device::described(DeviceFacts facts) {
  Device device;
  device.facts_ = std::move(facts);
  return device;
}

void Device::use() const {
  const Driver& driver = Driver::instance();
  driver.check(driver.cuCtxSetCurrent(context_), "making the context current");
}

std::int64_t Device::free_memory_bytes() const {
  const Driver& driver = Driver::instance();
  std::size_t free = 0, total = 0;
  use();
  driver.check(driver.cuMemGetInfo(&free, &total), "reading the GPU's free memory");
  return static_cast<std::int64_t>(free);
}

DeviceBuffer::DeviceBuffer(std::size_t bytes, const std::string& what) : bytes_(bytes) {
  if (bytes == 0) return;
  const Driver& driver = Driver::instance();
  const CUresult result = driver.cuMemAlloc(&address_, bytes);
  if (result == 0) return;
  std::size_t free = 0, total = 0;
  const bool known = driver.cuMemGetInfo(&free, &total) == 0;
  driver.check(result, fmt::format("allocating {} ({} bytes) of GPU memory for {}{}",
                                   human_bytes(bytes), bytes, what,
                                   known ? fmt::format(", where {} ({} bytes) of {} are free",
                                                       human_bytes(free), free, human_bytes(total))
                                         : ""));
}

void* device_pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

DeviceBuffer::~DeviceBuffer() {
  if (address_ != 0) Driver::instance().cuMemFree(address_);
}

Kernel::Kernel(const std::string& name, const std::string& cubin, const char* entry,
               int shared_bytes, bool early_start, int shared_percent)
    : name_(name), shared_bytes_(shared_bytes), early_start_(early_start) {
  const Driver& driver = Driver::instance();
  driver.check(driver.cuModuleLoadData(&module_, cubin.data()), "loading " + name);
  driver.check(driver.cuModuleGetFunction(&function_, module_, entry),
               "finding the entry of " + name);
  if (shared_bytes > kDefaultSharedLimit)
    driver.check(driver.cuFuncSetAttribute(function_, kMaxDynamicSharedBytes, shared_bytes),
                 fmt::format("reserving {} bytes of shared memory for {}", shared_bytes, name));
  if (shared_percent >= 0)
    driver.check(driver.cuFuncSetAttribute(function_, kPreferredSharedCarveout, shared_percent),
                 fmt::format("wishing for {} % of shared memory for {}", shared_percent, name));
}

Kernel::~Kernel() {
  if (module_ != nullptr) Driver::instance().cuModuleUnload(module_);
}

void Kernel::launch(unsigned blocks, unsigned threads, CUstream stream, void** arguments,
                    bool after_all) const {
  const Driver& driver = Driver::instance();
  constexpr int kProgrammaticStreamSerialization = 6;  // CUlaunchAttributeID
  CUlaunchAttribute early{};
  early.id = kProgrammaticStreamSerialization;
  early.value.programmatic_stream_serialization_allowed = 1;
  const CUlaunchConfig config{blocks,
                              1,
                              1,
                              threads,
                              1,
                              1,
                              static_cast<unsigned>(shared_bytes_),
                              stream,
                              &early,
                              early_start_ && !after_all ? 1u : 0u};
  const CUresult result = driver.cuLaunchKernelEx(&config, function_, arguments, nullptr);
  if (result != 0)
    driver.check(
        result,
        fmt::format("launching {} with {} blocks of {} threads and {} bytes of shared memory",
                    name_, blocks, threads, shared_bytes_));
}

int Kernel::max_clusters(int blocks, int threads) const {
  const Driver& driver = Driver::instance();
  STOF_CHECK(driver.cuOccupancyMaxActiveClusters != nullptr, kCuda,
             "{}: runs in clusters of blocks, which this NVIDIA driver is too old for; install one "
             "for CUDA 11.8 or later",
             name_);
  constexpr int kClusterDimension = 4;  // CUlaunchAttributeID
  CUlaunchAttribute cluster{};
  cluster.id = kClusterDimension;
  cluster.value.cluster[0] = static_cast<unsigned>(blocks);
  cluster.value.cluster[1] = cluster.value.cluster[2] = 1;
  const CUlaunchConfig config{static_cast<unsigned>(blocks),
                              1,
                              1,
                              static_cast<unsigned>(threads),
                              1,
                              1,
                              static_cast<unsigned>(shared_bytes_),
                              nullptr,
                              &cluster,
                              1};
  int clusters = 0;
  driver.check(driver.cuOccupancyMaxActiveClusters(&clusters, function_, &config),
               fmt::format("counting clusters of {} blocks of {}", blocks, name_));
  STOF_CHECK(clusters > 0, kCuda, "{}: no cluster of {} blocks fits the GPU", name_, blocks);
  return clusters;
}

}  // namespace stof::cuda
