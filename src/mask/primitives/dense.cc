// dense(): a boolean array, kept as bits.

#include <bit>
#include <new>

#include "mask/arguments.h"
#include "mask/node.h"
#include "mask/node_factories.h"

namespace stof::mask {
namespace {

std::string shape_text(const BitArray& bits) {
  return fmt::format("[{}, {}, {}, {}]", bits.shape[0], bits.shape[1], bits.shape[2],
                     bits.shape[3]);
}

class Dense final : public Node {
 public:
  explicit Dense(std::shared_ptr<const BitArray> bits)
      : bits_(std::move(bits)),
        rows_(bits_->shape[2]),
        cols_(bits_->shape[3]),
        words_(bits_->words_per_row()),
        tile_rows_((rows_ + 63) / 64),
        tile_cols_((cols_ + 63) / 64) {
    const std::int64_t planes = bits_->shape[0] * bits_->shape[1];
    sums_.resize(static_cast<std::size_t>(planes * plane_sums()));
    for (std::int64_t plane = 0; plane < planes; ++plane) sum_tiles(plane);
  }

  bool visible(std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t k) const override {
    const std::int64_t row = row_of(q);
    if (row < 0 || row >= rows_ || k < 0 || k >= cols_) return false;
    return word(plane(b, h), row, k / 64) >> (k % 64) & 1;
  }
  TileClass classify(std::int64_t b, std::int64_t h, const TileRect& rect) const override {
    ClippedRect c = clip(rect, rows_ == 1 ? kUnbounded : rows_, cols_);
    if (c.empty) return TileClass::kEmpty;
    if (rows_ == 1) {
      c.rect.q_begin = 0;
      c.rect.q_end = 1;
    }
    const std::int64_t found = count(plane(b, h), c.rect);
    if (found == 0) return TileClass::kEmpty;
    const std::int64_t area = (c.rect.q_end - c.rect.q_begin) * (c.rect.k_end - c.rect.k_begin);
    return !c.clipped && found == area ? TileClass::kFull : TileClass::kPartial;
  }
  std::uint64_t row_bits(std::int64_t b, std::int64_t h, std::int64_t q,
                         std::int64_t k_begin) const override {
    const std::int64_t row = row_of(q);
    if (row < 0 || row >= rows_ || k_begin >= cols_ || k_begin + 64 <= 0) return 0;
    const std::int64_t first = floor_div(k_begin, 64), offset = floor_mod(k_begin, 64);
    const std::int64_t p = plane(b, h);
    const std::uint64_t low = first >= 0 ? word(p, row, first) : 0;
    if (offset == 0) return low;
    const std::uint64_t high = first + 1 < words_ ? word(p, row, first + 1) : 0;
    return low >> offset | high << (64 - offset);
  }
  std::int64_t batch_extent() const override { return bits_->shape[0]; }
  std::int64_t head_extent() const override { return bits_->shape[1]; }

  std::shared_ptr<const Node> bind(const BindContext& context) const override {
    const ScoreShape& s = context.shape;
    const bool extents = (bits_->shape[0] == 1 || bits_->shape[0] == s.batch) &&
                         (bits_->shape[1] == 1 || bits_->shape[1] == s.num_heads);
    const bool lengths =
        context.free_lengths || ((rows_ == 1 || rows_ == s.seq_q) && cols_ == s.seq_kv);
    STOF_CHECK(extents && lengths, kInvalidArgument,
               "dense: expected an array of [1|{}, 1|{}, 1|{}, {}] for scores {}, got {}", s.batch,
               s.num_heads, s.seq_q, s.seq_kv, s.to_string(), shape_text(*bits_));
    return nullptr;
  }
  Spec spec() const override { return {"dense", {{"visible", bits_}}, {}}; }

 private:
  /// One row serves all queries.
  std::int64_t row_of(std::int64_t q) const { return rows_ == 1 && q > 0 ? 0 : q; }

