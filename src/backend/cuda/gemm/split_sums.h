#pragma once
// What products need besides their operands where several blocks share a tile's sum: workspace for
// the parts, and counters of the blocks that have come.

#include <cstdint>
#include <memory>

#include "backend/cuda/device.h"

namespace stof::cuda {

/// Parts of larger problems are refused.
inline constexpr std::int64_t kSplitSumsBytes = std::int64_t{16} << 20;

/// One for each tile, zero, as kernels leave them. Null for no tile. Throws OutOfMemory.
std::shared_ptr<const DeviceBuffer> make_arrivals(std::int64_t tiles);

/// Throws InvalidArgument where bytes are needed and the address is none, or not 16-byte aligned.
void check_workspace(CUdeviceptr workspace, std::size_t bytes);

}  // namespace stof::cuda
