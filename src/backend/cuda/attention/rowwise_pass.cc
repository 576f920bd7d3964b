#include "backend/cuda/attention/rowwise_pass.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "backend/cuda/kernel_cache.h"
#include "backend/cuda/upload.h"
#include "core/check.h"

namespace stof::cuda {
namespace {

using codegen::RowwiseConfig;

/// Mirrors RowwiseParams in kernels/attention/rowwise/config.cuh.
struct KernelParams {
  const void *q, *k, *v;
  void *out, *lse;
  CUdeviceptr items, chunks, columns, bits;
  std::int64_t q_strides[3], k_strides[3], v_strides[3], out_strides[3];
  std::int32_t num_heads_q, group, seq_q, seq_kv;
  float scale, softcap;
};
static_assert(sizeof(KernelParams) == 192, "config.cuh asserts the same");

/// Bytes that an SM draws from L2 in a nanosecond, and a block's time from its start to its first
/// key and from its last to its end. Guesses until measured: an H200's L2 gives about 5.3 TB/s.
constexpr double kBytesPerNs = 40, kBlockNs = 1800, kLaunchNs = 1050, kChunkNs = 250, kWarpNs = 110;

/// More chunks than these are no short sequence and no sparse row.
constexpr std::int64_t kMostChunks = 200'000;

RowwiseConfig base_config(const AttentionProblem& problem, const KernelTarget& target) {
  RowwiseConfig config;
  config.element = problem.dtype;
  config.head_dim_qk = static_cast<int>(problem.head_dim_qk);
  config.head_dim_v = static_cast<int>(problem.head_dim_v);
  config.softcap = problem.softcap > 0;
  config.early_start = target.compute_capability >= 90;
  return config;
}

/// Many warps an item for a short wait, one for many items.
std::vector<RowwiseConfig> rowwise_configs(const AttentionProblem& problem,
                                           const KernelTarget& target) {
  const RowwiseConfig base = base_config(problem, target);
  const std::int64_t widest = std::max(problem.head_dim_qk, problem.head_dim_v);
  // Registers of a thread, and so the warps of an SM, follow from the head dimension.
  const int warps_per_sm = widest <= 64 ? 14 : widest <= 128 ? 11 : 8;
  std::vector<RowwiseConfig> configs;
  for (const auto& [warps, stages] : {std::pair{8, 2}, {4, 3}, {1, 3}}) {
    RowwiseConfig config = base;
    config.warps = warps;
    config.stages = widest <= 128 ? stages : 2;
    constexpr int kReservedBytes = 1024;  // of every block
    config.blocks_per_sm =
        std::min({std::max(1, warps_per_sm / warps), 32,
                  target.shared_per_sm() / (config.shared_bytes() + kReservedBytes)});
    if (config.blocks_per_sm >= 1) configs.push_back(config);
  }
  return configs;
}

double bytes_of(const AttentionProblem& problem, double sixteen_rows) {
  return sixteen_rows * 2 * RowwiseConfig::kRows *
         static_cast<double>(problem.head_dim_qk + problem.head_dim_v);
}

double predict_rowwise_us(const AttentionProblem& problem, const RowwiseLists& lists,
                          const RowwiseConfig& config, const KernelTarget& target) {
  const double items = static_cast<double>(lists.items.size());
  const double transfer = bytes_of(problem, items + static_cast<double>(lists.total_chunks)) /
                          kBytesPerNs / target.num_sms;
  const auto block_ns = [&](double chunks) {
    return kBlockNs + kChunkNs * std::ceil(chunks / config.warps);
  };
  const double waves =
      std::ceil(items / (static_cast<double>(target.num_sms) * config.blocks_per_sm));
  const double mean = static_cast<double>(lists.total_chunks) / std::max(items, 1.0);
  return (kLaunchNs + kWarpNs * config.warps +
          std::max({transfer + kBlockNs, waves * block_ns(mean), block_ns(lists.longest)})) /
         1000;
}

/// The keys that each 16 rows of a bitmap see, in chunks of 16.
double least_chunks(const mask::OuterBitmap& bitmap) {
  int keys = 0;
  for (std::size_t col = 0; col < 8; ++col)  // of 8x8 inner tiles
    for (std::size_t slab = 0; slab < 8; slab += 2) {
      std::uint64_t seen = bitmap[col * 8 + slab] | bitmap[col * 8 + slab + 1];
      for (const int shift : {32, 16, 8}) seen |= seen >> shift;  // all rows into the first byte
      keys += std::popcount(seen & 0xff);
    }
  return keys / 16.0;
}

/// Chunks of 16 rows and 16 keys, over all heads, that no list can do without.
double least_chunks(const AttentionProblem& problem, const mask::BlockMask& mask) {
  std::vector<double> of_bitmap;
  for (const mask::OuterBitmap& bitmap : mask.bitmaps()) of_bitmap.push_back(least_chunks(bitmap));
  std::vector<double> of_pattern;
  for (std::int64_t p = 0; p < mask.num_patterns(); ++p) {
    double sum = 0;
    for (const mask::FullRun& run : mask.pattern(p).full_runs) sum += 16.0 * (run.end - run.begin);
    for (const mask::PartialTile& tile : mask.pattern(p).partial)
      sum += of_bitmap[static_cast<std::size_t>(tile.bitmap)];
    of_pattern.push_back(sum);
  }
  double total = 0;
  for (std::int64_t b = 0; b < problem.batch; ++b)
    for (std::int64_t h = 0; h < problem.num_heads_q; ++h)
      total += of_pattern[static_cast<std::size_t>(mask.pattern_index(b, h))];
  return total;
}

void copy_strides(const char* name, const TensorView& tensor, std::int64_t (&strides)[3]) {
  bool aligned = reinterpret_cast<std::uintptr_t>(tensor.data) % 16 == 0;
  for (int i = 0; i < 3; ++i) {
    strides[i] = tensor.strides[i];
    aligned &= tensor.shape[i] == 1 || tensor.strides[i] % 8 == 0;
  }
  STOF_CHECK(aligned, kUnsupported,
             "{}: the row-wise kernel takes addresses and strides divisible by 16 bytes, got {}; "
             "make it contiguous",
             name, tensor.describe());
}

}  // namespace

std::string rowwise_infeasible(const AttentionProblem& problem, const KernelTarget& target) {
  if (target.compute_capability < 80)
    return fmt::format("needs compute capability 8.0 or later, the GPU has {}.{}",
                       target.compute_capability / 10, target.compute_capability % 10);
  const std::int64_t widest = std::max(problem.head_dim_qk, problem.head_dim_v);
  if (widest > 256)
    return fmt::format("takes head dimensions up to 256, the problem has {}", widest);
  if (target.alignment % 16 != 0)
    return fmt::format("needs operands aligned to 16 bytes, the plan is for {}", target.alignment);
  const bool position_bias = problem.position_bias.num_buckets > 0;
  const bool score_mod = !problem.score_mod.empty();
  if (problem.alibi || problem.bias || position_bias || score_mod || problem.sink)
    return fmt::format("has no{}{}{}{}{}", problem.alibi ? " alibi" : "",
                       problem.bias ? " bias" : "", position_bias ? " position_bias" : "",
                       score_mod ? " score_mod" : "", problem.sink ? " sink" : "");
  return "";
}

std::vector<RowwisePass> rowwise_passes(const AttentionProblem& problem,
                                        const mask::BlockMask& mask, const KernelTarget& target,
                                        double best_us) {
  std::vector<RowwisePass> passes;
  if (!rowwise_infeasible(problem, target).empty()) return passes;
  const double least_ns =
      bytes_of(problem, least_chunks(problem, mask)) / kBytesPerNs / target.num_sms;
  if (least_ns > best_us * 1000) return passes;
  auto built = build_rowwise_lists(problem, mask, kMostChunks);
  if (!built) return passes;
  const auto lists = std::make_shared<const RowwiseLists>(std::move(*built));
  for (const RowwiseConfig& config : rowwise_configs(problem, target))
    passes.push_back({config, lists, predict_rowwise_us(problem, *lists, config, target)});
  return passes;
}

DeviceRowwise::DeviceRowwise(const RowwisePass& pass, const Device& device, PlanFacts* facts)
    : config_(pass.config),
      kernel_(&loaded_kernel({config_.name(), codegen::emit_rowwise(config_), "rowwise",
                              config_.shared_bytes(), config_.early_start},
                             device)),
      num_items_(static_cast<std::int64_t>(pass.lists->items.size())),
      items_(upload(pass.lists->items, "the plan's items")),
      chunks_(upload(pass.lists->chunks, "the plan's chunks")),
      columns_(upload(pass.lists->columns, "the plan's columns")),
      bits_(upload(pass.lists->bits, "the plan's bits")) {
  const Driver& driver = Driver::instance();
  driver.check(driver.cuStreamSynchronize(nullptr), "uploading the plan");
  facts->device_bytes += pass.lists->bytes();
  facts->tiles += pass.lists->total_chunks;
}

void DeviceRowwise::launch(const AttentionProblem& p, const AttentionTensors& t,
                           CUstream stream) const {
  KernelParams params{};
  params.q = t.q.data, params.k = t.k.data, params.v = t.v.data;
  params.out = t.out.data, params.lse = t.lse.data;
  params.items = items_.address(), params.chunks = chunks_.address();
  params.columns = columns_.address(), params.bits = bits_.address();
  copy_strides("q", t.q, params.q_strides);
  copy_strides("k", t.k, params.k_strides);
  copy_strides("v", t.v, params.v_strides);
  copy_strides("out", t.out, params.out_strides);
  params.num_heads_q = static_cast<std::int32_t>(p.num_heads_q);
  params.group = static_cast<std::int32_t>(p.num_heads_q / p.num_heads_kv);
  params.seq_q = static_cast<std::int32_t>(p.seq_q);
  params.seq_kv = static_cast<std::int32_t>(p.seq_kv);
  params.scale = p.scale.value_or(1.0f / std::sqrt(static_cast<float>(p.head_dim_qk)));
  params.softcap = p.softcap;
  void* arguments[] = {&params};
  kernel_->launch(static_cast<unsigned>(num_items_), static_cast<unsigned>(config_.threads()),
                  stream, arguments);
}

}  // namespace stof::cuda