  std::int64_t plane(std::int64_t b, std::int64_t h) const {
    return static_cast<std::int64_t>(entry_index("dense", "batch", b, bits_->shape[0])) *
               bits_->shape[1] +
           static_cast<std::int64_t>(entry_index("dense", "head", h, bits_->shape[1]));
  }
  std::uint64_t word(std::int64_t plane, std::int64_t row, std::int64_t index) const {
    return bits_->words[static_cast<std::size_t>((plane * rows_ + row) * words_ + index)];
  }

  std::int64_t plane_sums() const { return (tile_rows_ + 1) * (tile_cols_ + 1); }
  std::size_t sum_index(std::int64_t plane, std::int64_t tile_row, std::int64_t tile_col) const {
    return static_cast<std::size_t>(plane * plane_sums() + tile_row * (tile_cols_ + 1) + tile_col);
  }
  std::int64_t sum(std::int64_t plane, std::int64_t tile_row, std::int64_t tile_col) const {
    return sums_[sum_index(plane, tile_row, tile_col)];
  }
  void sum_tiles(std::int64_t plane) {
    for (std::int64_t r = 0; r < tile_rows_; ++r)
      for (std::int64_t c = 0; c < tile_cols_; ++c)
        sums_[sum_index(plane, r + 1, c + 1)] =
            sum(plane, r, c + 1) + sum(plane, r + 1, c) - sum(plane, r, c) +
            count_words(plane, {r * 64, std::min(r * 64 + 64, rows_), c * 64,
                                std::min(c * 64 + 64, cols_)});
  }

  /// Visible pairs of a rectangle inside the array, word by word.
  std::int64_t count_words(std::int64_t plane, const TileRect& r) const {
    if (r.q_begin >= r.q_end || r.k_begin >= r.k_end) return 0;
    std::int64_t found = 0;
    for (std::int64_t q = r.q_begin; q < r.q_end; ++q)
      for (std::int64_t w = r.k_begin / 64; w <= (r.k_end - 1) / 64; ++w)
        found += std::popcount(word(plane, q, w) & bits_of_range(w * 64, r.k_begin, r.k_end));
    return found;
  }

  /// The same: whole 64x64 tiles from their sums, the margin word by word.
  std::int64_t count(std::int64_t plane, const TileRect& r) const {
    const std::int64_t r0 = (r.q_begin + 63) / 64, c0 = (r.k_begin + 63) / 64;
    const std::int64_t r1 = r.q_end == rows_ ? tile_rows_ : r.q_end / 64;
    const std::int64_t c1 = r.k_end == cols_ ? tile_cols_ : r.k_end / 64;
    if (r0 >= r1 || c0 >= c1) return count_words(plane, r);
    const TileRect inner{r0 * 64, std::min(r1 * 64, rows_), c0 * 64, std::min(c1 * 64, cols_)};
    return sum(plane, r1, c1) - sum(plane, r0, c1) - sum(plane, r1, c0) + sum(plane, r0, c0) +
           count_words(plane, {r.q_begin, inner.q_begin, r.k_begin, r.k_end}) +
           count_words(plane, {inner.q_end, r.q_end, r.k_begin, r.k_end}) +
           count_words(plane, {inner.q_begin, inner.q_end, r.k_begin, inner.k_begin}) +
           count_words(plane, {inner.q_begin, inner.q_end, inner.k_end, r.k_end});
  }

