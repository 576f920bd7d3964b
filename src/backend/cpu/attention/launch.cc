#include "backend/cpu/attention/launch.h"

#include <omp.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "backend/cpu/attention/launch_operands.h"
#include "backend/cpu/attention/merge.h"
#include "core/check.h"
#include "core/threads.h"

namespace stof::cpu {
namespace {

std::int64_t rows_of(const plan::MaskPlan& plan, std::int64_t q_tile) {
  return std::min<std::int64_t>(plan.config.tile_q, plan.shape.seq_q - q_tile * plan.config.tile_q);
}

/// One item of one sequence; it stands for as many jobs as its pattern has heads.
struct Segment {
  std::size_t sequence;
  const plan::WorkItem* item;
  std::int64_t first_job;
  std::int64_t part_offset;  ///< of a split item: its first head's place among the parts
};

/// Everything a launch decides before its threads start.
struct Launch {
  const std::vector<LaunchSequence>& sequences;
  std::vector<KernelParams> params;  ///< [sequences]
  std::vector<Segment> queue;        ///< dearest first; equal costs keep their order
  std::int64_t num_jobs = 0;
  std::vector<float> parts;  ///< unmerged results of split items

  const LaunchSequence& sequence(const Segment& segment) const {
    return sequences[segment.sequence];
  }
  const std::vector<BatchHead>& heads(const Segment& segment) const {
    return sequence(segment).plan->heads_of[static_cast<std::size_t>(segment.item->pattern)];
  }
  std::int64_t result_floats(const Segment& segment) const {
    const KernelParams& p = params[segment.sequence];
    return p.tile_q * (p.head_dim_v + 1);
  }
  KernelResult result_at(const Segment& segment, float* memory) const {
    const KernelParams& p = params[segment.sequence];
    return {memory, memory + p.tile_q * p.head_dim_v};
  }
};

Launch prepare(const std::vector<LaunchSequence>& sequences) {
  Launch launch{sequences, {}, {}, 0, {}};
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    launch.params.push_back(params_of(*sequences[i].plan));
    for (const plan::WorkItem& item : sequences[i].plan->mask_plan.items)
      launch.queue.push_back({i, &item, 0, 0});
  }
  if (sequences.size() > 1)
    std::stable_sort(
        launch.queue.begin(), launch.queue.end(),
        [](const Segment& a, const Segment& b) { return a.item->cost > b.item->cost; });
  std::int64_t part_floats = 0;
  for (Segment& segment : launch.queue) {
    segment.first_job = launch.num_jobs;
    segment.part_offset = part_floats;
    const auto heads = static_cast<std::int64_t>(launch.heads(segment).size());
    launch.num_jobs += heads;
    if (segment.item->num_splits > 1) part_floats += heads * launch.result_floats(segment);
  }
  launch.parts.resize(static_cast<std::size_t>(part_floats));
  return launch;
}

/// A thread's memory: kernel scratch and one result.
std::int64_t thread_floats(const Launch& launch, const AttentionKernels& kernels) {
  std::int64_t floats = 0;
  for (const KernelParams& p : launch.params)
    floats = std::max(floats, kernels.scratch_floats(p) + p.tile_q * (p.head_dim_v + 1));
  constexpr std::int64_t kPageFloats = 1024;  // threads share no page
  return (floats + kPageFloats - 1) / kPageFloats * kPageFloats;
}

void run_job(Launch& launch, const AttentionKernels& kernels, std::int64_t job, float* memory) {
  const auto after = std::upper_bound(
      launch.queue.begin(), launch.queue.end(), job,
      [](std::int64_t number, const Segment& segment) { return number < segment.first_job; });
  const Segment& segment = *(after - 1);
  const LaunchSequence& sequence = launch.sequence(segment);
  const plan::MaskPlan& plan = sequence.plan->mask_plan;
  const plan::WorkItem& item = *segment.item;
  const BatchHead place = launch.heads(segment)[static_cast<std::size_t>(job - segment.first_job)];
  const bool split = item.num_splits > 1;

  KernelItem tiles;
  tiles.q_begin = std::int64_t{item.q_tile} * plan.config.tile_q;
  tiles.partial = plan.partial.data() + item.partial_begin;
  tiles.num_partial = item.partial_end - item.partial_begin;
  tiles.runs = plan.runs.data() + item.run_begin;
  tiles.num_runs = item.run_end - item.run_begin;
  const std::int64_t floats = launch.result_floats(segment);
  const KernelResult result = launch.result_at(
      segment, split
                   ? launch.parts.data() + segment.part_offset + (job - segment.first_job) * floats
                   : memory);
  KernelHead head = head_of(sequence, place, !split);
  const ScoreHead score_head = score_head_of(sequence, place);
  head.score_head = &score_head;
  kernels.run_item(launch.params[segment.sequence], head, tiles, result,
                   memory + (floats + 15) / 16 * 16);
  if (!split) store_result(sequence, place, tiles.q_begin, rows_of(plan, item.q_tile), result);
}

/// Adds state b to state a, row by row.
void merge_results(const KernelResult& a, const KernelResult& b, std::int64_t rows,
                   std::int64_t dim) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const MergeWeights weights = merge_weights(a.lse[row], b.lse[row]);
    a.lse[row] = weights.lse;
    for (std::int64_t d = 0; d < dim; ++d)
      a.out[row * dim + d] = weights.a * a.out[row * dim + d] + weights.b * b.out[row * dim + d];
  }
}

