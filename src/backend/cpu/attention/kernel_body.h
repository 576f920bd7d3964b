#pragma once
// The flash-style loop over one item's tiles, written once and compiled per vector level. The
// including file has chosen Simd; everything here has internal linkage, so that no wide instruction
// can reach code shared with the baseline build.

#include "backend/cpu/attention/kernel_tile.h"

namespace stof::cpu {
namespace {

/// Where each array lies in a thread's scratch, in floats.
struct ScratchLayout {
  std::int64_t queries, out, run_max, run_sum, scores, bias, keys, values, row, total;
};

ScratchLayout layout_of(const KernelParams& params) {
  ScratchLayout layout{};
  std::int64_t next = 0;
  const auto take = [&next](std::int64_t floats) {
    const std::int64_t place = next;
    next += round_up(floats, 16);  // keeps every array on a cache line
    return place;
  };
  const std::int64_t rows = round_up(params.tile_q, kPanel);
  const std::int64_t keys = round_up(params.tile_kv, kRows);
  const std::int64_t dim_v = round_up(params.head_dim_v, kRows);
  layout.queries = take(rows * params.head_dim_qk);
  layout.out = take(rows * dim_v);
  layout.run_max = take(rows);
  layout.run_sum = take(rows);
  layout.scores = take(keys * kPanel);
  layout.bias = take(params.bias ? keys * kPanel : 0);
  layout.keys = take(params.element == Element::kFloat32 ? 0 : keys * params.head_dim_qk);
  layout.values = take(keys * dim_v);
  layout.row =
      take(params.head_dim_qk > params.head_dim_v ? params.head_dim_qk : params.head_dim_v);
  layout.total = next;
  return layout;
}

/// Everything one item needs while its tiles are walked.
struct ItemState {
  const KernelParams& params;
  const KernelHead& head;
  const KernelItem& item;
  ScratchLayout layout;
  float* scratch;
  std::int64_t num_rows;  ///< of the query tile, inside the sequence

  std::int64_t num_panels() const { return (num_rows + kPanel - 1) / kPanel; }

