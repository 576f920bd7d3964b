#include "backend/cuda/gemm/split_sums.h"

#include "backend/cuda/upload.h"
#include "core/check.h"

namespace stof::cuda {

std::shared_ptr<const DeviceBuffer> make_arrivals(std::int64_t tiles) {
  if (tiles == 0) return nullptr;
  return std::make_shared<DeviceBuffer>(
      zeros(static_cast<std::size_t>(tiles) * 4, "counters of a product's split sums"));
}

void check_workspace(CUdeviceptr workspace, std::size_t bytes) {
  STOF_CHECK(bytes == 0 || (workspace != 0 && workspace % 16 == 0), kInvalidArgument,
             "workspace: expected {} bytes of device memory at an address divisible by 16", bytes);
}

}  // namespace stof::cuda
