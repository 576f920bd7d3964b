// Operands that 16-byte loads cannot read: every kernel offered for alignments of 2 and 4 bytes, on
// odd strides and addresses, against the oracle.
//   alignment_gpu_check
#include <cstdio>

#include "backend/cuda/attention/candidates.h"
#include "bench/gpu/oracle.h"
#include "stof/cuda_attention.h"
#include "stof/error.h"

namespace {

using namespace stof;

/// A contiguous tensor's copy whose rows are `padding` elements longer, `offset` elements into its
/// buffer; what lies between the rows is NaN.
class PaddedCopy {
 public:
  PaddedCopy(const TensorView& tensor, std::int64_t padding, std::int64_t offset) {
    const cuda::Driver& driver = cuda::Driver::instance();
    const std::int64_t columns = tensor.shape[3], pitch = columns + padding,
                       rows = tensor.shape[0] * tensor.shape[1] * tensor.shape[2];
    const auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
    std::vector<std::uint16_t> dense(size(rows * columns));
    driver.check(
        driver.cuMemcpyDtoHAsync(dense.data(), reinterpret_cast<cuda::CUdeviceptr>(tensor.data),
                                 dense.size() * 2, nullptr),
        "download");
    driver.check(driver.cuStreamSynchronize(nullptr), "download");
    std::vector<std::uint16_t> padded(size(offset + rows * pitch), 0xffff);
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t column = 0; column < columns; ++column)
        padded[size(offset + row * pitch + column)] = dense[size(row * columns + column)];
    buffer_ = cuda::DeviceBuffer(padded.size() * 2, "a padded tensor");
    driver.check(
        driver.cuMemcpyHtoDAsync(buffer_.address(), padded.data(), padded.size() * 2, nullptr),
        "upload");
    driver.check(driver.cuStreamSynchronize(nullptr), "upload");
    view_ = tensor;
    view_.data = reinterpret_cast<const std::uint16_t*>(buffer_.address()) + offset;
    view_.strides = {tensor.shape[1] * tensor.shape[2] * pitch, tensor.shape[2] * pitch, pitch, 1};
  }
  const TensorView& view() const { return view_; }

 private:
  cuda::DeviceBuffer buffer_;
  TensorView view_;
};

struct Counts {
  int passed = 0, failed = 0;
};

Counts check_alignments(const cuda::Device& device) {
  AttentionProblem p;
  p.batch = 2;
  p.num_heads_q = 4;
  p.num_heads_kv = 2;
  p.seq_q = p.seq_kv = 200;
  p.dtype = DType::kBFloat16;
  p.return_lse = true;
  Counts counts;
  for (const int alignment : {2, 4})
    for (const std::int64_t head_dim : {64, 72, 128}) {
      p.head_dim_qk = p.head_dim_v = head_dim;
      const bench::DeviceTensors data(p, device);
      AttentionTensors t = data.tensors();
      const PaddedCopy q(t.q, alignment / 2, 0), k(t.k, alignment / 2, alignment / 2),
          v(t.v, 3 * alignment / 2, alignment / 2);
      t.q = q.view(), t.k = k.view(), t.v = v.view();
      const cuda::KernelTarget target{device.facts().major * 10 + device.facts().minor,
                                      device.facts().num_sms, alignment};
      for (const mask::Mask& expression : {mask::causal(), mask::dilated(100, 2)}) {
        const mask::Mask bound =
            expression.bind({p.batch, p.num_heads_q, p.seq_q, p.seq_kv}, p.alignment);
        for (const auto& candidate : cuda::enumerate_candidates(p, expression, target)) {
          try {
            const auto plan = cuda::AttentionPlan::build(p, expression, candidate.name(),
                                                         device.facts().ordinal, alignment);
            data.poison();
            plan.run(t, nullptr);
            const auto errors = data.compare(bound, 200);
            if (data.count_nan() == 0 && errors.frobenius < 5e-3 && errors.lse < 1e-3) {
              ++counts.passed;
              continue;
            }
            std::printf("BAD alignment %d: %s mask %s kernel %s: error %.2e lse %.2e\n", alignment,
                        p.describe().c_str(), expression.describe().c_str(),
                        candidate.name().c_str(), errors.frobenius, errors.lse);
          } catch (const Error& error) {
            std::printf("BAD alignment %d: kernel %s: %s\n", alignment, candidate.name().c_str(),
                        error.what());
          }
          ++counts.failed;
        }
      }
    }
  return counts;
}

}  // namespace

int main() {
  const cuda::Device device = cuda::Device::open();
  const Counts counts = check_alignments(device);
  std::printf("%d passed, %d failed on %s\n", counts.passed, counts.failed,
              device.facts().name.c_str());
  return counts.failed > 0;
}
