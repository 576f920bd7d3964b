// Times plans that are made on the GPU or in grid order, and the attention that runs on them.
//   bench_gpu_plans [CASE...] [--json FILE]

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <random>

#include "backend/cuda/measure.h"
#include "backend/cuda/upload.h"
#include "bench/gpu/arguments.h"
#include "bench/gpu/oracle.h"
#include "stof/cuda_block_lists.h"
#include "stof/error.h"

namespace {

using namespace stof;

const cuda::Driver& driver() { return cuda::Driver::instance(); }

/// A video diffusion model's attention: every head of every query block keeps the same number of
/// key blocks, chosen anew for each call.
struct ListCase {
  const char* name;
  std::int64_t heads, heads_kv, seq, block;  ///< one list a key/value head
  double kept;
};
constexpr ListCase kListCases[] = {
    {"lists_64_20", 12, 12, 32760, 64, 0.2},     {"lists_128_20", 12, 12, 32760, 128, 0.2},
    {"lists_64_5", 12, 12, 32760, 64, 0.05},     {"lists_128_50", 12, 12, 32760, 128, 0.5},
    {"lists_64_10_40h", 40, 40, 32760, 64, 0.1}, {"lists_64_10_75600", 12, 12, 75600, 64, 0.1},
    {"lists_64_20_gqa", 32, 8, 16384, 64, 0.2}};

struct Lists {
  std::int64_t kept;
  std::vector<std::int32_t> counts, ids;
  double visible_pairs = 0;
};

Lists random_lists(const ListCase& c) {
  const std::int64_t blocks = (c.seq + c.block - 1) / c.block;
  Lists lists{std::max<std::int64_t>(1, std::lround(c.kept * static_cast<double>(blocks))), {}, {}};
  std::mt19937_64 random(11);
  const auto rows_of = [&](std::int64_t block) {
    return static_cast<double>(std::min(c.block, c.seq - block * c.block));
  };
  std::vector<std::int32_t> all(static_cast<std::size_t>(blocks));
  std::iota(all.begin(), all.end(), 0);
  for (std::int64_t row = 0; row < c.heads_kv * blocks; ++row) {
    std::shuffle(all.begin(), all.end(), random);  // as a top-k leaves them: in no order
    lists.counts.push_back(static_cast<std::int32_t>(lists.kept));
    lists.ids.insert(lists.ids.end(), all.begin(), all.begin() + lists.kept);
    for (std::int64_t i = 0; i < lists.kept; ++i)
      lists.visible_pairs += static_cast<double>(c.heads / c.heads_kv) * rows_of(row % blocks) *
                             rows_of(all[static_cast<std::size_t>(i)]);
  }
  return lists;
}

mask::Mask mask_of(const ListCase& c, const Lists& lists) {
  mask::BlockList list;
  list.block_q = list.block_kv = c.block;
  const std::int64_t blocks = (c.seq + c.block - 1) / c.block;
  for (std::int64_t h = 0; h < c.heads; ++h) {
    auto id = lists.ids.begin() + h / (c.heads / c.heads_kv) * blocks * lists.kept;
    list.heads.emplace_back();
    for (std::int64_t row = 0; row < blocks; ++row, id += lists.kept)
      list.heads.back().emplace_back(id, id + lists.kept);
  }
  return mask::block_list(std::move(list));
}

void run_lists(const cuda::Device& device, const ListCase& c, std::FILE* json) {
  AttentionProblem p;
  p.num_heads_q = c.heads, p.num_heads_kv = c.heads_kv;
  p.seq_q = p.seq_kv = c.seq;
  p.head_dim_qk = p.head_dim_v = 128;
  p.dtype = DType::kBFloat16;
  p.return_lse = true;
  const Lists lists = random_lists(c);
  const cuda::DeviceBuffer counts = cuda::upload(lists.counts, "counts");
  const cuda::DeviceBuffer ids = cuda::upload(lists.ids, "ids");
  driver().check(driver().cuStreamSynchronize(nullptr), "upload");
  cuda::BlockListShape shape;
  shape.block_q = shape.block_kv = c.block;
  shape.max_blocks = lists.kept;
  shape.expected_share = c.kept;
  shape.per_kv_head = true;
  const std::int64_t blocks = shape.num_q_blocks(p);
  const cuda::BlockLists views{
      {cuda::device_pointer(counts.address()), DType::kInt32, {1, c.heads_kv, blocks}},
      {cuda::device_pointer(ids.address()), DType::kInt32, {1, c.heads_kv, blocks, lists.kept}}};
  const bench::DeviceTensors data(p, device);
  const auto bound = mask_of(c, lists).bind({1, c.heads, c.seq, c.seq});
  for (const cuda::CandidateFacts& candidate : cuda::BlockListPlan::candidates(
           p, shape,
           {device.facts().major * 10 + device.facts().minor, device.facts().num_sms, 16})) {
    if (!candidate.feasible) continue;
    const auto plan = cuda::BlockListPlan::build(p, shape, candidate.name);
    plan.update(views, nullptr);
    plan.check(nullptr);
    data.poison();
    plan.run(data.tensors(), nullptr);
    const auto nan = data.count_nan();
    const auto errors = data.compare(bound, 48);
    const bool good = nan == 0 && errors.frobenius < 5e-3 && errors.lse < 1e-3;
    // First what takes longest: clocks fall under load, and all three shall see the same.
    const double both_us = cuda::measure_us(
        [&](cuda::CUstream stream) {
          plan.update(views, stream);
          plan.run(data.tensors(), stream);
        },
        4, 7);
    const double run_us =
        cuda::measure_us([&](cuda::CUstream stream) { plan.run(data.tensors(), stream); }, 4, 7);
    const double update_us =
        cuda::measure_us([&](cuda::CUstream stream) { plan.update(views, stream); }, 20, 9);
    const double tflops = 4 * lists.visible_pairs * 128 / run_us * 1e-6;
    std::printf(
        "%-16s %s err %.1e nan %ld update %6.1f us run %8.1f us (%4.2f %%) both %8.1f us %5.0f "
        "TFLOP/s predicted %7.0f us %s %.1f MB\n",
        c.name, good ? "ok " : "BAD", errors.frobenius, nan, update_us, run_us,
        100 * update_us / run_us, both_us, tflops, candidate.predicted_us, candidate.name.c_str(),
        static_cast<double>(plan.facts().device_bytes) * 1e-6);
    std::fflush(stdout);
    if (json != nullptr)
      std::fprintf(
          json,
          "{\"gpu\":\"%s\",\"case\":\"%s\",\"B\":1,\"H\":%ld,\"Hk\":%ld,\"S\":%ld,\"D\":128,"
          "\"block\":%ld,\"kept\":%.3f,\"update_us\":%.2f,\"run_us\":%.2f,\"share\":%.4f,"
          "\"both_us\":%.2f,\"tflops_visible\":%.1f,\"predicted_us\":%.1f,"
          "\"kernel\":\"%s\",\"good\":%s}\n",
          device.facts().name.c_str(), c.name, c.heads, c.heads_kv, c.seq, c.block, c.kept,
          update_us, run_us, update_us / run_us, both_us, tflops, candidate.predicted_us,
          candidate.name.c_str(), good ? "true" : "false");
  }
}

/// A boolean tensor of 16384 x 16384 that all heads share.
struct DenseCase {
  const char* name;
  bool random;  ///< a tenth of all pairs; else causal
};
constexpr DenseCase kDenseCases[] = {{"dense_16384_causal", false}, {"dense_16384_random", true}};

void run_dense(const cuda::Device& device, const DenseCase& c, std::FILE* json) {
  AttentionProblem p;
  p.num_heads_q = 32, p.num_heads_kv = 8;
  p.seq_q = p.seq_kv = 16384;
  p.head_dim_qk = p.head_dim_v = 128;
  p.dtype = DType::kBFloat16;
  p.return_lse = true;
  const auto size = static_cast<std::size_t>(p.seq_q);
  std::vector<std::uint8_t> visible(size * size, 0);
  std::mt19937_64 random(5);
  for (std::size_t row = 0; row < size; ++row)
    for (std::size_t key = 0; key < size; ++key)
      visible[row * size + key] = c.random ? random() % 10 == 0 : key <= row;
  const cuda::DeviceBuffer tensor = cuda::upload(visible, "a mask");
  driver().check(driver().cuStreamSynchronize(nullptr), "upload");
  const TensorView view{cuda::device_pointer(tensor.address()), DType::kBool, {p.seq_q, p.seq_kv}};
  std::vector<double> times;
  for (int i = 0; i < 8; ++i) {  // the first finds or compiles the kernels
    const auto plan = cuda::AttentionPlan::build_dense(p, view, nullptr);
    if (i > 0) times.push_back(plan.facts().build_ms);
  }
  std::sort(times.begin(), times.end());
  const double build_ms = times[times.size() / 2];
  const auto plan = cuda::AttentionPlan::build_dense(p, view, nullptr);
  const bench::DeviceTensors data(p, device);
  data.poison();
  plan.run(data.tensors(), nullptr);
  const auto nan = data.count_nan();
  const mask::Mask bound = mask::dense({visible.data(), DType::kBool, {p.seq_q, p.seq_kv}})
                               .bind({1, p.num_heads_q, p.seq_q, p.seq_kv});
  const auto errors = data.compare(bound, 48);
  const bool good = nan == 0 && errors.frobenius < 5e-3 && errors.lse < 1e-3;
  const double run_us =
      cuda::measure_us([&](cuda::CUstream stream) { plan.run(data.tensors(), stream); }, 2, 5);
  std::printf("%-20s %s err %.1e nan %ld build %.3f ms (%.3f to %.3f) run %.1f us %s %.1f MB\n",
              c.name, good ? "ok " : "BAD", errors.frobenius, nan, build_ms, times.front(),
              times.back(), run_us, plan.facts().kernel.c_str(),
              static_cast<double>(plan.facts().device_bytes) * 1e-6);
  std::fflush(stdout);
  if (json != nullptr)
    std::fprintf(json,
                 "{\"gpu\":\"%s\",\"case\":\"%s\",\"B\":1,\"H\":32,\"Hk\":8,\"S\":16384,"
                 "\"D\":128,\"build_ms\":%.3f,\"run_us\":%.2f,\"kernel\":\"%s\",\"good\":%s}\n",
                 device.facts().name.c_str(), c.name, build_ms, run_us, plan.facts().kernel.c_str(),
                 good ? "true" : "false");
}

/// A video diffusion model's neighbourhood attention over frames x rows x columns of patches.
struct GridCase {
  const char* name;
  std::vector<std::int64_t> grid, kernel;
  std::int64_t heads;
};
const GridCase kGridCases[] = {{"neighbourhood_21x30x52", {21, 30, 52}, {7, 14, 14}, 12}};

/// The cheapest prediction in natural order, and every candidate in grid order.
void run_grid(const cuda::Device& device, const GridCase& c, std::FILE* json) {
  AttentionProblem p;
  p.num_heads_q = p.num_heads_kv = c.heads;
  p.seq_q = 1;
  double visible = 1;
  for (std::size_t d = 0; d < c.grid.size(); ++d) {
    p.seq_q *= c.grid[d];
    visible *= static_cast<double>(std::min(c.kernel[d], c.grid[d]));
  }
  p.seq_kv = p.seq_q;
  p.head_dim_qk = p.head_dim_v = 128;
  p.dtype = DType::kBFloat16;
  p.return_lse = true;
  const mask::Mask mask = mask::neighbourhood({c.grid, c.kernel, {}, {}, {}});
  const mask::Mask bound = mask.bind({1, c.heads, p.seq_q, p.seq_q});
  const bench::DeviceTensors data(p, device);
  bool natural_seen = false;
  for (const cuda::CandidateFacts& candidate : cuda::AttentionPlan::candidates(
           p, mask, {device.facts().major * 10 + device.facts().minor, device.facts().num_sms})) {
    const bool natural = candidate.name.find("_grid ") == std::string::npos;
    if (!candidate.feasible || !candidate.name.starts_with("sm90") || (natural && natural_seen))
      continue;
    natural_seen |= natural;
    (void)cuda::AttentionPlan::build(p, mask, candidate.name);  // finds or compiles the kernel
    const auto plan = cuda::AttentionPlan::build(p, mask, candidate.name);
    data.poison();
    plan.run(data.tensors(), nullptr);
    const auto nan = data.count_nan();
    const auto errors = data.compare(bound, 48);
    const bool good = nan == 0 && errors.frobenius < 5e-3 && errors.lse < 1e-3;
    const double run_us =
        cuda::measure_us([&](cuda::CUstream stream) { plan.run(data.tensors(), stream); }, 4, 7);
    const double tflops =
        4 * visible * static_cast<double>(p.seq_q * c.heads) * 128 / run_us * 1e-6;
    std::printf(
        "%-22s %s err %.1e nan %ld plan %.2f ms run %8.1f us %4.0f visible TFLOP/s predicted %7.0f "
        "us %s %.1f MB\n",
        c.name, good ? "ok " : "BAD", errors.frobenius, nan, plan.facts().build_ms, run_us, tflops,
        candidate.predicted_us, candidate.name.c_str(),
        static_cast<double>(plan.facts().device_bytes) * 1e-6);
    std::fflush(stdout);
    if (json != nullptr)
      std::fprintf(json,
                   "{\"gpu\":\"%s\",\"case\":\"%s\",\"B\":1,\"H\":%ld,\"S\":%ld,\"D\":128,"
                   "\"build_ms\":%.3f,\"run_us\":%.2f,\"tflops_visible\":%.1f,"
                   "\"predicted_us\":%.1f,\"kernel\":\"%s\",\"good\":%s}\n",
                   device.facts().name.c_str(), c.name, c.heads, p.seq_q, plan.facts().build_ms,
                   run_us, tflops, candidate.predicted_us, candidate.name.c_str(),
                   good ? "true" : "false");
  }
}

}  // namespace

int main(int argc, char** argv) try {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // nothing is lost when a check ends the program
  const bench::Arguments arguments(argc, argv);
  std::vector<std::string> names;
  for (const auto& c : kListCases) names.emplace_back(c.name);
  for (const auto& c : kDenseCases) names.emplace_back(c.name);
  for (const auto& c : kGridCases) names.emplace_back(c.name);
  arguments.expect_names(names);
  const cuda::Device device = cuda::Device::open();
  int failed = 0;
  const auto run = [&](const auto& cases, const auto& run_case) {
    for (const auto& c : cases) {
      if (!arguments.wants(c.name)) continue;
      try {
        run_case(device, c, arguments.json());
      } catch (const Error& failure) {
        std::printf("BAD %s: %s\n", c.name, failure.what());
        ++failed;
      }
    }
  };
  run(kListCases, run_lists);
  run(kDenseCases, run_dense);
  run(kGridCases, run_grid);
  return failed > 0;
} catch (const std::exception& error) {
  return stof::bench::give_up(error);
}
