// Operands that 16-byte loads cannot read: every kernel offered for alignments of 2 and 4 bytes, on
// odd strides and addresses, against the oracle.
//   alignment_gpu_check
#include <algorithm>
#include <cstdio>
#include <vector>

#include "backend/cuda/attention/candidates.h"
#include "bench/gpu/oracle.h"
#include "stof/cuda_attention.h"
#include "stof/error.h"

namespace {

using namespace stof;

const cuda::Driver& driver() { return cuda::Driver::instance(); }

void download(std::vector<std::uint16_t>* values, cuda::CUdeviceptr from) {
  driver().check(driver().cuMemcpyDtoHAsync(values->data(), from, values->size() * 2, nullptr),
                 "download");
  driver().check(driver().cuStreamSynchronize(nullptr), "download");
}
void upload(const std::vector<std::uint16_t>& values, cuda::CUdeviceptr to) {
  driver().check(driver().cuMemcpyHtoDAsync(to, values.data(), values.size() * 2, nullptr),
                 "upload");
  driver().check(driver().cuStreamSynchronize(nullptr), "upload");
}

/// A contiguous tensor's copy whose rows are `padding` elements longer, `offset` elements into its
/// buffer; what lies before and between the rows is NaN.
class PaddedCopy {
 public:
  PaddedCopy(const TensorView& tensor, std::int64_t padding, std::int64_t offset)
      : columns_(tensor.shape[3]),
        pitch_(columns_ + padding),
        rows_(tensor.shape[0] * tensor.shape[1] * tensor.shape[2]),
        offset_(offset),
        dense_(reinterpret_cast<cuda::CUdeviceptr>(tensor.data)),
        buffer_(static_cast<std::size_t>(offset + rows_ * pitch_) * 2, "a padded tensor"),
        shape_(tensor.shape),
        dtype_(tensor.dtype) {
    copy_in();
  }

  /// From the contiguous tensor.
  void copy_in() const {
    std::vector<std::uint16_t> dense(static_cast<std::size_t>(rows_ * columns_));
    download(&dense, dense_);
    std::vector<std::uint16_t> padded(buffer_.bytes() / 2, kNaN);
    for (std::size_t i = 0; i < dense.size(); ++i) padded[place(i)] = dense[i];
    upload(padded, buffer_.address());
  }

  /// To the contiguous tensor; says whether nothing but rows was written.
  bool copy_out() const {
    std::vector<std::uint16_t> padded(buffer_.bytes() / 2);
    download(&padded, buffer_.address());
    std::vector<std::uint16_t> dense(static_cast<std::size_t>(rows_ * columns_));
    for (std::size_t i = 0; i < dense.size(); ++i) {
      dense[i] = padded[place(i)];
      padded[place(i)] = kNaN;
    }
    upload(dense, dense_);
    return std::all_of(padded.begin(), padded.end(),
                       [](std::uint16_t value) { return value == kNaN; });
  }

  MutableTensorView view() const {
    MutableTensorView view{reinterpret_cast<std::uint16_t*>(buffer_.address()) + offset_, dtype_,
                           shape_};
    view.strides = {shape_[1] * shape_[2] * pitch_, shape_[2] * pitch_, pitch_, 1};
    return view;
  }

 private:
  static constexpr std::uint16_t kNaN = 0xffff;

  std::size_t place(std::size_t dense_index) const {
    const auto index = static_cast<std::int64_t>(dense_index);
    return static_cast<std::size_t>(offset_ + index / columns_ * pitch_ + index % columns_);
  }

  std::int64_t columns_, pitch_, rows_, offset_;
  cuda::CUdeviceptr dense_;
  cuda::DeviceBuffer buffer_;
  Dims shape_;
  DType dtype_;
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
          v(t.v, 3 * alignment / 2, alignment / 2), out(t.out, alignment / 2, alignment / 2);
      t.q = q.view(), t.k = k.view(), t.v = v.view(), t.out = out.view();
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
            out.copy_in();
            plan.run(t, nullptr);
            const bool rows_only = out.copy_out();
            const auto errors = data.compare(bound, 200);
            if (rows_only && data.count_nan() == 0 && errors.frobenius < 5e-3 &&
                errors.lse < 1e-3) {
              ++counts.passed;
              continue;
            }
            std::printf("BAD alignment %d: %s mask %s kernel %s: error %.2e lse %.2e%s\n",
                        alignment, p.describe().c_str(), expression.describe().c_str(),
                        candidate.name().c_str(), errors.frobenius, errors.lse,
                        rows_only ? "" : ", wrote between rows");
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
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // nothing is lost when a check ends the program
  const cuda::Device device = cuda::Device::open();
  const Counts counts = check_alignments(device);
  std::printf("%d passed, %d failed on %s\n", counts.passed, counts.failed,
              device.facts().name.c_str());
  return counts.failed > 0;
}
