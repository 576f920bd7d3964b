#include "backend/cuda/attention/calibration.h"

namespace stof::cuda {

const std::vector<CalibratedConfig>& calibrated_configs() {
  // head_dim, rows, warpgroups, tile_kv, packed, ping-pong, {full, partial, item, launch} ns
  static const std::vector<CalibratedConfig> table = {
      {64, 64, 1, 64, false, false, {906, 1016, 2063, 1202}},
      {64, 64, 1, 128, false, false, {1162, 1263, 2060, 1583}},
      {64, 192, 3, 128, false, true, {1414, 1578, 1819, 2969}},
      {128, 64, 1, 64, false, false, {1016, 1048, 1642, 1385}},
      {128, 128, 2, 128, false, true, {1645, 1626, 2096, 1420}},
      {128, 128, 2, 128, false, false, {1629, 1640, 2405, 1000}},
      {128, 128, 2, 160, false, true, {1994, 2000, 3050, 1000}},
      {128, 128, 2, 128, true, false, {1710, 1712, 1620, 1000}},
      {128, 128, 2, 64, true, false, {967, 1020, 2086, 1000}},
  };
  return table;
}

}  // namespace stof::cuda
