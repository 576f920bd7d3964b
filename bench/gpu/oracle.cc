#include "bench/gpu/oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check.h"
#include "jit/nvrtc.h"

namespace stof::bench {
namespace {

// Element access goes through bits so that the source needs no header.
constexpr const char* kSource = R"(
typedef unsigned long long u64; typedef unsigned int u32; typedef unsigned short u16; typedef long long i64;
__device__ float load(const u16* p, i64 i, int half) {
  if (!half) return __uint_as_float((u32)p[i] << 16);
  float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(p[i])); return f;
}
extern "C" __global__ void fill_normal(u16* out, i64 n, u32 seed, int half) {
  i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x;
  if (i >= n) return;
  u64 z = (i + 1) * 0x9e3779b97f4a7c15ull + seed * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull; z = (z ^ (z >> 27)) * 0x94d049bb133111ebull; z ^= z >> 31;
  float a = ((u32)z + 1.0f) * 2.3283064e-10f, b = (u32)(z >> 32) * 2.3283064e-10f;
  float x = sqrtf(-2.0f * logf(fminf(a, 1.0f))) * cospif(2.0f * b);
  u16 bits;
  if (half) asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x)); else asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  out[i] = bits;
}
extern "C" __global__ void count_nan(const u16* p, i64 n, u64* count, int half) {
  u64 mine = 0;
  for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (i64)blockDim.x) {
    float f = load(p, i, half); mine += f != f;
  }
  if (mine) atomicAdd(count, mine);
}
// One block a sampled row. rows[r] = {q offset, kv head offset (rows), kept}; visible: bits [row][words].
extern "C" __global__ void reference_rows(const u16* q, const u16* k, const u16* v, const i64* q_rows, const i64* kv_rows,
    const u64* visible, int words, int seq_kv, int dqk, int dv, double scale, double softcap, int half, double* out, double* lse, double* all_scores) {
  __shared__ double reduced[256];
  int r = blockIdx.x, t = threadIdx.x;
  double* scores = all_scores + (i64)r * seq_kv;
  double top = -INFINITY_;
  for (int j = t; j < seq_kv; j += 256) {
    double s = -INFINITY_;
    if (visible[(i64)r * words + j / 64] >> (j % 64) & 1) {
      s = 0;
      for (int d = 0; d < dqk; ++d) s += (double)load(q, q_rows[r] * dqk + d, half) * load(k, (kv_rows[r] + j) * dqk + d, half);
      s *= scale;
      if (softcap > 0) s = softcap * ::tanh(s / softcap);
    }
    scores[j] = s; top = fmax(top, s);
  }
  reduced[t] = top; __syncthreads();
  for (int o = 128; o; o >>= 1) { if (t < o) reduced[t] = fmax(reduced[t], reduced[t + o]); __syncthreads(); }
  top = reduced[0]; __syncthreads();
  double sum = 0;
  for (int j = t; j < seq_kv; j += 256) { double p = scores[j] == -INFINITY_ ? 0 : exp(scores[j] - top); scores[j] = p; sum += p; }
  reduced[t] = sum; __syncthreads();
  for (int o = 128; o; o >>= 1) { if (t < o) reduced[t] += reduced[t + o]; __syncthreads(); }
  sum = reduced[0];
  if (t == 0) lse[r] = sum > 0 ? top + log(sum) : -INFINITY_;
  for (int d = t; d < dv; d += 256) {
    double o = 0;
    for (int j = 0; j < seq_kv; ++j) if (scores[j] != 0) o += scores[j] * load(v, (kv_rows[r] + j) * dv + d, half);
    out[(i64)r * dv + d] = sum > 0 ? o / sum : 0;
  }
}
)";

const cuda::Driver& driver() { return cuda::Driver::instance(); }

cuda::Kernel helper_kernel(const cuda::Device& device, const char* entry) {
  static const std::string cubin =
      jit::Nvrtc::instance()
          .compile("oracle",
                   std::string("#define INFINITY_ __longlong_as_double(0x7ff0000000000000ll)\n") +
                       kSource,
                   device.facts().target())
          .cubin;
  return cuda::Kernel(entry, cubin, entry, /*shared_bytes=*/0);
}

