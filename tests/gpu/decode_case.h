#pragma once
// Random decoding steps with their tensors, what must not be read filled with NaN.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stof/cuda_decode.h"
#include "tests/gpu/draw.h"
#include "tests/gpu/guarded_tensor.h"

namespace stof::check {

using cuda::DecodeProblem;

/// A problem with its tensors in host and device memory.
struct Case {
  DecodeProblem problem;
  std::optional<mask::Mask> mask;
  std::vector<std::int32_t> lengths;  // of each sequence; max_seq_kv without problem.lengths
  GuardedTensor q, k, v, out, lse, device_lengths, page_table, alibi_slopes, sink, position_bias;
  cuda::DecodeTensors tensors;
};

inline DecodeProblem draw_problem(Draw& draw, const std::string& feature) {
  DecodeProblem p;
  p.batch = draw.one_of<std::int64_t>({1, 1, 2, 3, 5, 40});
  p.num_heads_kv = draw.between(1, 3);
  p.num_heads_q = p.num_heads_kv * draw.one_of({1, 2, 3, 4, 8, 16});
  p.seq_q = draw.one_of<std::int64_t>({1, 1, 1, 2, 3, 5, 8, 16});
  p.max_seq_kv = draw.one_of<std::int64_t>({1, 17, 64, 100, 129, 500, 1000, 2500, 6000});
  p.head_dim_qk = draw.one_of<std::int64_t>({8, 16, 24, 64, 72, 80, 96, 128, 128, 192, 256});
  p.head_dim_v = draw.chance(3) ? draw.one_of<std::int64_t>({8, 40, 64, 128, 248}) : p.head_dim_qk;
  p.dtype = draw.chance(2) ? DType::kBFloat16 : DType::kFloat16;
  p.lengths = !draw.chance(4);
  p.return_lse = !draw.chance(5);
  p.early_keys = draw.chance(2);  // all operands are there long before
  if (draw.chance(4)) p.softcap = 20;
  if (draw.chance(4)) p.scale = 0.2f;
  p.alibi = draw.chance(4);
  p.sink = draw.chance(4);
  if (feature == "paged" || (feature == "graph" && draw.chance(2)))
    p.page_size = draw.one_of({16, 32, 48, 64, 128, 256});
  if (feature == "window" || (feature == "paged" && draw.chance(3))) {
    if (!draw.chance(3)) p.window_left = draw.one_of<std::int64_t>({0, 5, 63, 64, 300, 1000});
    p.window_right = draw.one_of<std::int64_t>({0, 0, 3, 100});
    if (draw.chance(4)) p.window_right.reset();
    p.sink_tokens = draw.one_of<std::int64_t>({0, 1, 4, 64, 70, 200});
  }
  if (draw.chance(4)) {
    p.position_bias = {draw.one_of<std::int64_t>({8, 32}), draw.chance(2),
                       draw.one_of<std::int64_t>({20, 128})};
  }
  // Caches are drawn and uploaded element by element: keep that under a tenth of a second.
  const auto elements = [&] {
    return p.batch * p.num_heads_kv * p.max_seq_kv * (p.head_dim_qk + p.head_dim_v);
  };
  if (elements() > 3'000'000) p.batch = 1;
  if (elements() > 3'000'000) p.num_heads_q = p.num_heads_q / p.num_heads_kv, p.num_heads_kv = 1;
  return p;
}

inline mask::Mask draw_mask(Draw& draw, const DecodeProblem& p) {
  using namespace stof::mask;
  switch (draw.between(0, 8)) {
    case 0:
      return all();
    case 1:
      return causal();
    case 2:
      return window(draw.between(0, 300), draw.between(0, 3));
    case 3:
      return causal() & strided(20, draw.one_of({8, 32, 64, 128}));
    case 4:
      return (window(100, 0) | global(0, 70)) & causal();
    case 5:
      return random_elements(0.2, 11);
    case 6: {
      std::vector<Mask> heads;
      for (std::int64_t h = 0; h < p.num_heads_q; ++h)
        heads.push_back(h % 2 ? causal() : window(h * 10, 3));
      return per_head(heads);
    }
    case 7: {
      std::vector<std::int64_t> counts;
      for (std::int64_t b = 0; b < p.batch; ++b) counts.push_back(p.max_seq_kv / (b + 1));
      return key_lengths(counts);
    }
    default:
      return none();
  }
}

inline void draw_lengths(Draw& draw, Case& c) {
  c.lengths.assign(static_cast<std::size_t>(c.problem.batch),
                   static_cast<std::int32_t>(c.problem.max_seq_kv));
  if (!c.problem.lengths) return;
  for (std::int32_t& length : c.lengths)
    if (!draw.chance(4))
      length =
          static_cast<std::int32_t>(draw.chance(6) ? draw.between(0, 2) % (c.problem.max_seq_kv + 1)
                                                   : draw.between(0, c.problem.max_seq_kv));
}

inline void fill(Draw& draw, GuardedTensor& tensor) {
  tensor.visit(0, tensor.offset({}), [&](std::int64_t at) { tensor.set_real(at, draw.normal()); });
  tensor.upload();
}

/// Whether query `q` of head `h` is one of those that check "nan" makes NaN.
inline bool is_nan_query(const Case& c, std::int64_t b, std::int64_t h, std::int64_t q) {
  return std::isnan(c.q.real(c.q.offset({b, h, q, 0})));
}

/// Every fifth query's first element.
inline void make_nan_queries(Case& c) {
  const DecodeProblem& p = c.problem;
  for (std::int64_t row = 0; row < p.batch * p.num_heads_q * p.seq_q; row += 5)
    c.q.set_real(c.q.offset({row / (p.num_heads_q * p.seq_q), row / p.seq_q % p.num_heads_q,
                             row % p.seq_q, 0}),
                 std::numeric_limits<float>::quiet_NaN());
  c.q.upload();
}

/// Where key `row` of a sequence lies in the cache.
inline std::int64_t cache_offset(const Case& c, const GuardedTensor& cache, std::int64_t b,
                                 std::int64_t head, std::int64_t row) {
  const std::int64_t page_size = c.problem.page_size;
  if (page_size == 0) return cache.offset({b, head, row, 0});
  const auto page = c.page_table.get<std::int32_t>(c.page_table.offset({b, row / page_size}));
  return cache.offset({page, head, row % page_size, 0});
}

/// Fills the rows of each sequence and leaves all others NaN; then the lengths.
inline void fill_cache(Draw& draw, Case& c) {
  const DecodeProblem& p = c.problem;
  for (const auto& [cache, head_dim] :
       {std::pair{&c.k, p.head_dim_qk}, std::pair{&c.v, p.head_dim_v}}) {
    cache->poison();
    for (std::int64_t b = 0; b < p.batch; ++b)
      for (std::int64_t h = 0; h < p.num_heads_kv; ++h)
        for (std::int64_t row = 0; row < c.lengths[static_cast<std::size_t>(b)]; ++row) {
          const std::int64_t at = cache_offset(c, *cache, b, h, row);
          for (std::int64_t d = 0; d < head_dim; ++d) cache->set_real(at + d, draw.normal());
        }
    cache->upload();
  }
  if (!p.lengths) return;
  for (std::int64_t b = 0; b < p.batch; ++b)
    c.device_lengths.set(c.device_lengths.offset({b}), c.lengths[static_cast<std::size_t>(b)]);
  c.device_lengths.upload();
}

inline Case make_case(Draw& draw, const std::string& feature) {
  Case c;
  c.problem = draw_problem(draw, feature);
  const DecodeProblem& p = c.problem;
  if (feature == "mask") c.mask = draw_mask(draw, p);
  const auto make = [&](const Dims& shape, const char* name) {
    return GuardedTensor(p.dtype, shape, draw_strides(draw, shape), name);
  };
  c.q = make({p.batch, p.num_heads_q, p.seq_q, p.head_dim_qk}, "q");
  c.out = make({p.batch, p.num_heads_q, p.seq_q, p.head_dim_v}, "out");
  std::int64_t caches = p.batch, rows = p.max_seq_kv;
  if (p.page_size > 0) {
    const std::int64_t used = (p.max_seq_kv + p.page_size - 1) / p.page_size;
    caches = p.batch * used + 3;
    rows = p.page_size;
    c.page_table = GuardedTensor(DType::kInt32, {p.batch, used + 2}, {used + 5, 1}, "page_table");
    std::vector<std::int32_t> pages;
    for (std::int64_t i = 0; i < caches; ++i) pages.push_back(static_cast<std::int32_t>(i));
    for (std::size_t i = pages.size() - 1; i > 0; --i)
      std::swap(pages[i],
                pages[static_cast<std::size_t>(draw.between(0, static_cast<std::int64_t>(i)))]);
    for (std::int64_t b = 0; b < p.batch; ++b)
      for (std::int64_t i = 0; i < used; ++i)
        c.page_table.set(c.page_table.offset({b, i}),
                         pages[static_cast<std::size_t>(b * used + i)]);
    c.page_table.upload();
    c.tensors.page_table = c.page_table.view();
  }
  c.k = make({caches, p.num_heads_kv, rows, p.head_dim_qk}, "k");
  c.v = make({caches, p.num_heads_kv, rows, p.head_dim_v}, "v");
  fill(draw, c.q);
  if (feature == "nan") make_nan_queries(c);
  draw_lengths(draw, c);
  if (p.lengths) {
    c.device_lengths = GuardedTensor(DType::kInt32, {p.batch}, {1}, "lengths");
    c.tensors.lengths = c.device_lengths.view();
  }
  fill_cache(draw, c);
  const auto make_vector = [&](GuardedTensor& tensor, const char* name, float scale) {
    tensor = GuardedTensor(DType::kFloat32, {p.num_heads_q}, {1}, name);
    for (std::int64_t h = 0; h < p.num_heads_q; ++h)
      tensor.set(tensor.offset({h}), scale * draw.normal());
    tensor.upload();
    return tensor.view();
  };
  // Slopes as models have them: times thousands of keys, still logits that float32 holds well.
  if (p.alibi) c.tensors.alibi_slopes = make_vector(c.alibi_slopes, "alibi_slopes", 0.02f);
  if (const std::int64_t buckets = p.position_bias.num_buckets; buckets > 0) {
    c.position_bias = GuardedTensor(DType::kFloat32, {buckets, p.num_heads_q}, {p.num_heads_q, 1},
                                    "position_bias");
    c.position_bias.visit(0, c.position_bias.offset({}),
                          [&](std::int64_t at) { c.position_bias.set(at, draw.normal()); });
    c.position_bias.upload();
    c.tensors.position_bias = c.position_bias.view();
  }
  if (p.sink) c.tensors.sink = make_vector(c.sink, "sink", 1.0f);
  if (p.return_lse) {
    c.lse = GuardedTensor(DType::kFloat32, {p.batch, p.num_heads_q, p.seq_q},
                          {p.num_heads_q * p.seq_q, p.seq_q, 1}, "lse");
    c.tensors.lse = c.lse.mutable_view();
  }
  c.tensors.q = c.q.view(), c.tensors.k = c.k.view(), c.tensors.v = c.v.view();
  c.tensors.out = c.out.mutable_view();
  return c;
}

}  // namespace stof::check
