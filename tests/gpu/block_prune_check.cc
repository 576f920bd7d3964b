// Checks block_topk on the GPU: its lists against the CPU's pruner, block by block, and attention
// over them against the oracle under the pruner's mask.
//   block_prune_gpu_check
// Exits 1 with failures. Needs a GPU of compute capability 8.0 or later.

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/gpu/oracle.h"
#include "stof/cuda_prune.h"
#include "stof/dtype.h"
#include "stof/error.h"

namespace {

using namespace stof;

const cuda::Driver& driver() { return cuda::Driver::instance(); }

template <class T>
std::vector<T> download(const void* address, std::int64_t count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  driver().check(
      driver().cuMemcpyDtoHAsync(values.data(), reinterpret_cast<cuda::CUdeviceptr>(address),
                                 values.size() * sizeof(T), nullptr),
      "reading back");
  driver().check(driver().cuStreamSynchronize(nullptr), "reading back");
  return values;
}

std::vector<float> values_of(const TensorView& tensor) {
  std::vector<float> values;
  for (const std::uint16_t bits :
       download<std::uint16_t>(tensor.data, num_elements(tensor.shape))) {
    Float16 f16;
    BFloat16 bf16;
    f16.bits = bf16.bits = bits;
    values.push_back(tensor.dtype == DType::kFloat16 ? static_cast<float>(f16)
                                                     : static_cast<float>(bf16));
  }
  return values;
}

struct Case {
  std::int64_t batch, heads_q, heads_kv, seq_q, seq_kv, head_dim;
  DType dtype;
  const char* settings;
  bool causal, bottom_right;
};

constexpr Case kCases[] = {
    {2, 4, 2, 1000, 1000, 64, DType::kBFloat16, "block_topk(0.3)", false, false},
    {1, 4, 1, 1024, 1024, 128, DType::kFloat16, "block_topk(0.3)", true, false},
    {1, 4, 4, 300, 2028, 128, DType::kBFloat16, "block_topk(0.2, pool=max, sinks=2)", true, true},
    {2, 2, 2, 640, 640, 128, DType::kBFloat16, "block_topk(0.5, block=128)", true, false},
    {1, 2, 2, 777, 1500, 80, DType::kFloat16, "block_topk(0.4, sinks=0, local=0)", false, false},
    {1, 8, 2, 4096, 4096, 128, DType::kBFloat16, "block_topk(0.1, local=2)", true, false},
};

bool check(const Case& c, const cuda::Device& device) {
  AttentionProblem p;
  p.batch = c.batch, p.num_heads_q = c.heads_q, p.num_heads_kv = c.heads_kv;
  p.seq_q = c.seq_q, p.seq_kv = c.seq_kv;
  p.head_dim_qk = p.head_dim_v = c.head_dim;
  p.dtype = c.dtype;
  p.return_lse = true;
  if (c.bottom_right) p.alignment = mask::Alignment::kBottomRight;
  const bench::DeviceTensors data(p, device);
  const std::vector<float> q = values_of(data.tensors().q), k = values_of(data.tensors().k);
  const mask::Mask base = c.causal ? mask::causal() : mask::all();
  const auto pruner = mask::Pruner::parse(c.settings);
  const mask::PruneInput input{{q.data(), DType::kFloat32, data.tensors().q.shape},
                               {k.data(), DType::kFloat32, data.tensors().k.shape},
                               0,
                               base,
                               p.alignment};
  const mask::PrunedMask expected = mask::prune(input, pruner);

  const auto gpu = cuda::BlockPruner::build(p, pruner.heads[0], base);
  cuda::BlockListShape shape = gpu.shape();
  shape.causal = c.causal;
  const auto plan = cuda::BlockListPlan::build(p, shape);
  const cuda::BlockLists lists = gpu.run(data.tensors().q, data.tensors().k, nullptr);
  const auto counts = download<std::int32_t>(lists.counts.data, num_elements(lists.counts.shape));
  const auto ids = download<std::int32_t>(lists.ids.data, num_elements(lists.ids.shape));
  const std::int64_t rows = lists.ids.shape[2], width = lists.ids.shape[3];
  const std::int64_t side = pruner.heads[0].block;
  std::int64_t wrong = 0, first_wrong = -1, kept = 0;
  for (std::int64_t row = 0; row < p.batch * p.num_heads_q * rows; ++row) {
    const std::int64_t b = row / (p.num_heads_q * rows), h = row / rows % p.num_heads_q;
    const std::int64_t block = row % rows, last = std::min((block + 1) * side, p.seq_q) - 1;
    std::vector<std::int32_t> want;
    for (std::int64_t col = 0; col * side < p.seq_kv; ++col)
      if (expected.mask.visible(b, h, last, col * side))  // the corner that a causal block shows
        want.push_back(static_cast<std::int32_t>(col));
    const auto count = counts[static_cast<std::size_t>(block)];
    const auto begin = ids.begin() + row * width;
    kept += count;
    if (std::vector<std::int32_t>(begin, begin + count) == want) continue;
    wrong += 1;
    if (first_wrong < 0) first_wrong = row;
  }
  plan.update(lists, nullptr);
  data.poison();
  plan.run(data.tensors(), nullptr);
  plan.check(nullptr);
  const auto nan = data.count_nan();
  const auto errors = data.compare(expected.mask, 200);
  const double limit = p.dtype == DType::kFloat16 ? 1e-3 : 5e-3;
  const bool good = wrong == 0 && nan == 0 && errors.frobenius < limit && errors.lse < 1e-3;
  std::printf(
      "%s %-40s %s: %ld blocks, %ld rows differ (first %ld); error %.2e lse %.2e nan %ld, %s\n",
      good ? "ok " : "BAD", c.settings, p.describe().c_str(), kept, wrong, first_wrong,
      errors.frobenius, errors.lse, nan, plan.facts().kernel.c_str());
  return good;
}

}  // namespace

int main() try {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  const cuda::Device device = cuda::Device::open();
  int passed = 0, failed = 0;
  for (const Case& c : kCases) {
    bool good = false;
    try {
      good = check(c, device);
    } catch (const Error& error) {
      std::printf("BAD %s: %s\n", c.settings, error.what());
    }
    (good ? passed : failed) += 1;
  }
  std::printf("%d passed, %d failed on %s\n", passed, failed, device.facts().name.c_str());
  return failed == 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::printf("BAD: %s\n", error.what());
  return 1;
}
