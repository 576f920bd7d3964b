// Checks what prunes on the GPU against the CPU's pruners and a sum in double.
//   prune_gpu_check [--only KIND,...]
// Kinds: choice (the two of four keys that each kernel keeps, of exact scores: bit for bit the
// CPU's nm(2, 4)), near (the same of real numbers: where it differs, scores are equal but for
// rounding), output (output and log-sum-exp for what was kept), refusals. Exits 1 with failures.
// Needs a GPU of compute capability 8.0 or later. block_prune_check.cc has the pruners that make
// block lists.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "backend/cuda/attention/two_of_four.h"
#include "backend/cuda/upload.h"
#include "codegen/attention.h"
#include "gpu/draw.h"
#include "stof/cuda_attention.h"
#include "stof/dtype.h"
#include "stof/error.h"
#include "stof/prune.h"
#include "tests/gpu/compile_ahead.h"

namespace {

using namespace stof;
using check::Draw;

struct Counts {
  int passed = 0, failed = 0;
  void add(bool good) { (good ? passed : failed) += 1; }
};

std::uint16_t bits_of(float value, DType dtype) {
  return dtype == DType::kFloat16 ? Float16(value).bits : BFloat16(value).bits;
}
float value_of(std::uint16_t bits, DType dtype) {
  Float16 f16;
  BFloat16 bf16;
  f16.bits = bf16.bits = bits;
  return dtype == DType::kFloat16 ? static_cast<float>(f16) : static_cast<float>(bf16);
}

/// A tensor [batch, heads, rows, head_dim] as the GPU has it, and its values.
struct Operand {
  Dims shape;
  DType dtype;
  std::vector<float> values;
  cuda::DeviceBuffer memory;

  template <class Make>
  Operand(const Dims& dims, DType type, const Make& make) : shape(dims), dtype(type) {
    std::vector<std::uint16_t> bits;
    for (std::int64_t i = 0; i < num_elements(shape); ++i) {
      bits.push_back(bits_of(make(i), dtype));
      values.push_back(value_of(bits.back(), dtype));
    }
    memory = cuda::upload(bits, "an operand");
    const cuda::Driver& driver = cuda::Driver::instance();
    driver.check(driver.cuStreamSynchronize(nullptr), "uploading an operand");
  }
  TensorView on_host() const { return {values.data(), DType::kFloat32, shape}; }
  TensorView on_device() const { return {cuda::device_pointer(memory.address()), dtype, shape}; }
  const float* row(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return values.data() + ((b * shape[1] + h) * shape[2] + i) * shape[3];
  }
};

/// One problem, and what a plan of it gives.
class Case {
 public:
  Case(AttentionProblem problem, std::uint64_t seed, bool integers)
      : p(std::move(problem)),
        draw_(seed),
        q({p.batch, p.num_heads_q, p.seq_q, p.head_dim_qk}, p.dtype,
          [&](std::int64_t) { return integers ? std::round(draw_.normal()) : draw_.normal(); }),
        k({p.batch, p.num_heads_kv, p.seq_kv, p.head_dim_qk}, p.dtype,
          [&](std::int64_t) { return integers ? std::round(draw_.normal()) : draw_.normal(); }),
        v({p.batch, p.num_heads_kv, p.seq_kv, p.head_dim_v}, p.dtype,
          [&](std::int64_t) { return draw_.normal(); }),
        out_(static_cast<std::size_t>(rows() * p.head_dim_v) * 2, "out"),
        lse_(static_cast<std::size_t>(rows()) * 4, "lse") {}

  std::int64_t rows() const { return p.batch * p.num_heads_q * p.seq_q; }

