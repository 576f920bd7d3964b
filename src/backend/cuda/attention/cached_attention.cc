#include "backend/cuda/attention/cached_attention.h"

#include <algorithm>
#include <bit>

#include "backend/cuda/driver.h"
#include "core/bits.h"
#include "core/check.h"

namespace stof::cuda {

CacheReach cache_reach(const mask::Mask& mask, const std::vector<std::int64_t>& offsets,
                       const graph::CachePages& cache, std::int64_t heads) {
  const auto refuse = [&](const std::string& why) {
    throw_error(
        ErrorCode::kUnsupported,
        "attention over a cache on a GPU: mask {}: expected one that shows each query itself, "
        "a number of keys right before it and the first few, all sequences and heads alike: "
        "{}",
        mask.describe(), why);
  };
  if (mask.batch_extent() != 1 || mask.head_extent() != 1)
    refuse("it differs between sequences or heads");
  std::optional<CacheReach> reach;
  std::vector<std::int64_t> whole;  // positions of queries that see all keys up to their own
  for (std::size_t i = 0; i < cache.lengths.size(); ++i) {
    const std::int64_t rows = offsets[i + 1] - offsets[i], length = cache.lengths[i];
    const mask::Mask bound = mask.bind({1, heads, rows, length}, mask::Alignment::kBottomRight);
    for (std::int64_t q = 0; q < rows; ++q) {
      const std::int64_t position = length - rows + q;
      const std::vector<std::int64_t> keys = bound.visible_keys(0, 0, q, length);
      const std::string row = fmt::format("the query at {}", position);
      if (keys.empty() || keys.back() != position) refuse(row + " does not see itself last");
      std::size_t first = keys.size() - 1;
      while (first > 0 && keys[first - 1] == keys[first] - 1) --first;
      if (keys[first] == 0) {
        whole.push_back(position);
        continue;
      }
      const CacheReach here{position - keys[first], static_cast<std::int64_t>(first)};
      if (first > 0 && keys[first - 1] != here.sinks - 1) refuse(row + " sees keys in between");
      if (reach && !(*reach == here)) refuse(row + " sees other numbers of keys");
      reach = here;
    }
  }
  if (!reach) return {};
  for (const std::int64_t position : whole)
    if (position - *reach->left > reach->sinks)
      refuse(fmt::format("the query at {} sees other numbers of keys", position));
  return *reach;
}

void check_cross_reach(const mask::Mask& mask, const std::vector<std::int64_t>& offsets,
                       const graph::CachePages& cache, std::int64_t heads) {
  if (mask.fingerprint() == mask::all().fingerprint()) return;
  STOF_CHECK(mask.batch_extent() == 1 && mask.head_extent() == 1, kUnsupported,
             "cross-attention on a GPU: mask {}: expected one for all sequences and heads",
             mask.describe());
  for (std::size_t i = 0; i < cache.lengths.size(); ++i) {
    const std::int64_t rows = offsets[i + 1] - offsets[i], length = cache.lengths[i];
    const mask::Mask bound = mask.bind({1, heads, rows, length}, mask::Alignment::kTopLeft);
    for (std::int64_t q = 0; q < rows; ++q) {
      const auto seen = static_cast<std::int64_t>(bound.visible_keys(0, 0, q, length).size());
      STOF_CHECK(seen == length, kUnsupported,
                 "cross-attention on a GPU: mask {}: expected one that shows all keys, got {} of "
                 "{} for query {}",
                 mask.describe(), seen, length, q);
    }
  }
}

CachedBatch::CachedBatch(const DecodeProblem& problem, const Device& device)
    : plan_(DecodePlan::build(problem, device.facts().ordinal)),
      page_table_(static_cast<std::size_t>(problem.batch * problem.max_seq_kv / problem.page_size) *
                      sizeof(std::int32_t),
                  "a page table"),
      lengths_(static_cast<std::size_t>(problem.batch) * sizeof(std::int32_t),
               "the sequences' lengths") {}

void CachedBatch::prepare(const graph::CachePages& cache, CUstream stream) {
  const DecodeProblem& p = plan_.problem();
  const std::int64_t width = p.max_seq_kv / p.page_size;
  pages_.assign(static_cast<std::size_t>(p.batch * width), 0);
  counts_.clear();
  for (std::size_t i = 0; i < cache.lengths.size(); ++i) {
    const auto used = static_cast<std::size_t>(ceil_div(cache.lengths[i], p.page_size));
    std::copy_n(cache.pages[i].begin(), used,
                pages_.begin() + static_cast<std::int64_t>(i) * width);
    counts_.push_back(static_cast<std::int32_t>(cache.lengths[i]));
  }
  const Driver& driver = Driver::instance();
  driver.check(
      driver.cuMemcpyHtoDAsync(page_table_.address(), pages_.data(), page_table_.bytes(), stream),
      "uploading a page table");
  driver.check(
      driver.cuMemcpyHtoDAsync(lengths_.address(), counts_.data(), lengths_.bytes(), stream),
      "uploading lengths");
}

void CachedBatch::run(const AttentionTensors& tensors, CUstream stream) const {
  const DecodeProblem& p = plan_.problem();
  // Sequences one behind the other, each of seq_q rows.
  const auto of_queries = [&](auto view) {
    const std::int64_t row = view.strides[0];
    view.shape = {p.batch, p.num_heads_q, p.seq_q, p.head_dim_qk};
    view.strides = {p.seq_q * row, view.strides[1], row, 1};
    return view;
  };
  const auto of_cache = [&](TensorView view) {
    const std::int64_t row = view.strides[0];
    view.shape = {view.shape[0] / p.page_size, p.num_heads_kv, p.page_size, p.head_dim_qk};
    view.strides = {p.page_size * row, view.strides[1], row, 1};
    return view;
  };
  DecodeTensors decode;
  decode.q = of_queries(tensors.q);
  decode.k = of_cache(tensors.k);
  decode.v = of_cache(tensors.v);
  decode.out = of_queries(tensors.out);
  decode.position_bias = tensors.position_bias;
  decode.lengths = {device_pointer(lengths_.address()), DType::kInt32, {p.batch}};
  decode.page_table = {
      device_pointer(page_table_.address()), DType::kInt32, {p.batch, p.max_seq_kv / p.page_size}};
  plan_.run(decode, stream);
}

CachedBatch& CachedAttention::prepare(const mask::Mask& mask,
                                      const std::vector<std::int64_t>& offsets,
                                      const graph::CachePages& cache, CUstream stream) {
  const auto batch = static_cast<std::int64_t>(cache.lengths.size());
  const std::int64_t rows = offsets[1] - offsets[0];
  for (std::int64_t i = 0; i < batch; ++i) {
    const std::int64_t here =
        offsets[static_cast<std::size_t>(i) + 1] - offsets[static_cast<std::size_t>(i)];
    STOF_CHECK(here == rows, kUnsupported,
               "attention over a cache on a GPU: expected as many new tokens of each sequence, got "
               "{} of sequence 0 and {} of {}",
               rows, here, i);
  }
  constexpr std::int64_t kLeastKeys = 256;  // a multiple of every page size up to it
  const std::int64_t longest = *std::max_element(cache.lengths.begin(), cache.lengths.end());
  const auto keys = static_cast<std::int64_t>(
      std::bit_ceil(static_cast<std::uint64_t>(std::max(longest, kLeastKeys))));
  DecodeProblem problem;
  problem.batch = batch;
  problem.num_heads_q = problem_.num_heads_q;
  problem.num_heads_kv = problem_.num_heads_kv;
  problem.seq_q = rows;
  problem.page_size = cache.page_size;
  problem.max_seq_kv = ceil_div(keys, cache.page_size) * cache.page_size;
  problem.head_dim_qk = problem.head_dim_v = problem_.head_dim_qk;
  problem.dtype = problem_.dtype;
  problem.lengths = true;
  problem.scale = problem_.scale;
  problem.position_bias = problem_.position_bias;
  // A pass begins with prepare()'s copies, for which its first kernel waits, and with them for all
  // that earlier passes stored: that is there when this pass's keys are made. Keys of others may
  // have been made by the kernel before.
  problem.early_keys = !cross_;
  problem.validate();  // first, as there are then few rows to look at
  CacheReach reach;
  if (cross_) {
    check_cross_reach(mask, offsets, cache, problem_.num_heads_q);
    problem.window_right = std::nullopt;
  } else {
    reach = cache_reach(mask, offsets, cache, problem_.num_heads_q);
  }
  problem.window_left = reach.left;
  problem.sink_tokens = reach.sinks;
  const Key key{batch, rows, keys, cache.page_size, reach.left.value_or(-1), reach.sinks};
  auto found = batches_.find(key);
  if (found == batches_.end())
    found = batches_
                .emplace(std::piecewise_construct, std::forward_as_tuple(key),
                         std::forward_as_tuple(problem, device_))
                .first;
  found->second.prepare(cache, stream);
  return found->second;
}

}  // namespace stof::cuda