  Panel panel(std::int64_t index) const {
    Panel panel;
    panel.first_row = index * kPanel;
    panel.num_rows = smaller(num_rows - panel.first_row, kPanel);
    panel.width = round_up(panel.num_rows, kWidth);
    panel.queries = scratch + layout.queries + panel.first_row * params.head_dim_qk;
    panel.out = scratch + layout.out + panel.first_row * round_up(params.head_dim_v, kRows);
    panel.run_max = scratch + layout.run_max + panel.first_row;
    panel.run_sum = scratch + layout.run_sum + panel.first_row;
    return panel;
  }
};

void start_item(const ItemState& state) {
  for (std::int64_t i = 0; i < state.num_panels(); ++i) {
    const Panel panel = state.panel(i);
    pack_queries(state.params, state.head, state.item.q_begin + panel.first_row, panel.num_rows,
                 panel.width, panel.queries, state.scratch + state.layout.row);
    const std::int64_t out_floats = round_up(state.params.head_dim_v, kRows) * panel.width;
    for (std::int64_t j = 0; j < out_floats; ++j) panel.out[j] = 0;
    for (std::int64_t j = 0; j < panel.width; ++j) {
      panel.run_max[j] = -kInfinity;
      panel.run_sum[j] = 0;
    }
  }
}

void walk_tile(const ItemState& state, std::int64_t tile_index, const std::uint64_t* payload) {
  const KernelParams& params = state.params;
  const KernelHead& head = state.head;
  KeyTile tile;
  tile.k_begin = tile_index * params.tile_kv;
  // The ragged last tile simply has fewer keys: padding is never scored, so its weight is 0.
  tile.num_keys = smaller(params.tile_kv, params.seq_kv - tile.k_begin);
  tile.keys = static_cast<const float*>(head.k) + tile.k_begin * head.k_stride;
  tile.key_stride = head.k_stride;
  if (params.element != Element::kFloat32) {
    float* keys = state.scratch + state.layout.keys;
    for (std::int64_t k = 0; k < tile.num_keys; ++k)
      row_as_float(params.element, at(head.k, params.element, (tile.k_begin + k) * head.k_stride),
                   keys + k * params.head_dim_qk, params.head_dim_qk);
    tile.keys = keys;
    tile.key_stride = params.head_dim_qk;
  }
  float* values = state.scratch + state.layout.values;
  tile.values_finite = pack_values(params, head, tile.k_begin, tile.num_keys, values,
                                   state.scratch + state.layout.row);
  tile.values = values;

  const TileScratch scratch = {state.scratch + state.layout.scores,
                               state.scratch + state.layout.bias};
  std::uint64_t key_bits[512];  // the largest tile_kv
  for (std::int64_t i = 0; i < state.num_panels(); ++i) {
    const Panel panel = state.panel(i);
    tile.key_bits = nullptr;
    if (payload != nullptr) {
      if (!turn_payload(params, payload, panel.first_row, panel.num_rows, tile.num_keys, key_bits))
        continue;
      tile.key_bits = key_bits;
    }
    switch (panel.width / kWidth) {
      case 1:
        visit_tile<1>(params, head, panel, state.item.q_begin, tile, scratch);
        break;
      case 2:
        visit_tile<2>(params, head, panel, state.item.q_begin, tile, scratch);
        break;
      default:
        visit_tile<3>(params, head, panel, state.item.q_begin, tile, scratch);
    }
  }
}

/// Normalises one row, lets the sink logit join the denominator, and writes output and LSE.
void finish_row(const ItemState& state, const Panel& panel, std::int64_t lane,
                const KernelResult& result) {
  const std::int64_t dim = state.params.head_dim_v;
  const std::int64_t row = panel.first_row + lane;
  float* out = result.out + row * dim;
  const float sum = panel.run_sum[lane], max = panel.run_max[lane];
  if (sum == 0) {  // the row sees nothing: a visible maximum alone would have added 1
    for (std::int64_t d = 0; d < dim; ++d) out[d] = 0;
    result.lse[row] = -kInfinity;
    return;
  }
  float factor = 1 / sum, lse = max + __builtin_logf(sum);
  if (state.head.sink != nullptr && *state.head.sink != -kInfinity) {
    const float sink = *state.head.sink;
    const float top = max > sink ? max : sink;
    const float rescale = __builtin_expf(max - top);
    const float total = sum * rescale + __builtin_expf(sink - top);
    factor = rescale / total;
    lse = top + __builtin_logf(total);
  }
  for (std::int64_t d = 0; d < dim; ++d) out[d] = panel.out[d * panel.width + lane] * factor;
  result.lse[row] = lse;
}

std::int64_t scratch_floats(const KernelParams& params) { return layout_of(params).total; }

void run_item(const KernelParams& params, const KernelHead& head, const KernelItem& item,
              const KernelResult& result, float* scratch) {
  const ItemState state = {params,  head,
                           item,    layout_of(params),
                           scratch, smaller(params.tile_q, params.seq_q - item.q_begin)};
  start_item(state);
  const std::int64_t payload_words = params.tile_q * params.words_per_row;
  for (std::int64_t i = 0; i < item.num_partial; ++i)
    walk_tile(state, item.partial[i].tile,
              params.payloads + item.partial[i].payload * payload_words);
  for (std::int64_t i = 0; i < item.num_runs; ++i)
    for (std::int64_t tile = item.runs[i].begin; tile < item.runs[i].end; ++tile)
      walk_tile(state, tile, nullptr);
  for (std::int64_t i = 0; i < state.num_panels(); ++i) {
    const Panel panel = state.panel(i);
    for (std::int64_t lane = 0; lane < panel.num_rows; ++lane)
      finish_row(state, panel, lane, result);
  }
}

void exp_array(const float* x, float* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += kWidth) {
    const std::int64_t lanes = smaller(kWidth, count - i);
    float in[kWidth] = {}, out[kWidth];
    for (std::int64_t j = 0; j < lanes; ++j) in[j] = x[i + j];
    Simd::store(out, exp_nonpositive(Simd::load(in)));
    for (std::int64_t j = 0; j < lanes; ++j) y[i + j] = out[j];
  }
}

constexpr AttentionKernels kKernels = {scratch_floats, run_item, exp_array};

}  // namespace
}  // namespace stof::cpu