/// The sink takes its share of every row that sees something.
void add_sink(const KernelResult& result, float sink, std::int64_t rows, std::int64_t dim) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const float lse = result.lse[row];
    if (lse == -std::numeric_limits<float>::infinity()) continue;
    const MergeWeights weights = merge_weights(lse, sink);
    result.lse[row] = weights.lse;
    for (std::int64_t d = 0; d < dim; ++d) result.out[row * dim + d] *= weights.a;
  }
}

/// Merges the parts of every split item in the order of their splits.
void merge_splits(Launch& launch, int num_threads) {
  std::vector<const Segment*> parts;
  for (const Segment& segment : launch.queue)
    if (segment.item->num_splits > 1) parts.push_back(&segment);
  std::sort(parts.begin(), parts.end(), [](const Segment* a, const Segment* b) {
    return std::tuple(a->sequence, a->item->pattern, a->item->q_tile, a->item->split) <
           std::tuple(b->sequence, b->item->pattern, b->item->q_tile, b->item->split);
  });
  const auto num_parts = static_cast<std::int64_t>(parts.size());
#pragma omp parallel for schedule(dynamic) num_threads(num_threads)
  for (std::int64_t first = 0; first < num_parts; ++first) {
    const Segment& segment = *parts[static_cast<std::size_t>(first)];
    if (segment.item->split != 0) continue;
    const LaunchSequence& sequence = launch.sequence(segment);
    const plan::MaskPlan& plan = sequence.plan->mask_plan;
    const std::int64_t rows = rows_of(plan, segment.item->q_tile);
    const std::int64_t dim = sequence.plan->problem.head_dim_v;
    const std::int64_t floats = launch.result_floats(segment);
    std::int64_t head_offset = 0;
    for (const BatchHead place : launch.heads(segment)) {
      const auto part = [&](std::int64_t split) {
        const Segment& other = *parts[static_cast<std::size_t>(first + split)];
        return launch.result_at(other, launch.parts.data() + other.part_offset + head_offset);
      };
      const KernelResult whole = part(0);
      for (std::int64_t split = 1; split < segment.item->num_splits; ++split)
        merge_results(whole, part(split), rows, dim);
      const KernelHead head = head_of(sequence, place, true);
      if (head.sink != nullptr) add_sink(whole, *head.sink, rows, dim);
      store_result(sequence, place, std::int64_t{segment.item->q_tile} * plan.config.tile_q, rows,
                   whole);
      head_offset += floats;
    }
  }
}

}  // namespace

void launch_attention(const std::vector<LaunchSequence>& sequences, const RunOptions& options,
                      CpuIsa isa) {
  check_num_threads(options.num_threads, "run option num_threads");
  const AttentionKernels& kernels = attention_kernels(isa);
  Launch launch = prepare(sequences);
  if (launch.num_jobs == 0) return;
  const int num_threads = static_cast<int>(std::min<std::int64_t>(
      options.num_threads > 0 ? options.num_threads : omp_get_max_threads(), launch.num_jobs));
  const std::int64_t floats = thread_floats(launch, kernels);
  Tensor memory(DType::kFloat32, {num_threads, floats});
  float* const scratch = memory.as<float>().data();
#pragma omp parallel for schedule(dynamic) num_threads(num_threads)
  for (std::int64_t job = 0; job < launch.num_jobs; ++job)
    run_job(launch, kernels, job, scratch + omp_get_thread_num() * floats);
  if (!launch.parts.empty()) merge_splits(launch, num_threads);
}

}  // namespace stof::cpu
