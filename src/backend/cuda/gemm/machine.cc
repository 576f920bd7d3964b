#include "backend/cuda/gemm/machine.h"

#include "backend/cuda/attention/configs.h"

namespace stof::cuda {

MachineRates machine_rates(const DeviceFacts& facts) {
  // NVIDIA's whitepapers of GA100, GA102, AD102 (GeForce: half the rate with float32 sums) and
  // H100, of whose rate mma.sync reaches some five eighths; memory at what copies reach.
  switch (facts.major * 10 + facts.minor) {
    case 80:
      return {1024, 45, 1500, 1.4};
    case 90:
      return {1280, 50, 4200, 1.7};
    case 89:
      return {256, 16, 900, 2.4};
    default:
      return {256, 20, 700, 1.7};
  }
}

int shared_bytes_per_sm(const DeviceFacts& facts) {
  return KernelTarget{facts.major * 10 + facts.minor, facts.num_sms}.shared_per_sm();
}

}  // namespace stof::cuda
