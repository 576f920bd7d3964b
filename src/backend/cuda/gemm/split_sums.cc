#include "backend/cuda/gemm/split_sums.h"

#include "core/check.h"

namespace stof::cuda {

std::shared_ptr<const DeviceBuffer> make_arrivals(std::int64_t tiles) {
  if (tiles == 0) return nullptr;
  auto arrivals = std::make_shared<DeviceBuffer>(static_cast<std::size_t>(tiles) * 4,
                                                 "counters of a product's split sums");
  const Driver& driver = Driver::instance();
  driver.check(driver.cuMemsetD8Async(arrivals->address(), 0, arrivals->bytes(), nullptr),
               "clearing counters");
  driver.check(driver.cuStreamSynchronize(nullptr), "clearing counters");
  return arrivals;
}

void check_workspace(CUdeviceptr workspace, std::size_t bytes) {
  STOF_CHECK(bytes == 0 || (workspace != 0 && workspace % 16 == 0), kInvalidArgument,
             "workspace: expected {} bytes of device memory at an address divisible by 16", bytes);
}

}  // namespace stof::cuda