  /// out as values and lse, with these values.
  void run(const cuda::AttentionPlan& plan, const Operand& values, std::vector<float>* out,
           std::vector<float>* lse) const {
    const cuda::Driver& driver = cuda::Driver::instance();
    driver.check(driver.cuMemsetD8Async(out_.address(), 0xff, out_.bytes(), nullptr), "poisoning");
    driver.check(driver.cuMemsetD8Async(lse_.address(), 0xff, lse_.bytes(), nullptr), "poisoning");
    AttentionTensors tensors;
    tensors.q = q.on_device();
    tensors.k = k.on_device();
    tensors.v = values.on_device();
    tensors.out = {cuda::device_pointer(out_.address()),
                   p.dtype,
                   {p.batch, p.num_heads_q, p.seq_q, p.head_dim_v}};
    tensors.lse = {
        cuda::device_pointer(lse_.address()), DType::kFloat32, {p.batch, p.num_heads_q, p.seq_q}};
    plan.run(tensors, nullptr);
    std::vector<std::uint16_t> bits(out_.bytes() / 2);
    lse->resize(lse_.bytes() / 4);
    driver.check(driver.cuMemcpyDtoHAsync(bits.data(), out_.address(), out_.bytes(), nullptr),
                 "reading out");
    driver.check(driver.cuMemcpyDtoHAsync(lse->data(), lse_.address(), lse_.bytes(), nullptr),
                 "reading lse");
    driver.check(driver.cuStreamSynchronize(nullptr), "running");
    out->clear();
    for (const std::uint16_t one : bits) out->push_back(value_of(one, p.dtype));
  }

  /// [rows(), seq_kv]: which keys have weight. Values are one-hot: key j's is 1 in column j of a
  /// window of head_dim_v keys, so that column is key j's weight.
  std::vector<bool> kept_by(const cuda::AttentionPlan& plan) const {
    std::vector<bool> kept(static_cast<std::size_t>(rows() * p.seq_kv));
    std::vector<float> out, lse;
    for (std::int64_t first = 0; first < p.seq_kv; first += p.head_dim_v) {
      const Operand one_hot(v.shape, p.dtype, [&](std::int64_t i) {
        return i / p.head_dim_v % p.seq_kv - first == i % p.head_dim_v ? 1.0f : 0.0f;
      });
      run(plan, one_hot, &out, &lse);
      for (std::int64_t row = 0; row < rows(); ++row)
        for (std::int64_t j = first; j < std::min(first + p.head_dim_v, p.seq_kv); ++j)
          kept[static_cast<std::size_t>(row * p.seq_kv + j)] =
              out[static_cast<std::size_t>(row * p.head_dim_v + j - first)] != 0;
    }
    return kept;
  }

  double score(std::int64_t row, std::int64_t j, double* size = nullptr) const {
    const std::int64_t b = row / (p.num_heads_q * p.seq_q), h = row / p.seq_q % p.num_heads_q;
    const float* a = q.row(b, h, row % p.seq_q);
    const float* c = k.row(b, h / (p.num_heads_q / p.num_heads_kv), j);
    double sum = 0, sizes = 0;
    for (std::int64_t d = 0; d < p.head_dim_qk; ++d) {
      sum += double{a[d]} * double{c[d]};
      sizes += std::abs(double{a[d]} * double{c[d]});
    }
    if (size != nullptr) *size = sizes;
    return sum;
  }

  AttentionProblem p;

 private:
  Draw draw_;

 public:
  Operand q, k, v;

