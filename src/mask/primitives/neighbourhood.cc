// neighbourhood(): a clamped window on a token grid of up to three dimensions.
// Token t has grid coordinates, last dimension fastest; q sees k iff it does so in every dimension
// (mask/grid_axis.h).

#include <algorithm>
#include <array>

#include "mask/arguments.h"
#include "mask/grid_axis.h"
#include "mask/node.h"

namespace stof::mask {
namespace {

constexpr std::size_t kDims = kGridDims;
using Axis = GridAxis;
using Range = AxisRange;

using Coordinates = std::array<std::int64_t, kDims>;
using Box = std::array<Range, kDims>;

/// Boxes that a run of tokens falls into: part of a line, or of a plane, at either end.
struct Boxes {
  std::array<Box, 7> list;
  std::size_t size = 0;
  void add(Range x, Range y, Range z) { list[size++] = {x, y, z}; }
};

class Grid final : public Node {
 public:
  explicit Grid(Neighbourhood params) : params_(std::move(params)) {
    const std::size_t rank = params_.grid.size();
    for (std::size_t d = 0; d < rank; ++d) {
      axes_[kDims - rank + d] = Axis(params_.grid[d], params_.kernel[d], params_.dilation[d],
                                     params_.tile[d], params_.shift[d]);
      size_ *= params_.grid[d];
    }
  }

  bool visible(std::int64_t, std::int64_t, std::int64_t q, std::int64_t k) const override {
    if (q < 0 || q >= size_ || k < 0 || k >= size_) return false;
    const Coordinates a = coordinates(q), b = coordinates(k);
    return axes_[0].sees(a[0], b[0]) && axes_[1].sees(a[1], b[1]) && axes_[2].sees(a[2], b[2]);
  }
  TileClass classify(std::int64_t, std::int64_t, const TileRect& rect) const override {
    const ClippedRect c = clip(rect, size_, size_);
    if (c.empty) return TileClass::kEmpty;
    const Boxes rows = boxes(c.rect.q_begin, c.rect.q_end - 1);
    const Boxes cols = boxes(c.rect.k_begin, c.rect.k_end - 1);
    bool some = false, every = !c.clipped;
    for (std::size_t i = 0; i < rows.size; ++i)
      for (std::size_t j = 0; j < cols.size; ++j) {
        TileClass found = TileClass::kFull;
        for (std::size_t d = 0; d < kDims && found != TileClass::kEmpty; ++d)
          found = product(found, axes_[d].classify(rows.list[i][d], cols.list[j][d]));
        some |= found != TileClass::kEmpty;
        every &= found == TileClass::kFull;
        if (some && !every) return TileClass::kPartial;
      }
    return every ? TileClass::kFull : some ? TileClass::kPartial : TileClass::kEmpty;
  }
  std::uint64_t row_bits(std::int64_t, std::int64_t, std::int64_t q,
                         std::int64_t k_begin) const override {
    if (q < 0 || q >= size_) return 0;
    const Coordinates a = coordinates(q);
    const std::int64_t width = axes_[2].extent();
    const std::int64_t k_end = std::min(k_begin + 64, size_);
    std::uint64_t bits = 0;
    for (std::int64_t k = std::max<std::int64_t>(k_begin, 0); k < k_end;) {
      const Coordinates b = coordinates(k);
      const std::int64_t line = k - b[2], line_end = std::min(line + width, k_end);
      if (axes_[0].sees(a[0], b[0]) && axes_[1].sees(a[1], b[1]))
        bits |= line_bits(a[2], line, k, line_end, k_begin);
      k = line_end;
    }
    return bits;
  }
  std::shared_ptr<const Node> bind(const BindContext& context) const override {
    return bind_positional(*this, context);
  }
  Spec spec() const override {
    return {"neighbourhood",
            {{"grid", params_.grid},
             {"kernel", params_.kernel},
             {"dilation", params_.dilation},
             {"tile", params_.tile},
             {"shift", params_.shift}},
            {}};
  }

