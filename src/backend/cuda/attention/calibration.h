#pragma once
// Measured unit costs of attention kernels: shipped for the H200, or measured on the user's GPU by
// `stof calibrate`.

#include <optional>
#include <string>
#include <vector>

#include "backend/cuda/attention/cost_model.h"

namespace stof::cuda {

struct CalibratedKernel {
  std::string kernel;  ///< calibration_name() of its configuration
  int head_dim = 0;
  int rows = 0;  ///< query rows of a block, all packed heads
  int warpgroups = 0, tile_kv = 0;
  bool pack_heads = false, ping_pong = false;
  UnitCosts costs;
};

/// The configuration's name without what does not change its costs: element type, softcap, merge.
std::string calibration_name(codegen::AttentionConfig config);

/// Kernels measured on one kind of GPU.
struct Calibration {
  std::string gpu;  ///< "NVIDIA H200", as the driver names it
  std::vector<CalibratedKernel> kernels;

  /// Exactly this configuration; nullptr where it was not measured.
  const CalibratedKernel* find(const codegen::AttentionConfig& config) const;
  /// The one most like it of the same family, never nullptr for sm90.
  const CalibratedKernel* nearest(const codegen::AttentionConfig& config) const;

  std::string to_json() const;
  /// Throws Corrupt naming `name`, field, expected and got.
  static Calibration from_json(const std::string& text, const std::string& name);

  /// What the library ships, measured on an NVIDIA H200.
  static const Calibration& shipped();
  /// The profile that `stof calibrate` left for this GPU in the cache folder, read once; else, and
  /// for an empty name, what is shipped. A profile that cannot be used is named in one warning.
  static const Calibration& of_gpu(const std::string& gpu);
  /// Where of_gpu() looks: <cache folder>/calibration/<name>.json
  static std::string default_path(const std::string& gpu);
};

}  // namespace stof::cuda
