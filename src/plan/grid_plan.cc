// build_grid_plan: the plan of a neighbourhood in grid order, as a product of its dimensions.

#include <algorithm>
#include <map>
#include <unordered_map>

#include "core/bits.h"
#include "core/check.h"
#include "plan/config.h"
#include "plan/grid_order.h"

namespace stof::plan {
namespace {

using mask::GridAxis;
using mask::kGridDims;

/// One row of bits for each query of a tile: which keys of a key tile it sees.
using AxisBits = std::vector<std::uint64_t>;
constexpr std::int32_t kAllBits = 0;  ///< index of the matrix of ones

/// A key tile of one dimension that a query tile sees something of.
struct AxisTile {
  std::int32_t tile, bits;
};

/// One dimension: per query tile the key tiles it touches, ascending, and the distinct matrices.
struct AxisTiles {
  std::vector<std::vector<AxisTile>> of_query_tile;
  std::vector<AxisBits> matrices;
};

/// Empty where no query sees a key.
AxisBits draw(const GridAxis& axis, std::int64_t q_begin, std::int64_t rows, std::int64_t k_begin,
              std::int64_t width) {
  AxisBits bits(static_cast<std::size_t>(rows), 0);
  bool any = false;
  for (std::int64_t row = 0; row < rows; ++row) {
    // A place without a token sees what the grid's last one does, so that it never makes a tile
    // partial that its tokens see whole.
    const std::int64_t q = std::min(q_begin + row, axis.extent() - 1);
    auto& word = bits[static_cast<std::size_t>(row)];
    for (std::int64_t j = 0; j < width && k_begin + j < axis.extent(); ++j)
      word |= static_cast<std::uint64_t>(axis.sees(q, k_begin + j)) << j;
    any |= word != 0;
  }
  return any ? bits : AxisBits{};
}

AxisTiles tiles_along(const GridAxis& axis, std::int64_t tile_q, std::int64_t tile_kv) {
  AxisTiles out;
  out.matrices.emplace_back(static_cast<std::size_t>(tile_q), low_bits(tile_kv));
  std::map<AxisBits, std::int32_t> known = {{out.matrices[0], kAllBits}};
  const std::int64_t last = axis.extent() - 1;
  for (std::int64_t q = 0; q <= last; q += tile_q) {
    std::vector<AxisTile>& row = out.of_query_tile.emplace_back();
    for (std::int64_t k = 0; k <= last; k += tile_kv) {
      const auto tile = static_cast<std::int32_t>(k / tile_kv);
      const mask::TileClass found =
          axis.classify({q, std::min(q + tile_q - 1, last)}, {k, std::min(k + tile_kv - 1, last)});
      if (found == mask::TileClass::kEmpty) continue;
      if (found == mask::TileClass::kFull && k + tile_kv - 1 <= last) {
        row.push_back({tile, kAllBits});
        continue;
      }
      AxisBits bits = draw(axis, q, tile_q, k, tile_kv);
      if (bits.empty()) continue;
      const auto [at, is_new] =
          known.try_emplace(bits, static_cast<std::int32_t>(out.matrices.size()));
      if (is_new) out.matrices.push_back(std::move(bits));
      row.push_back({tile, at->second});
    }
  }
  return out;
}

/// Payloads by the matrices they are the product of, each made once.
class Products {
 public:
  Products(const std::array<AxisTiles, kGridDims>& axes, const GridTile& kv_tile)
      : axes_(axes), kv_tile_(kv_tile) {}

  /// Selects the matrices of z and y; payload() then takes that of x.
  void select(std::int32_t z, std::int32_t y) {
    z_ = z, y_ = y;
    const std::size_t width = axes_[2].matrices.size();
    const auto key = static_cast<std::uint64_t>(z) << 32 | static_cast<std::uint32_t>(y);
    const auto [at, is_new] = rows_.try_emplace(key, indices_.size());
    if (is_new) indices_.resize(indices_.size() + width, -1);
    row_ = at->second;
  }
  std::int32_t payload(std::int32_t x) {
    std::int32_t& index = indices_[row_ + static_cast<std::size_t>(x)];
    if (index < 0) {
      index = num_payloads_++;
      append(x);
    }
    return index;
  }
  std::vector<std::uint64_t> take() { return std::move(payloads_); }

 private:
  static const AxisBits& matrix(const AxisTiles& axis, std::int32_t bits) {
    return axis.matrices[static_cast<std::size_t>(bits)];
  }

  /// `bits` at each of `count` places of `width` bits that `places` shows, or-ed into a row.
  static void spread(const std::vector<std::uint64_t>& bits, std::int64_t width,
                     std::uint64_t places, std::int64_t count, std::vector<std::uint64_t>* row) {
    const auto words = static_cast<std::size_t>(ceil_div(width * count, 64));
    row->assign(words, 0);
    for (std::int64_t i = 0; i < count; ++i) {
      if (((places >> i) & 1) == 0) continue;
      // Extents are powers of two: a place lies in one word or fills whole ones.
      const std::int64_t first = i * width;
      for (std::size_t w = 0; w < bits.size(); ++w)
        (*row)[static_cast<std::size_t>(first / 64) + w] |= bits[w] << (first % 64);
    }
  }

