#include "backend/cuda/attention/calibrate.h"

#include <algorithm>

#include "backend/cuda/attention/candidates.h"
#include "backend/cuda/measure.h"
#include "core/check.h"
#include "core/log.h"
#include "stof/cuda_attention.h"

namespace stof::cuda {
namespace {

/// Key/value heads, up to twelve, that divide the query heads into groups that can be packed.
std::int64_t kv_heads(std::int64_t heads_q, std::int64_t pack) {
  for (std::int64_t heads = 12; heads > 1; --heads)
    if (heads_q % heads == 0 && heads_q / heads % pack == 0) return heads;
  return 1;
}

/// A problem in which every persistent block computes `items` query tiles of `tiles` key tiles.
AttentionProblem even_problem(const codegen::AttentionConfig& config, const KernelTarget& target,
                              int items, int tiles) {
  const std::int64_t pack = config.heads_per_record();
  AttentionProblem problem;
  problem.num_heads_q = static_cast<std::int64_t>(target.num_sms) * config.blocks_per_sm * pack;
  problem.num_heads_kv = kv_heads(problem.num_heads_q, pack);
  problem.seq_q = static_cast<std::int64_t>(config.query_rows()) * items;
  problem.seq_kv = static_cast<std::int64_t>(config.tile_kv) * tiles;
  problem.head_dim_qk = config.head_dim_qk;
  problem.head_dim_v = config.head_dim_v;
  problem.dtype = config.element;
  return problem;
}

/// q, k, v and out of a problem; zeros, which run as fast as other values at these lengths.
struct Operands {
  explicit Operands(const AttentionProblem& p) {
    const auto make = [&](Dims shape) {
      const auto bytes = static_cast<std::size_t>(num_elements(shape)) * 2;
      buffers.emplace_back(bytes, "calibration");
      const Driver& driver = Driver::instance();
      driver.check(driver.cuMemsetD8Async(buffers.back().address(), 0, bytes, nullptr),
                   "clearing operands");
      return TensorView(reinterpret_cast<void*>(buffers.back().address()), p.dtype, shape);
    };
    tensors.q = make({p.batch, p.num_heads_q, p.seq_q, p.head_dim_qk});
    tensors.k = make({p.batch, p.num_heads_kv, p.seq_kv, p.head_dim_qk});
    tensors.v = make({p.batch, p.num_heads_kv, p.seq_kv, p.head_dim_v});
    const TensorView out = make({p.batch, p.num_heads_q, p.seq_q, p.head_dim_v});
    tensors.out = {const_cast<void*>(out.data), p.dtype, out.shape};
    const Driver& driver = Driver::instance();
    driver.check(driver.cuStreamSynchronize(nullptr), "clearing operands");
  }
  std::vector<DeviceBuffer> buffers;
  AttentionTensors tensors;
};

double time_us(const AttentionProblem& problem, const mask::Mask& mask, const std::string& kernel,
               int device) {
  const auto plan = AttentionPlan::build(problem, mask, kernel, device);
  const Operands operands(problem);
  constexpr int kCalls = 20, kRepeats = 7;
  return measure_us([&](CUstream stream) { plan.run(operands.tensors, stream); }, kCalls, kRepeats);
}

CalibratedKernel measure_kernel(const codegen::AttentionConfig& config, const KernelTarget& target,
                                int device) {
  using Times = CalibrationTimes;
  const auto time = [&](int items, int tiles, const mask::Mask& mask) {
    return time_us(even_problem(config, target, items, tiles), mask, config.name(), device);
  };
  const mask::Mask dense = mask::all(), bits = mask::random_elements(0.5, 1);
  const Times times{time(Times::kFewItems, Times::kFewTiles, dense),
                    time(Times::kManyItems, Times::kFewTiles, dense),
                    time(Times::kFewItems, Times::kManyTiles, dense),
                    time(Times::kFewItems, Times::kManyTiles, bits)};
  return {
      calibration_name(config), config.head_dim_qk, config.query_rows() * config.heads_per_record(),
      config.warpgroups,        config.tile_kv,     config.pack_heads,
      config.ping_pong,         solve_costs(times)};
}

}  // namespace

UnitCosts solve_costs(const CalibrationTimes& times) {
  using Times = CalibrationTimes;
  const auto positive = [](double ns) { return std::max(ns, 1.0); };
  const double full = 1000 * (times.many_tiles_us - times.few_us) /
                      (Times::kFewItems * (Times::kManyTiles - Times::kFewTiles));
  const double item =
      1000 * (times.many_items_us - times.few_us) / (Times::kManyItems - Times::kFewItems) -
      Times::kFewTiles * full;
  const double launch = 1000 * times.few_us - Times::kFewItems * (item + Times::kFewTiles * full);
  const double partial =
      ((1000 * times.partial_us - launch) / Times::kFewItems - item) / Times::kManyTiles;
  return {positive(full), positive(partial), positive(item), positive(launch)};
}

Calibration calibrate(const Device& device, const std::vector<std::int64_t>& head_dims,
                      const std::function<void(std::int64_t, std::int64_t)>& progress) {
  device.use();
  const KernelTarget target{device.facts().major * 10 + device.facts().minor,
                            device.facts().num_sms};
  std::vector<codegen::AttentionConfig> configs;
  for (const std::int64_t head_dim : head_dims) {
    AttentionProblem problem;
    problem.num_heads_q = 4;
    problem.num_heads_kv = 2;
    problem.seq_q = problem.seq_kv = 1024;
    problem.head_dim_qk = problem.head_dim_v = head_dim;
    problem.dtype = DType::kBFloat16;
    for (const Candidate& candidate : enumerate_candidates(problem, mask::all(), target))
      if (candidate.passes.size() == 1) configs.push_back(candidate.passes[0].config);
  }
  Calibration calibration;
  calibration.gpu = device.facts().name;
  for (std::size_t i = 0; i < configs.size(); ++i) {
    try {
      calibration.kernels.push_back(measure_kernel(configs[i], target, device.facts().ordinal));
    } catch (const Error& error) {
      log_warn("{}: not measured: {}", configs[i].name(), error.what());
    }
    if (progress)
      progress(static_cast<std::int64_t>(i) + 1, static_cast<std::int64_t>(configs.size()));
  }
  return calibration;
}

}  // namespace stof::cuda
