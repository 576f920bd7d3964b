#pragma once
// Operands of the CPU tests, guard bytes included, in device memory.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "backend/cuda/device.h"
#include "cpu/operands.h"
#include "gpu/draw.h"

namespace stof::check {

/// How far a result may be from the oracle's, by dtype and softcap (tanh.approx is good to 2^-11).
struct Limits {
  double frobenius, worst, lse;
};
Limits limits_of(const AttentionProblem& problem);

/// Any strides the kernels take, broadcast keys and values included.
cpu::Layouts random_layouts(Draw& draw);

/// "" where out (and LSE) are as expected, else what is wrong: non-finite elements must agree, the
/// error of the whole tensor and of its worst element stay below the limits.
std::string difference(const std::vector<double>& out, const std::vector<double>& lse,
                       const cpu::Result& expected, const Limits& limits);

/// A copy of every operand's memory on the device.
class DeviceOperands {
 public:
  explicit DeviceOperands(cpu::Operands& host);
  /// Copies the host's operands to the device again, where they are.
  void upload() const;
  /// The operands' views, of device memory.
  AttentionTensors tensors() const;
  /// Fills the memory of out and LSE with NaN, guards included.
  void poison() const;
  /// Copies out and LSE back into the host's operands.
  void download_outputs() const;
  /// Whether the inputs' memory still holds what the host's does.
  bool inputs_unchanged() const;

 private:
  struct Copy {
    cpu::GuardedTensor* host;
    cuda::DeviceBuffer memory;
  };

  cpu::Operands& host_;
  std::vector<Copy> copies_;  ///< q, k, v, out, lse, slopes, bias, sink, position
                              ///< bias, score tables; undefined ones are empty
};

/// Runs twice on poisoned outputs. "" where the results are as expected, bit by bit the same,
/// nothing else was written and no input changed; else what is wrong.
std::string run_twice(const AttentionProblem& problem, cpu::Operands& operands,
                      const DeviceOperands& device, const cpu::Result& expected,
                      const std::function<void()>& run);

}  // namespace stof::check
