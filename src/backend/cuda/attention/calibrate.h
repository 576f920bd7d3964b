#pragma once
// Measures the unit costs of attention kernels on a GPU.

#include <functional>

#include "backend/cuda/attention/calibration.h"
#include "backend/cuda/device.h"

namespace stof::cuda {

/// Times of the four calls from which the costs of a kernel follow: persistent blocks that each
/// compute `items` query tiles of `tiles` key tiles.
struct CalibrationTimes {
  static constexpr int kFewItems = 2, kManyItems = 6, kFewTiles = 2, kManyTiles = 16;
  double few_us = 0;         ///< kFewItems of kFewTiles full tiles
  double many_items_us = 0;  ///< kManyItems of kFewTiles
  double many_tiles_us = 0;  ///< kFewItems of kManyTiles
  double partial_us = 0;     ///< kFewItems of kManyTiles partial tiles
};

/// Solves time = launch + items * (item + tiles * tile). Costs never fall below a nanosecond.
UnitCosts solve_costs(const CalibrationTimes& times);

/// Measures every configuration of the head dimensions on `device`, a second or two each, most of
/// it compilation. `progress(done, all)` is called after each. A configuration that cannot run is
/// left out with a warning.
Calibration calibrate(const Device& device, const std::vector<std::int64_t>& head_dims,
                      const std::function<void(std::int64_t, std::int64_t)>& progress);

}  // namespace stof::cuda
