#pragma once
// Unit costs measured on an NVIDIA H200; see docs/kernels/sm90_blockwise.md for how.

#include <vector>

#include "backend/cuda/attention/cost_model.h"

namespace stof::cuda {

struct CalibratedConfig {
  int head_dim;
  int rows;  ///< query rows of a block, all packed heads
  int warpgroups, tile_kv;
  bool pack_heads, ping_pong;
  UnitCosts costs;
};
const std::vector<CalibratedConfig>& calibrated_configs();

}  // namespace stof::cuda
