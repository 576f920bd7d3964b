// The invariants of a BlockMask, checked in the order in which later checks rely on earlier ones.

#include <map>
#include <string>
#include <vector>

#include "core/check.h"
#include "mask/block/bitmap.h"
#include "mask/block/bitmap_table.h"
#include "mask/block/builder.h"
#include "mask/block/pattern.h"

namespace stof::mask {
namespace {

/// Empty where everything holds; else the field and what is wrong with it.
using Fault = std::string;

/// What a bitmap is as a whole, so that most tiles are judged without looking at it again.
enum class BitmapKind : std::uint8_t { kNone, kSome, kAll };

BitmapKind kind_of(const OuterBitmap& bitmap) {
  std::uint64_t any = 0, every = kAllOnes;
  for (std::uint64_t word : bitmap) {
    any |= word;
    every &= word;
  }
  if (any == 0) return BitmapKind::kNone;
  return every == kAllOnes ? BitmapKind::kAll : BitmapKind::kSome;
}

/// For a tile at the ragged edge: bits past the end are 0, and inside not all are 1.
Fault check_edge_bitmap(const OuterBitmap& bitmap, std::int64_t rows, std::int64_t cols) {
  bool all_inside = true;
  for (std::int64_t word = 0; word < 64; ++word) {
    const std::int64_t inner_row = word % 8, inner_col = word / 8;
    const std::uint64_t inside = inner_tile_bits(rows - inner_row * 8, cols - inner_col * 8);
    const std::uint64_t bits = bitmap[static_cast<std::size_t>(word)];
    if ((bits & ~inside) != 0) return "has bits past the end of the sequence";
    all_inside &= bits == inside;
  }
  return all_inside ? "is full, but stored as partial" : "";
}

class Checker {
 public:
  explicit Checker(const BlockMask& mask) : mask_(mask) {}

  Fault find() {
    Fault fault = check_shape();
    if (fault.empty()) fault = check_bitmaps();
    for (std::int64_t i = 0; fault.empty() && i < mask_.num_patterns(); ++i) {
      fault = check_pattern(i);
      if (!fault.empty()) fault = fmt::format("pattern.{}.{}", i, fault);
    }
    if (fault.empty()) fault = check_distinct_patterns();
    if (fault.empty() && first_uses_ != num_bitmaps())
      fault = fmt::format("bitmaps: expected every one to be used, got {} used of {}", first_uses_,
                          num_bitmaps());
    return fault;
  }

 private:
  std::int64_t num_bitmaps() const { return static_cast<std::int64_t>(mask_.bitmaps().size()); }

  Fault check_shape() const {
    const ScoreShape& shape = mask_.shape();
    constexpr std::int64_t kMax = 0x7FFFFFFF;
    for (std::int64_t extent : {shape.batch, shape.num_heads, shape.seq_q, shape.seq_kv})
      if (extent < 1 || extent > kMax)
        return fmt::format("shape: expected extents of 1 to {}, got {}", kMax, shape.to_string());
    if (mask_.batch_extent() != 1 && mask_.batch_extent() != shape.batch)
      return fmt::format("batch_extent: expected 1 or {}, got {}", shape.batch,
                         mask_.batch_extent());
    if (mask_.head_extent() != 1 && mask_.head_extent() != shape.num_heads)
      return fmt::format("head_extent: expected 1 or {}, got {}", shape.num_heads,
                         mask_.head_extent());
    return "";
  }

  Fault check_bitmaps() {
    BitmapTable distinct;
    kinds_.reserve(mask_.bitmaps().size());
    for (std::int64_t i = 0; i < num_bitmaps(); ++i) {
      const OuterBitmap& bitmap = mask_.bitmaps()[static_cast<std::size_t>(i)];
      const std::int32_t same = distinct.intern(bitmap);
      if (same != i) return fmt::format("bitmaps: expected distinct ones, got {} == {}", i, same);
      kinds_.push_back(kind_of(bitmap));
    }
    return "";
  }

  Fault check_distinct_patterns() const {
    std::map<Fingerprint, std::int64_t> known;
    for (std::int64_t i = 0; i < mask_.num_patterns(); ++i) {
      const auto [entry, is_new] = known.emplace(pattern_fingerprint(mask_.pattern(i)), i);
      if (!is_new) return fmt::format("pattern.{}: equals pattern.{}", i, entry->second);
    }
    return "";
  }

  Fault check_ptr(const char* name, const std::vector<std::int64_t>& ptr, std::size_t total) const {
    const auto expected = static_cast<std::size_t>(mask_.num_tile_rows()) + 1;
    if (ptr.size() != expected)
      return fmt::format("{}: expected {} entries, got {}", name, expected, ptr.size());
    if (ptr.front() != 0) return fmt::format("{}[0]: expected 0, got {}", name, ptr.front());
    for (std::size_t i = 1; i < ptr.size(); ++i)
      if (ptr[i] < ptr[i - 1])
        return fmt::format("{}[{}]: expected at least {}, got {}", name, i, ptr[i - 1], ptr[i]);
    if (static_cast<std::size_t>(ptr.back()) != total)
      return fmt::format("{}: expected to end at {}, got {}", name, total, ptr.back());
    return "";
  }

