#include "stof/block_mask.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/check.h"
#include "core/hash.h"
#include "mask/block/bitmap.h"
#include "mask/block/pattern.h"

namespace stof::mask {
namespace {

template <class T>
std::size_t bytes_of(const std::vector<T>& values) {
  return values.capacity() * sizeof(T);
}

template <class T>
void add_vector(Hasher& hasher, const std::vector<T>& values) {
  hasher.add(values.data(), values.size() * sizeof(T));
}

/// Full and partial columns of one row merged in ascending order.
void append_load_row(std::span<const FullRun> runs, std::span<const PartialTile> partial,
                     std::vector<std::int32_t>& load) {
  auto next = partial.begin();
  for (const FullRun& run : runs) {
    for (; next != partial.end() && next->col < run.begin; ++next) load.push_back(next->col);
    for (std::int32_t col = run.begin; col < run.end; ++col) load.push_back(col);
  }
  for (; next != partial.end(); ++next) load.push_back(next->col);
}

}  // namespace

std::int64_t BlockMask::pattern_index(std::int64_t b, std::int64_t h) const {
  const std::int64_t row = batch_extent_ == 1 ? 0 : b;
  const std::int64_t col = head_extent_ == 1 ? 0 : h;
  return pattern_of_[static_cast<std::size_t>(row * head_extent_ + col)];
}

bool BlockMask::visible(std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t k) const {
  const BlockPattern& p = pattern(pattern_index(b, h));
  const std::int64_t row = q / kOuterTile, col = k / kOuterTile;
  const auto partial = partial_of_row(p, row);
  const auto tile =
      std::lower_bound(partial.begin(), partial.end(), col,
                       [](const PartialTile& t, std::int64_t wanted) { return t.col < wanted; });
  if (tile != partial.end() && tile->col == col)
    return bitmap_bit(bitmaps_[static_cast<std::size_t>(tile->bitmap)], q % kOuterTile,
                      k % kOuterTile);
  const auto runs = full_runs_of_row(p, row);
  const auto after =
      std::upper_bound(runs.begin(), runs.end(), col,
                       [](std::int64_t wanted, const FullRun& r) { return wanted < r.begin; });
  return after != runs.begin() && col < std::prev(after)->end;
}

BlockMaskArrays BlockMask::arrays(std::int64_t index) const {
  const BlockPattern& p = pattern(index);
  const auto num_full = static_cast<std::size_t>(num_full_tiles(p));
  BlockMaskArrays out;
  try {
    out.full_col_idx.reserve(num_full);
    out.load_col_idx.reserve(num_full + p.partial.size());
  } catch (const std::bad_alloc&) {
    throw_error(ErrorCode::kOutOfMemory,
                "block mask {}: pattern {} has {} full tiles, too many to expand; walk its runs",
                shape_.to_string(), index, num_full);
  }
  out.full_row_ptr.push_back(0);
  out.load_row_ptr.push_back(0);
  out.part_row_ptr = p.partial_ptr;
  for (std::int64_t row = 0; row < num_tile_rows(); ++row) {
    const auto runs = full_runs_of_row(p, row);
    for (const FullRun& run : runs)
      for (std::int32_t col = run.begin; col < run.end; ++col) out.full_col_idx.push_back(col);
    append_load_row(runs, partial_of_row(p, row), out.load_col_idx);
    out.full_row_ptr.push_back(static_cast<std::int64_t>(out.full_col_idx.size()));
    out.load_row_ptr.push_back(static_cast<std::int64_t>(out.load_col_idx.size()));
  }
  out.part_col_idx.reserve(p.partial.size());
  out.part_bitmap.reserve(p.partial.size());
  for (const PartialTile& tile : p.partial) {
    out.part_col_idx.push_back(tile.col);
    out.part_bitmap.push_back(tile.bitmap);
  }
  return out;
}

std::size_t BlockMask::memory_bytes() const {
  std::size_t bytes = bytes_of(pattern_of_) + bytes_of(patterns_) + bytes_of(bitmaps_);
  for (const BlockPattern& p : patterns_)
    bytes += bytes_of(p.full_run_ptr) + bytes_of(p.full_runs) + bytes_of(p.partial_ptr) +
             bytes_of(p.partial);
  return bytes;
}

std::string BlockMask::describe() const {
  std::int64_t full = 0, partial = 0;
  for (const BlockPattern& p : patterns_) {
    full += num_full_tiles(p);
    partial += static_cast<std::int64_t>(p.partial.size());
  }
  const std::int64_t all = num_patterns() * num_tile_rows() * num_tile_cols();
  return fmt::format(
      "block mask {}: {} pattern(s) of {}x{} tiles, {} full + {} partial + {} empty, "
      "{} distinct bitmap(s), {} bytes",
      shape_.to_string(), num_patterns(), num_tile_rows(), num_tile_cols(), full, partial,
      all - full - partial, bitmaps_.size(), memory_bytes());
}

std::string BlockMask::to_json() const {
  nlohmann::ordered_json patterns = nlohmann::ordered_json::array();
  for (const BlockPattern& p : patterns_)
    patterns.push_back({{"full_tiles", num_full_tiles(p)},
                        {"full_runs", p.full_runs.size()},
                        {"partial_tiles", p.partial.size()}});
  const nlohmann::ordered_json json = {
      {"shape", {shape_.batch, shape_.num_heads, shape_.seq_q, shape_.seq_kv}},
      {"outer_tile", kOuterTile},
      {"inner_tile", kInnerTile},
      {"tile_rows", num_tile_rows()},
      {"tile_cols", num_tile_cols()},
      {"extents", {batch_extent_, head_extent_}},
      {"pattern_of", pattern_of_},
      {"patterns", patterns},
      {"distinct_bitmaps", bitmaps_.size()},
      {"memory_bytes", memory_bytes()},
      {"fingerprint", fingerprint().hex()},
  };
  return json.dump();
}

Fingerprint pattern_fingerprint(const BlockPattern& pattern) {
  Hasher hasher;
  add_vector(hasher, pattern.full_run_ptr);
  add_vector(hasher, pattern.full_runs);
  add_vector(hasher, pattern.partial_ptr);
  add_vector(hasher, pattern.partial);
  return hasher.finish();
}

Fingerprint BlockMask::fingerprint() const {
  Hasher hasher;
  hasher.add("stof.block_mask/1");
  for (std::int64_t extent : {shape_.batch, shape_.num_heads, shape_.seq_q, shape_.seq_kv,
                              batch_extent_, head_extent_, num_patterns()})
    hasher.add(extent);
  add_vector(hasher, pattern_of_);
  for (const BlockPattern& p : patterns_) hasher.add(pattern_fingerprint(p));
  add_vector(hasher, bitmaps_);
  return hasher.finish();
}

}  // namespace stof::mask