  std::shared_ptr<const BitArray> bits_;
  std::int64_t rows_, cols_, words_, tile_rows_, tile_cols_;
  /// [planes, tile_rows + 1, tile_cols + 1]: visible pairs above and left of a tile's corner.
  std::vector<std::int64_t> sums_;
};

/// Words of an array; throws where the extents are no array's.
std::int64_t count_words(const BitArray& bits) {
  std::int64_t words = bits.words_per_row();
  for (int i = 0; i < 4; ++i) {
    STOF_CHECK(bits.shape[i] >= 0 && bits.shape[i] <= kMaxPosition, kInvalidArgument,
               "dense: expected extents of 0 to {}, got {}", kMaxPosition, shape_text(bits));
    if (i == 3) break;
    STOF_CHECK(bits.shape[i] == 0 || words <= kMaxPosition / bits.shape[i], kInvalidArgument,
               "dense: an array of {} is too large to be kept as bits", shape_text(bits));
    words *= bits.shape[i];
  }
  STOF_CHECK(bits.shape[0] > 0 && bits.shape[1] > 0, kInvalidArgument,
             "dense: expected at least one batch entry and head, got {}", shape_text(bits));
  return words;
}

void pack(const TensorView& source, const Dims& strides, BitArray& bits) {
  const auto* bytes = static_cast<const std::uint8_t*>(source.data);
  std::size_t out = 0;
  for (std::int64_t b = 0; b < bits.shape[0]; ++b)
    for (std::int64_t h = 0; h < bits.shape[1]; ++h)
      for (std::int64_t q = 0; q < bits.shape[2]; ++q) {
        const std::uint8_t* row = bytes + b * strides[0] + h * strides[1] + q * strides[2];
        for (std::int64_t k = 0; k < bits.shape[3]; k += 64, ++out) {
          const std::int64_t width = std::min<std::int64_t>(64, bits.shape[3] - k);
          for (std::int64_t i = 0; i < width; ++i)
            bits.words[out] |= std::uint64_t{row[(k + i) * strides[3]] != 0} << i;
        }
      }
}

}  // namespace

Mask dense_of_bits(std::shared_ptr<const BitArray> bits) {
  STOF_CHECK(bits != nullptr, kInvalidArgument, "dense: expected an array, got none");
  const auto words = static_cast<std::size_t>(count_words(*bits));
  STOF_CHECK(bits->words.size() == words, kInvalidArgument,
             "dense: expected {} words for {}, got {}", words, shape_text(*bits),
             bits->words.size());
  if (const std::int64_t tail = bits->shape[3] % 64; tail != 0) {
    const auto stride = static_cast<std::size_t>(bits->words_per_row());
    for (std::size_t i = stride - 1; i < words; i += stride)
      STOF_CHECK((bits->words[i] & ~low_bits(tail)) == 0, kInvalidArgument,
                 "dense: expected no bits past the end of row {} of {}", i / stride,
                 shape_text(*bits));
  }
  return Mask(std::make_shared<Dense>(std::move(bits)));
}

Mask dense(const TensorView& visible) {
  STOF_CHECK(visible.dtype == DType::kBool || visible.dtype == DType::kUInt8, kInvalidArgument,
             "dense: expected a bool or uint8 array (not 0 = visible), got {}",
             to_string(visible.dtype));
  const int rank = visible.shape.rank();
  STOF_CHECK(rank == 2 || rank == 4, kInvalidArgument,
             "dense: expected an array [seq_q, seq_kv] or [batch|1, heads|1, seq_q|1, seq_kv], got "
             "one of rank {}",
             rank);
  auto bits = std::make_shared<BitArray>();
  Dims strides{0, 0, 0, 0};
  for (int i = 0; i < rank; ++i) {
    bits->shape[4 - rank + i] = visible.shape[i];
    strides[4 - rank + i] = visible.strides[i];
  }
  const std::int64_t words = count_words(*bits);
  STOF_CHECK(visible.defined() || words == 0, kInvalidArgument, "dense: the array has no data");
  try {
    bits->words.resize(static_cast<std::size_t>(words));
  } catch (const std::bad_alloc&) {
    throw_error(ErrorCode::kOutOfMemory, "dense: {} needs {} bytes as bits", shape_text(*bits),
                words * 8);
  }
  pack(visible, strides, *bits);
  return Mask(std::make_shared<Dense>(std::move(bits)));
}

}  // namespace stof::mask
