#pragma once
// An independent check of GPU attention: plain double-precision rows, random inputs, NaN counting.

#include <cstdint>
#include <string>
#include <vector>

#include "backend/cuda/device.h"
#include "stof/attention.h"

namespace stof::bench {

/// q, k, v, out, lse of one problem in device memory, contiguous [B, H, S, D].
class DeviceTensors {
 public:
  DeviceTensors(const AttentionProblem& problem, const cuda::Device& device);
  const AttentionTensors& tensors() const { return tensors_; }
  /// Fills out and lse with NaN.
  void poison() const;
  /// The bits of out.
  std::vector<std::uint16_t> output() const;
  /// Number of NaN elements in out.
  std::int64_t count_nan() const;

  struct Errors {
    double frobenius = 0;  ///< ||out - ref|| / ||ref|| over the sampled rows
    double lse = 0;        ///< largest |lse - ref|, non-finite positions must agree (else infinity)
  };
  /// Compares `num_rows` evenly spread (batch, head, query) rows.
  Errors compare(const mask::Mask& bound_mask, int num_rows) const;

 private:
  AttentionProblem problem_;
  const cuda::Device& device_;
  cuda::DeviceBuffer q_, k_, v_, out_, lse_;
  AttentionTensors tensors_;
};

}  // namespace stof::bench