template <class T>
std::vector<T> download(cuda::CUdeviceptr from, std::size_t count) {
  std::vector<T> values(count);
  driver().check(driver().cuMemcpyDtoHAsync(values.data(), from, count * sizeof(T), nullptr),
                 "download");
  driver().check(driver().cuStreamSynchronize(nullptr), "download");
  return values;
}

template <class T>
cuda::DeviceBuffer upload(const std::vector<T>& values) {
  cuda::DeviceBuffer buffer(values.size() * sizeof(T), "test data");
  driver().check(driver().cuMemcpyHtoDAsync(buffer.address(), values.data(),
                                            values.size() * sizeof(T), nullptr),
                 "upload");
  driver().check(driver().cuStreamSynchronize(nullptr), "upload");
  return buffer;
}

void* pointer(const cuda::DeviceBuffer& buffer) {
  return reinterpret_cast<void*>(buffer.address());
}

}  // namespace

DeviceTensors::DeviceTensors(const AttentionProblem& p, const cuda::Device& device)
    : problem_(p), device_(device) {
  const auto fill = [&](std::int64_t n, unsigned seed) {
    cuda::DeviceBuffer buffer(static_cast<std::size_t>(n) * 2, "a tensor");
    const cuda::Kernel kernel = helper_kernel(device, "fill_normal");
    auto address = buffer.address();
    int half = p.dtype == DType::kFloat16;
    void* arguments[] = {&address, &n, &seed, &half};
    kernel.launch(static_cast<unsigned>((n + 255) / 256), 256, nullptr, arguments);
    driver().check(driver().cuStreamSynchronize(nullptr), "filling a tensor");
    return buffer;
  };
  const Dims q_shape{p.batch, p.num_heads_q, p.seq_q, p.head_dim_qk},
      k_shape{p.batch, p.num_heads_kv, p.seq_kv, p.head_dim_qk},
      v_shape{p.batch, p.num_heads_kv, p.seq_kv, p.head_dim_v},
      o_shape{p.batch, p.num_heads_q, p.seq_q, p.head_dim_v},
      lse_shape{p.batch, p.num_heads_q, p.seq_q};
  q_ = fill(num_elements(q_shape), 1);
  k_ = fill(num_elements(k_shape), 2);
  v_ = fill(num_elements(v_shape), 3);
  out_ = cuda::DeviceBuffer(static_cast<std::size_t>(num_elements(o_shape)) * 2, "out");
  lse_ = cuda::DeviceBuffer(static_cast<std::size_t>(num_elements(lse_shape)) * 4, "lse");
  tensors_.q = {pointer(q_), p.dtype, q_shape};
  tensors_.k = {pointer(k_), p.dtype, k_shape};
  tensors_.v = {pointer(v_), p.dtype, v_shape};
  tensors_.out = {pointer(out_), p.dtype, o_shape};
  tensors_.lse = {pointer(lse_), DType::kFloat32, lse_shape};
}

void DeviceTensors::poison() const {
  driver().check(driver().cuMemsetD8Async(out_.address(), 0xff, out_.bytes(), nullptr),
                 "poisoning out");
  driver().check(driver().cuMemsetD8Async(lse_.address(), 0xff, lse_.bytes(), nullptr),
                 "poisoning lse");
}

std::vector<std::uint16_t> DeviceTensors::output() const {
  return download<std::uint16_t>(out_.address(), out_.bytes() / 2);
}

std::int64_t DeviceTensors::count_nan() const {
  const cuda::Kernel kernel = helper_kernel(device_, "count_nan");
  const cuda::DeviceBuffer count = upload(std::vector<std::uint64_t>{0});
  auto out = out_.address(), counter = count.address();
  std::int64_t n = num_elements(tensors_.out.shape);
  int half = problem_.dtype == DType::kFloat16;
  void* arguments[] = {&out, &n, &counter, &half};
  kernel.launch(1024, 256, nullptr, arguments);
  return static_cast<std::int64_t>(download<std::uint64_t>(counter, 1)[0]);
}