 private:
  Coordinates coordinates(std::int64_t token) const {
    const std::int64_t line = token / axes_[2].extent();
    return {line / axes_[1].extent(), line % axes_[1].extent(), token % axes_[2].extent()};
  }

  /// Bits of keys [k, k_end), which lie on the line of tokens that starts at `line`.
  std::uint64_t line_bits(std::int64_t q, std::int64_t line, std::int64_t k, std::int64_t k_end,
                          std::int64_t k_begin) const {
    if (axes_[2].contiguous()) {
      const Range seen = axes_[2].seen(q);
      return bits_of_range(k_begin, std::max(line + seen.first, k),
                           std::min(line + seen.last + 1, k_end));
    }
    std::uint64_t bits = 0;
    for (; k < k_end; ++k)
      if (axes_[2].sees(q, k - line)) bits |= std::uint64_t{1} << (k - k_begin);
    return bits;
  }

  /// Tokens first .. last of plane x, both in it.
  void add_plane(Boxes& out, std::int64_t x, Range y, std::int64_t first, std::int64_t last) const {
    const std::int64_t end = axes_[2].extent() - 1;
    if (y.first == y.last) return out.add({x, x}, y, {first, last});
    out.add({x, x}, {y.first, y.first}, {first, end});
    out.add({x, x}, {y.last, y.last}, {0, last});
    if (y.first + 1 < y.last) out.add({x, x}, {y.first + 1, y.last - 1}, {0, end});
  }

  Boxes boxes(std::int64_t first, std::int64_t last) const {
    const Coordinates a = coordinates(first), z = coordinates(last);
    const Range lines{0, axes_[1].extent() - 1}, tokens{0, axes_[2].extent() - 1};
    Boxes out;
    if (a[0] == z[0]) {
      add_plane(out, a[0], {a[1], z[1]}, a[2], z[2]);
      return out;
    }
    add_plane(out, a[0], {a[1], lines.last}, a[2], tokens.last);
    add_plane(out, z[0], {0, z[1]}, 0, z[2]);
    if (a[0] + 1 < z[0]) out.add({a[0] + 1, z[0] - 1}, lines, tokens);
    return out;
  }

  Neighbourhood params_;
  GridAxes axes_;
  std::int64_t size_ = 1;
};

void check_list(const char* name, const IntList& list, std::size_t rank, std::int64_t lo) {
  STOF_CHECK(list.size() == rank, kInvalidArgument,
             "neighbourhood({}): expected {} values, one per dimension of the grid, got {}", name,
             rank, list.size());
  for (const std::int64_t value : list) check_argument("neighbourhood", name, value, lo);
}

}  // namespace

Mask neighbourhood(const Neighbourhood& params) {
  const std::size_t rank = params.grid.size();
  STOF_CHECK(rank >= 1 && rank <= kDims, kInvalidArgument,
             "neighbourhood(grid): expected 1 to 3 dimensions, got {}", rank);
  Neighbourhood p = params;
  if (p.dilation.empty()) p.dilation.assign(rank, 1);
  if (p.tile.empty()) p.tile.assign(rank, 1);
  if (p.shift.empty()) p.shift.assign(rank, 0);
  check_list("grid", p.grid, rank, 1);
  check_list("kernel", p.kernel, rank, 1);
  check_list("dilation", p.dilation, rank, 1);
  check_list("tile", p.tile, rank, 1);
  check_list("shift", p.shift, rank, -kMaxPosition);
  std::int64_t size = 1;
  for (const std::int64_t extent : p.grid) {
    STOF_CHECK(size <= kMaxPosition / extent, kInvalidArgument,
               "neighbourhood(grid): expected at most {} tokens", kMaxPosition);
    size *= extent;
  }
  return Mask(std::make_shared<Grid>(std::move(p)));
}

}  // namespace stof::mask
