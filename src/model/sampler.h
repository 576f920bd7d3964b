#pragma once
// From logits to the next token.

#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace stof::model {

struct SamplingOptions {
  double temperature = 0;  ///< 0: the likeliest token, always
  std::int64_t top_k = 0;  ///< only the k likeliest; 0: all
  double top_p = 1;        ///< only the likeliest that make up this probability; at least one
  std::uint64_t seed = 0;
};

/// The same options and logits give the same tokens on every machine whose logits are the same.
class Sampler {
 public:
  /// Throws InvalidArgument naming option, expected and got.
  explicit Sampler(const SamplingOptions& options);

  /// Of equal logits the lower id is taken as likelier. Throws InvalidArgument on NaN, on
  /// infinity, and where none is above -infinity.
  std::int32_t next(std::span<const float> logits);

 private:
  std::int32_t draw(std::span<const float> logits);

  SamplingOptions options_;
  std::mt19937_64 random_;
  std::vector<std::int32_t> order_;
  std::vector<double> weights_;
};

}  // namespace stof::model
