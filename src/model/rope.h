#pragma once
// Rotary position embedding (Su et al. 2021, arXiv 2104.09864): the angle of each pair of
// components, with the scalings by which models reach longer texts than they were trained on.

#include <cstdint>
#include <vector>

#include "model/json_fields.h"

namespace stof::model {

struct RopeConfig {
  enum class Scaling : std::uint8_t {
    kNone,
    kLinear,  ///< positions divided by `factor` (Chen et al. 2023, arXiv 2306.15595)
    kLlama3,  ///< long wavelengths divided by `factor`, short ones kept, those between blended
  };
  double theta = 10000;
  Scaling scaling = Scaling::kNone;
  double factor = 1;
  double low_freq_factor = 1, high_freq_factor = 4;  ///< kLlama3: bounds of the blend
  std::int64_t original_positions = 0;               ///< kLlama3: the length trained on

  bool operator==(const RopeConfig&) const = default;

  /// Radians a position for the pairs (i, i + head_dim/2) of a head: [head_dim / 2].
  std::vector<float> frequencies(std::int64_t head_dim) const;
};

/// "rope_parameters" (transformers 5), or "rope_theta" and "rope_scaling" (before); both may be
/// there if they agree. Throws Unsupported for other scalings and fields that are not known.
RopeConfig read_rope(const JsonFields& config);

}  // namespace stof::model