  Fault check_pattern(std::int64_t index) {
    const BlockPattern& p = mask_.pattern(index);
    Fault fault = check_ptr("full_run_ptr", p.full_run_ptr, p.full_runs.size());
    if (fault.empty()) fault = check_ptr("partial_ptr", p.partial_ptr, p.partial.size());
    for (std::int64_t row = 0; fault.empty() && row < mask_.num_tile_rows(); ++row) {
      fault = check_runs(full_runs_of_row(p, row));
      if (fault.empty()) fault = check_partial(p, row);
      if (!fault.empty()) fault = fmt::format("{} (tile row {})", fault, row);
    }
    return fault;
  }

  Fault check_runs(std::span<const FullRun> runs) const {
    std::int64_t previous_end = -1;  // a run may begin at 0, and runs must not touch
    for (const FullRun& run : runs) {
      if (run.begin <= previous_end || run.end <= run.begin || run.end > mask_.num_tile_cols())
        return fmt::format(
            "full_runs: expected ascending, separate, non-empty runs below {}, got [{}, {}) after "
            "one that ends at {}",
            mask_.num_tile_cols(), run.begin, run.end, previous_end);
      previous_end = run.end;
    }
    return "";
  }

  Fault check_partial(const BlockPattern& p, std::int64_t row) {
    const auto runs = full_runs_of_row(p, row);
    auto run = runs.begin();
    std::int64_t previous = -1;
    for (const PartialTile& tile : partial_of_row(p, row)) {
      if (tile.col <= previous || tile.col >= mask_.num_tile_cols())
        return fmt::format("partial: expected ascending columns below {}, got {} after {}",
                           mask_.num_tile_cols(), tile.col, previous);
      previous = tile.col;
      while (run != runs.end() && run->end <= tile.col) ++run;
      if (run != runs.end() && run->begin <= tile.col)
        return fmt::format("partial: column {} is also in the full run [{}, {})", tile.col,
                           run->begin, run->end);
      Fault fault = check_tile_bitmap(tile, row);
      if (!fault.empty()) return fault;
    }
    return "";
  }

  Fault check_tile_bitmap(const PartialTile& tile, std::int64_t row) {
    if (tile.bitmap < 0 || tile.bitmap >= num_bitmaps())
      return fmt::format("partial: expected bitmap indices below {}, got {}", num_bitmaps(),
                         tile.bitmap);
    if (tile.bitmap > first_uses_)
      return fmt::format("partial: expected bitmaps numbered by first use, got {} before {}",
                         tile.bitmap, first_uses_);
    if (tile.bitmap == first_uses_) ++first_uses_;
    const std::int64_t rows = tile_extent(row, mask_.shape().seq_q);
    const std::int64_t cols = tile_extent(tile.col, mask_.shape().seq_kv);
    Fault fault;
    if (kinds_[static_cast<std::size_t>(tile.bitmap)] == BitmapKind::kNone) {
      fault = "is empty, but stored as partial";
    } else if (rows < kOuterTile || cols < kOuterTile) {
      fault = check_edge_bitmap(mask_.bitmaps()[static_cast<std::size_t>(tile.bitmap)], rows, cols);
    } else if (kinds_[static_cast<std::size_t>(tile.bitmap)] == BitmapKind::kAll) {
      fault = "is full, but stored as partial";
    }
    return fault.empty()
               ? fault
               : fmt::format("partial: bitmap {} at column {} {}", tile.bitmap, tile.col, fault);
  }

  const BlockMask& mask_;
  std::vector<BitmapKind> kinds_;
  std::int64_t first_uses_ = 0;  ///< bitmaps seen so far, which must be numbered 0, 1, 2, ...
};

}  // namespace

std::string BlockMaskBuilder::find_fault(const BlockMask& mask) {
  const auto entries = static_cast<std::size_t>(mask.batch_extent_ * mask.head_extent_);
  if (mask.pattern_of_.size() != entries)
    return fmt::format("pattern_of: expected {} entries, got {}", entries, mask.pattern_of_.size());
  std::int32_t first_uses = 0;
  for (const std::int32_t index : mask.pattern_of_) {
    if (index < 0 || index > first_uses || index >= mask.num_patterns())
      return fmt::format(
          "pattern_of: expected indices below {}, numbered by first use, got {} before {}",
          mask.num_patterns(), index, first_uses);
    if (index == first_uses) ++first_uses;
  }
  if (first_uses != mask.num_patterns())
    return fmt::format("pattern_of: expected every pattern to be used, got {} used of {}",
                       first_uses, mask.num_patterns());
  return Checker(mask).find();
}

void BlockMask::validate() const {
  const std::string fault = BlockMaskBuilder::find_fault(*this);
  STOF_CHECK(fault.empty(), kInternal, "block mask {}: {}; please report it", shape_.to_string(),
             fault);
}

}  // namespace stof::mask