 private:
  cuda::DeviceBuffer out_, lse_;
};

std::vector<std::pair<std::string, mask::Mask>> masks() {
  using namespace mask;
  return {{"all", all()},
          {"causal", causal()},
          {"window", window(41, 3)},
          {"random", random_elements(0.3, 5)},
          {"document", document({70, 90, 43}) & causal()}};
}

AttentionProblem problem_of(std::int64_t head_dim, DType dtype, std::int64_t seq_q,
                            std::int64_t seq_kv, bool bottom_right) {
  AttentionProblem p;
  p.batch = 2, p.num_heads_q = 4, p.num_heads_kv = 2;
  p.seq_q = seq_q, p.seq_kv = seq_kv;
  p.head_dim_qk = p.head_dim_v = head_dim;
  p.dtype = dtype;
  p.scale = 1.0f / 16;  // exact, and no weight so small that it is lost in 16 bits
  p.return_lse = true;
  if (bottom_right) p.alignment = mask::Alignment::kBottomRight;
  return p;
}

struct Difference {
  std::int64_t pairs = 0;   ///< of kept by one and not by the other
  std::int64_t first = -1;  ///< row * seq_kv + key
  double worst_gap = 0;     ///< of scores, over what float32 sums may be off by
};

/// Kernel against pruner. A key that one keeps and the other doesn't must be equal to one of the
/// group that the other keeps, but for rounding: float32 sums in another order are off by at most
/// head_dim * 2^-23 of the sum of absolute products, tensor cores' truncation included.
Difference difference(const Case& c, const std::vector<bool>& kept, const mask::Mask& expected) {
  Difference result;
  const AttentionProblem& p = c.p;
  for (std::int64_t row = 0; row < c.rows(); ++row) {
    const std::int64_t b = row / (p.num_heads_q * p.seq_q), h = row / p.seq_q % p.num_heads_q;
    for (std::int64_t group = 0; group < p.seq_kv; group += 4) {
      const std::int64_t end = std::min(group + 4, p.seq_kv);
      double nearest[2] = {1e300, 1e300};  // least kept by the kernel alone, by the pruner alone
      double limit = 0;
      for (std::int64_t j = group; j < end; ++j) {
        const bool by_kernel = kept[static_cast<std::size_t>(row * p.seq_kv + j)];
        const bool by_pruner = expected.visible(b, h, row % p.seq_q, j);
        if (by_kernel == by_pruner) continue;
        result.pairs += 1;
        if (result.first < 0) result.first = row * p.seq_kv + j;
        double size = 0;
        const double score = c.score(row, j, &size);
        limit = std::max(limit, size * static_cast<double>(p.head_dim_qk) / (1 << 23));
        nearest[by_kernel ? 0 : 1] = std::min(nearest[by_kernel ? 0 : 1], score);
      }
      if (nearest[0] == 1e300 && nearest[1] == 1e300) continue;
      result.worst_gap = std::max(result.worst_gap, std::abs(nearest[0] - nearest[1]) / limit);
    }
  }
  return result;
}

/// Relative error of out over all, largest of lse, for what was kept.
std::pair<double, double> output_error(const Case& c, const std::vector<bool>& kept,
                                       const std::vector<float>& out,
                                       const std::vector<float>& lse) {
  const AttentionProblem& p = c.p;
  double difference = 0, norm = 0, lse_error = 0;
  std::vector<double> sums(static_cast<std::size_t>(p.head_dim_v));
  for (std::int64_t row = 0; row < c.rows(); ++row) {
    const std::int64_t b = row / (p.num_heads_q * p.seq_q);
    const std::int64_t h = row / p.seq_q % p.num_heads_q / (p.num_heads_q / p.num_heads_kv);
    std::fill(sums.begin(), sums.end(), 0.0);
    double total = 0;
    for (std::int64_t j = 0; j < p.seq_kv; ++j) {
      if (!kept[static_cast<std::size_t>(row * p.seq_kv + j)]) continue;
      const double weight = std::exp(c.score(row, j) * double{*p.scale});
      total += weight;
      for (std::size_t d = 0; d < sums.size(); ++d) sums[d] += weight * double{c.v.row(b, h, j)[d]};
    }
    const double got_lse = double{lse[static_cast<std::size_t>(row)]};
    const double want_lse = total > 0 ? std::log(total) : -HUGE_VAL;
    if (got_lse != want_lse) lse_error = std::max(lse_error, std::abs(got_lse - want_lse));
    if (std::isnan(got_lse)) lse_error = HUGE_VAL;
    for (std::size_t d = 0; d < sums.size(); ++d) {
      const double want = total > 0 ? sums[d] / total : 0;
      const double got = double{out[static_cast<std::size_t>(row) * sums.size() + d]};
      if (std::isnan(got)) difference = HUGE_VAL;
      difference += (got - want) * (got - want);
      norm += want * want;
    }
  }
  return {std::sqrt(difference / std::max(norm, 1e-300)), lse_error};
}

void check_kernels(const cuda::Device& device, bool choice, bool near, bool output,
                   Counts* counts) {
  struct Size {
    std::int64_t head_dim, seq_q, seq_kv;
    DType dtype;
    bool bottom_right;
  };
  const Size sizes[] = {{64, 150, 203, DType::kBFloat16, false},
                        {128, 150, 203, DType::kBFloat16, true},
                        {64, 203, 150, DType::kFloat16, false},
                        {128, 70, 1000, DType::kFloat16, true}};
  const cuda::KernelTarget target{device.facts().major * 10 + device.facts().minor,
                                  device.facts().num_sms, 16};
  std::map<std::string, std::string> texts;
  for (const Size& s : sizes)
    for (const auto& config : cuda::two_of_four_configs(
             problem_of(s.head_dim, s.dtype, s.seq_q, s.seq_kv, s.bottom_right), true, target))
      texts.emplace(config.name(), codegen::emit_attention(config));
  check::compile_ahead(texts, device.facts().target());
  std::uint64_t seed = 1;
  for (const Size& s : sizes) {
    const AttentionProblem p = problem_of(s.head_dim, s.dtype, s.seq_q, s.seq_kv, s.bottom_right);
    for (const bool integers : {true, false}) {
      if (!(integers ? choice : near || output)) continue;
      const Case c(p, seed++, integers);
      for (const auto& [name, base] : masks()) {
        const mask::PruneInput input{c.q.on_host(), c.k.on_host(), *p.scale, base, p.alignment};
        const mask::Mask expected = mask::prune(input, mask::Pruner::parse("nm(2, 4)")).mask;
        for (const auto& config : cuda::two_of_four_configs(p, true, target)) {
          const auto plan = cuda::AttentionPlan::build_two_of_four(p, base, config.name());
          const std::vector<bool> kept = c.kept_by(plan);
          const auto num_kept = std::count(kept.begin(), kept.end(), true);
          const Difference d = difference(c, kept, expected);
          const std::string what = config.name() + " " + name + (integers ? " integers" : "");
          if (integers || near) {
            const bool good = integers
                                  ? d.pairs == 0
                                  : d.worst_gap <= 1 && static_cast<double>(d.pairs) <=
                                                            1e-3 * static_cast<double>(num_kept);
            counts->add(good);
            std::printf("%s %-60s kept %8ld, differ %ld, gap %.3f of the limit",
                        good ? "ok " : "BAD", what.c_str(), num_kept, d.pairs, d.worst_gap);
            if (d.first >= 0)
              std::printf(", first at row %ld key %ld", d.first / p.seq_kv, d.first % p.seq_kv);
            std::printf("\n");
          }
          if (!output) continue;
          std::vector<float> out, lse, again, lse_again;
          c.run(plan, c.v, &out, &lse);
          c.run(plan, c.v, &again, &lse_again);
          const auto [error, lse_error] = output_error(c, kept, out, lse);
          const bool good = error < (p.dtype == DType::kFloat16 ? 1e-3 : 5e-3) &&
                            lse_error < 1e-3 && out == again && lse == lse_again;
          counts->add(good);
          std::printf("%s %-60s output error %.2e lse %.2e%s\n", good ? "ok " : "BAD", what.c_str(),
                      error, lse_error, out == again ? "" : ", two runs differ");
        }
      }
    }
  }
}

void check_refusals(Counts* counts) {
  const auto refuses = [&](const char* field, const auto& change) {
    AttentionProblem p = problem_of(64, DType::kBFloat16, 64, 64, false);
    change(p);
    try {
      cuda::AttentionPlan::build_two_of_four(p, mask::all());
      std::printf("BAD %s was not refused\n", field);
      counts->add(false);
    } catch (const Error& error) {
      const bool good = error.code() == ErrorCode::kUnsupported &&
                        std::string(error.what()).find(field) != std::string::npos;
      if (!good) std::printf("BAD %s: %s\n", field, error.what());
      counts->add(good);
    }
  };
  refuses("softcap", [](AttentionProblem& p) { p.softcap = 20; });
  refuses("alibi", [](AttentionProblem& p) { p.alibi = true; });
  refuses("bias", [](AttentionProblem& p) { p.bias = true; });
  refuses("score_mod", [](AttentionProblem& p) { p.score_mod = "2 * score"; });
  refuses("head_dim", [](AttentionProblem& p) { p.head_dim_qk = p.head_dim_v = 256; });
}

}  // namespace

int main(int argc, char** argv) try {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  std::string only;
  for (int i = 1; i + 1 < argc; i += 2)
    if (std::string(argv[i]) == "--only") only = std::string(",") + argv[i + 1] + ",";
  const auto wants = [&](const std::string& kind) {
    return only.empty() || only.find("," + kind + ",") != std::string::npos;
  };
  const cuda::Device device = cuda::Device::open();
  Counts counts;
  check_kernels(device, wants("choice"), wants("near"), wants("output"), &counts);
  if (wants("refusals")) check_refusals(&counts);
  std::printf("%d passed, %d failed on %s\n", counts.passed, counts.failed,
              device.facts().name.c_str());
  return counts.failed == 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::printf("BAD: %s\n", error.what());
  return 1;
}