  void append(std::int32_t x) {
    const std::int64_t width = kv_tile_[2], plane = width * kv_tile_[1];
    std::vector<std::uint64_t> line(1), in_plane, row;
    for (const std::uint64_t z : matrix(axes_[0], z_))
      for (const std::uint64_t y : matrix(axes_[1], y_))
        for (const std::uint64_t keys : matrix(axes_[2], x)) {
          line[0] = keys;
          spread(line, width, y, kv_tile_[1], &in_plane);
          spread(in_plane, plane, z, kv_tile_[0], &row);
          payloads_.insert(payloads_.end(), row.begin(), row.end());
        }
  }

  const std::array<AxisTiles, kGridDims>& axes_;
  const GridTile kv_tile_;
  std::int32_t z_ = 0, y_ = 0, num_payloads_ = 0;
  std::size_t row_ = 0;
  std::unordered_map<std::uint64_t, std::size_t> rows_;
  std::vector<std::int32_t> indices_;  ///< [row][matrix of x]
  std::vector<std::uint64_t> payloads_;
};

std::array<AxisTiles, kGridDims> tiles_of(const GridOrder& order) {
  std::array<AxisTiles, kGridDims> axes;
  for (std::size_t d = 0; d < kGridDims; ++d)
    axes[d] = tiles_along(order.axes[d], order.q.tile[d], order.kv.tile[d]);
  return axes;
}

/// Calls visit(z, y, x) with the query tile's tiles along each dimension, in the order of tiles.
template <class Visit>
void for_each_query_tile(const std::array<AxisTiles, kGridDims>& axes, const Visit& visit) {
  for (const auto& z : axes[0].of_query_tile)
    for (const auto& y : axes[1].of_query_tile)
      for (const auto& x : axes[2].of_query_tile) visit(z, y, x);
}

}  // namespace

std::vector<GridTileCount> count_tiles(const GridOrder& order) {
  const auto axes = tiles_of(order);
  std::vector<GridTileCount> counts;
  for_each_query_tile(axes, [&](const auto& z, const auto& y, const auto& x) {
    std::int64_t touched = 1, full = 1;
    for (const auto* row : {&z, &y, &x}) {
      touched *= static_cast<std::int64_t>(row->size());
      full *= std::count_if(row->begin(), row->end(),
                            [](const AxisTile& tile) { return tile.bits == kAllBits; });
    }
    counts.push_back({full, touched - full});
  });
  return counts;
}

MaskPlan build_grid_plan(const GridOrder& order, std::int64_t batch, std::int64_t num_heads,
                         const PlanConfig& config) {
  check_config(config);
  STOF_CHECK(config.tile_q == order.q.tile_size() && config.tile_kv == order.kv.tile_size() &&
                 order.kv.tile[2] <= kMaxGridTile && config.max_tiles_per_split == 0,
             kInternal, "{} for tiles of {} x {}: expected the order's own tiles, unsplit",
             order.name(), config.tile_q, config.tile_kv);
  MaskPlan plan;
  plan.config = config;
  plan.shape = {batch, num_heads, order.q.num_positions(), order.kv.num_positions()};
  plan.num_patterns = 1;
  plan.pattern_of = {0};

  const auto axes = tiles_of(order);
  Products products(axes, order.kv.tile);
  const std::int64_t kv_y = order.kv.tiles(1), kv_x = order.kv.tiles(2);
  WorkItem item;
  for_each_query_tile(axes, [&](const auto& z, const auto& y, const auto& x) {
    item.partial_begin = static_cast<std::int64_t>(plan.partial.size());
    item.run_begin = static_cast<std::int64_t>(plan.runs.size());
    std::int64_t num_full = 0;
    for (const AxisTile& kz : z)
      for (const AxisTile& ky : y) {
        const auto line = static_cast<std::int32_t>((kz.tile * kv_y + ky.tile) * kv_x);
        const bool full_line = kz.bits == kAllBits && ky.bits == kAllBits;
        products.select(kz.bits, ky.bits);
        bool in_run = false;
        for (const AxisTile& kx : x) {
          const std::int32_t tile = line + kx.tile;
          if (!full_line || kx.bits != kAllBits) {
            plan.partial.push_back({tile, products.payload(kx.bits)});
            continue;
          }
          if (in_run && plan.runs.back().end == tile)
            ++plan.runs.back().end;
          else
            plan.runs.push_back({tile, tile + 1});
          in_run = true;
          ++num_full;
        }
      }
    item.partial_end = static_cast<std::int64_t>(plan.partial.size());
    item.run_end = static_cast<std::int64_t>(plan.runs.size());
    item.cost = item_cost(item.partial_end - item.partial_begin, num_full);
    plan.items.push_back(item);
    ++item.q_tile;
  });
  plan.payloads = products.take();
  std::sort(plan.items.begin(), plan.items.end(), queue_order);
  return plan;
}

}  // namespace stof::plan
