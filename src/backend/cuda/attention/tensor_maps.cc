#include "backend/cuda/attention/tensor_maps.h"

#include <algorithm>

#include "backend/cuda/attention/grid_lists.h"
#include "core/check.h"

namespace stof::cuda {
namespace {

CUtensorMap encode(const TensorView& tensor, const char* name, const void* data,
                   const MapLayout& layout) {
  constexpr int kFloat16 = 6, kBFloat16 = 9, kNoInterleave = 0, kSwizzle128 = 3, kPromote256 = 3,
                kZeroFill = 0;
  std::uint64_t extents[5], strides[4];
  std::uint32_t box[5], steps[5];
  for (std::size_t i = 0; i < 5; ++i) {
    extents[i] = static_cast<std::uint64_t>(layout.extents[i]);
    box[i] = static_cast<std::uint32_t>(layout.box[i]);
    steps[i] = 1;
    if (i == 0) continue;
    const std::int64_t bytes = layout.strides[i] * 2;
    STOF_CHECK(layout.extents[i] == 1 || (bytes % 16 == 0 && bytes >= 0), kUnsupported,
               "{}: the GPU kernels take strides in multiples of 8 elements, got {}; make it "
               "contiguous",
               name, tensor.describe());
    strides[i - 1] = layout.extents[i] == 1 ? 16 : static_cast<std::uint64_t>(bytes);
  }
  STOF_CHECK(reinterpret_cast<std::uintptr_t>(data) % 16 == 0, kUnsupported,
             "{}: expected an address divisible by 16 bytes", name);
  CUtensorMap map;
  const Driver& driver = Driver::instance();
  const CUresult result = driver.cuTensorMapEncodeTiled(
      &map, tensor.dtype == DType::kBFloat16 ? kBFloat16 : kFloat16, 5, const_cast<void*>(data),
      extents, strides, box, steps, kNoInterleave, kSwizzle128, kPromote256, kZeroFill);
  if (result != 0)
    driver.check(result,
                 fmt::format("describing {} = {} to the copy engine", name, tensor.describe()));
  return map;
}

}  // namespace

CUtensorMap make_tensor_map(const TensorView& tensor, const char* name, std::int64_t box_rows,
                            std::int64_t step) {
  const std::int64_t residue_rows = tensor.shape[2] / step;
  const std::int64_t in_residue = step == 1 ? box_rows : std::min(box_rows, residue_rows);
  return encode(
      tensor, name, tensor.data,
      {{tensor.shape[3], residue_rows, step, tensor.shape[1], tensor.shape[0]},
       {1, tensor.strides[2] * step, tensor.strides[2], tensor.strides[1], tensor.strides[0]},
       {64, in_residue, box_rows / in_residue, 1, 1}});
}

MapLayout grid_layout(const TensorView& tensor, std::int64_t box_rows,
                      const plan::GridTiling& tiling) {
  const std::array<std::int64_t, 3>& grid = tiling.extent;
  const plan::GridTile box = grid_box(tiling, box_rows);
  const std::int64_t row = tensor.strides[2];
  return {{tensor.shape[3], grid[2], grid[1], grid[0], tensor.shape[1]},
          {1, row, row * grid[2], row * grid[2] * grid[1], tensor.strides[1]},
          {64, box[2], box[1], box[0], 1}};
}

CUtensorMap make_grid_map(const TensorView& tensor, const char* name, std::int64_t box_rows,
                          const plan::GridTiling& tiling, std::int64_t batch) {
  const auto* data = static_cast<const std::uint16_t*>(tensor.data) + batch * tensor.strides[0];
  return encode(tensor, name, data, grid_layout(tensor, box_rows, tiling));
}

}  // namespace stof::cuda
