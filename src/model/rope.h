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
    kLinear,    ///< positions divided by `factor` (Chen et al. 2023, arXiv 2306.15595)
    kLlama3,    ///< long wavelengths divided by `factor`, short ones kept, those between blended
    kYarn,      ///< the same by other bounds (Peng et al. 2023, arXiv 2309.00071, section 3.2)
    kLongRope,  ///< each divided by a factor of its own (Ding et al. 2024, arXiv 2402.13753)
  };
  double theta = 10000;
  Scaling scaling = Scaling::kNone;
  double factor = 1;
  double low_freq_factor = 1, high_freq_factor = 4;  ///< kLlama3: bounds of the blend
  std::int64_t original_positions = 0;               ///< kLlama3, kYarn: the length trained on
  double beta_fast = 32, beta_slow = 1;  ///< kYarn: turns within it, the bounds of the blend
  bool truncate = true;                  ///< kYarn: the bounds are whole pairs
  std::vector<double> factors;           ///< kLongRope, of each pair
  /// What queries and keys are multiplied by beside the rotation: logits by its square.
  double attention_factor = 1;
  bool bounded = false;  ///< holds up to max_position_embeddings alone: dynamic, kLongRope

  bool operator==(const RopeConfig&) const = default;

  /// Radians a position for the pairs (i, i + head_dim/2) of a head: [head_dim / 2].
  std::vector<float> frequencies(std::int64_t head_dim) const;
  /// What attention multiplies q k^T by, as graph::Attributes::scale.
  double attention_scale(std::int64_t head_dim) const;

 private:
  /// How much of its frequency each pair keeps, from 0 (divided by `factor`) to 1.
  std::vector<double> yarn_kept(std::int64_t head_dim) const;
};

/// "rope_parameters" (transformers 5), or "rope_theta" and "rope_scaling" (before); both may be
/// there if they agree. "max_position_embeddings" and "original_max_position_embeddings" beside
/// them are what transformers takes for the length trained on where the scaling itself has none.
/// Dynamic scaling changes nothing up to max_position_embeddings, and is read as none; LongRoPE's
/// frequencies change with the length of the text where that may pass the length trained on, and
/// it is refused then. Throws Unsupported for other scalings and fields that are not known.
RopeConfig read_rope(const JsonFields& config);

}  // namespace stof::model
