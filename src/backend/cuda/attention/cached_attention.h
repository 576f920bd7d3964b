#pragma once
// Attention of new tokens over caches, batch after batch, by the decode kernel.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "backend/cuda/device.h"
#include "graph/cache_pages.h"
#include "stof/attention.h"
#include "stof/cuda_decode.h"

namespace stof::cuda {

/// What a causal query sees: the first `sinks` keys, and `left` before itself; none: all.
struct CacheReach {
  std::optional<std::int64_t> left;
  std::int64_t sinks = 0;

  bool operator==(const CacheReach&) const = default;
};

/// What the queries of a batch see, looked up in the mask row by row. Throws Unsupported naming the
/// mask where a row of it is no such thing, or rows differ.
CacheReach cache_reach(const mask::Mask& mask, const std::vector<std::int64_t>& offsets,
                       const graph::CachePages& cache, std::int64_t heads);

/// Throws Unsupported naming the mask where a query of cross-attention does not see all of its
/// sequence's keys, looked up row by row.
void check_cross_reach(const mask::Mask& mask, const std::vector<std::int64_t>& offsets,
                       const graph::CachePages& cache, std::int64_t heads);

/// A plan with the page table and the lengths of the batch at hand, which lie where they are from
/// batch to batch: a captured run serves later batches. Not safe from several threads.
class CachedBatch {
 public:
  CachedBatch(const DecodeProblem& problem, const Device& device);

  /// Copies on `stream`, on which run() follows.
  void prepare(const graph::CachePages& cache, CUstream stream);
  /// q and out [rows, heads, head_dim], k and v [cache's rows, kv_heads, head_dim] of the whole
  /// cache. Asynchronous.
  void run(const AttentionTensors& tensors, CUstream stream) const;

 private:
  DecodePlan plan_;
  DeviceBuffer page_table_, lengths_;
  std::vector<std::int32_t> pages_,
      counts_;  ///< copied last; pageable, so staged before the return
};

/// Plans by the shape of a batch. Not safe from several threads.
class CachedAttention {
 public:
  /// `cross`: keys are not the queries' own, and all are seen.
  CachedAttention(const AttentionProblem& problem, bool cross, const Device& device)
      : problem_(problem), cross_(cross), device_(device) {}

  /// The batch's plan, its pages and lengths copied on `stream`. Keys are planned for in powers of
  /// two. Throws Unsupported for sequences with different numbers of rows or more than the decode
  /// kernel takes, page sizes that it does not take, and what cache_reach() or
  /// check_cross_reach() does.
  CachedBatch& prepare(const mask::Mask& mask, const std::vector<std::int64_t>& offsets,
                       const graph::CachePages& cache, CUstream stream);
  /// Shapes that have a plan.
  std::size_t size() const { return batches_.size(); }

 private:
  /// Sequences, rows of each, most keys, page size, reach to the left (-1: all), sinks.
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                         std::int64_t>;
  AttentionProblem problem_;
  bool cross_;
  Device device_;
  std::map<Key, CachedBatch> batches_;
};

}  // namespace stof::cuda