DeviceTensors::Errors DeviceTensors::compare(const mask::Mask& mask, int num_rows) const {
  const AttentionProblem& p = problem_;
  const std::int64_t all_rows = p.batch * p.num_heads_q * p.seq_q;
  num_rows = static_cast<int>(std::min<std::int64_t>(num_rows, all_rows));
  int words = static_cast<int>((p.seq_kv + 63) / 64);
  std::vector<std::int64_t> q_rows, kv_rows;
  std::vector<std::uint64_t> visible;
  for (int i = 0; i < num_rows; ++i) {
    // A stride coprime to tile sizes, first and last rows included.
    const std::int64_t row =
        i + 1 == num_rows
            ? all_rows - 1
            : all_rows / num_rows * i + i % 97 % std::max<std::int64_t>(1, all_rows / num_rows);
    const std::int64_t b = row / (p.num_heads_q * p.seq_q), h = row / p.seq_q % p.num_heads_q,
                       q = row % p.seq_q;
    q_rows.push_back(row);
    kv_rows.push_back((b * p.num_heads_kv + h / (p.num_heads_q / p.num_heads_kv)) * p.seq_kv);
    for (int w = 0; w < words; ++w) visible.push_back(mask.row_bits(b, h, q, w * 64));
  }
  const auto d_q = upload(q_rows), d_kv = upload(kv_rows);
  const auto d_visible = upload(visible);
  const auto dv = static_cast<std::size_t>(p.head_dim_v);
  const cuda::DeviceBuffer ref(q_rows.size() * dv * 8, "reference"),
      ref_lse(q_rows.size() * 8, "reference lse");
  const cuda::DeviceBuffer scores(q_rows.size() * static_cast<std::size_t>(p.seq_kv) * 8,
                                  "reference scores");
  const cuda::Kernel kernel = helper_kernel(device_, "reference_rows");
  auto q = q_.address(), k = k_.address(), v = v_.address(), a = d_q.address(), c = d_kv.address(),
       bits = d_visible.address(), o = ref.address(), l = ref_lse.address(), s = scores.address();
  int seq_kv = static_cast<int>(p.seq_kv), dqk = static_cast<int>(p.head_dim_qk),
      dvi = static_cast<int>(p.head_dim_v), half = p.dtype == DType::kFloat16;
  double scale = p.scale ? *p.scale : 1 / std::sqrt(static_cast<double>(p.head_dim_qk)),
         cap = p.softcap;
  void* arguments[] = {&q,   &k,   &v,     &a,   &c,    &bits, &words, &seq_kv,
                       &dqk, &dvi, &scale, &cap, &half, &o,    &l,     &s};
  kernel.launch(static_cast<unsigned>(num_rows), 256, nullptr, arguments);
  const auto expected = download<double>(ref.address(), q_rows.size() * dv);
  const auto expected_lse = download<double>(ref_lse.address(), q_rows.size());

  Errors errors;
  double difference = 0, norm = 0;
  for (int i = 0; i < num_rows; ++i) {
    const auto got = download<std::uint16_t>(
        out_.address() + static_cast<std::uint64_t>(q_rows[static_cast<std::size_t>(i)]) * dv * 2,
        dv);
    for (std::size_t d = 0; d < dv; ++d) {
      Float16 f16;
      BFloat16 bf16;
      f16.bits = bf16.bits = got[d];
      const double value = half ? static_cast<float>(f16) : static_cast<float>(bf16);
      const double want = expected[static_cast<std::size_t>(i) * dv + d];
      difference += (value - want) * (value - want);
      norm += want * want;
      if (std::isnan(value)) errors.frobenius = std::numeric_limits<double>::infinity();
    }
    const double got_lse = download<float>(
        lse_.address() + static_cast<std::uint64_t>(q_rows[static_cast<std::size_t>(i)]) * 4, 1)[0];
    const double want_lse = expected_lse[static_cast<std::size_t>(i)];
    const double gap = got_lse == want_lse ? 0 : std::abs(got_lse - want_lse);
    errors.lse =
        std::isnan(gap) ? std::numeric_limits<double>::infinity() : std::max(errors.lse, gap);
  }
  errors.frobenius =
      std::max(errors.frobenius, norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference));
  return errors;
}

}  // namespace stof::bench
