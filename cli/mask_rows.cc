#include "mask_rows.h"

namespace stof::cli {
namespace {

void append_range(KeyRanges& ranges, std::int64_t begin, std::int64_t end) {
  if (!ranges.empty() && ranges.back().second == begin)
    ranges.back().second = end;
  else
    ranges.emplace_back(begin, end);
}

void collect_ranges(const MaskSource& source, std::int64_t b, std::int64_t h,
                    const mask::TileRect& row, KeyRanges& ranges) {
  const mask::TileClass found = source.classify(b, h, row);
  if (found == mask::TileClass::kEmpty) return;
  if (found == mask::TileClass::kFull) return append_range(ranges, row.k_begin, row.k_end);
  if (row.k_end - row.k_begin <= 64) {
    for (std::int64_t k = row.k_begin; k < row.k_end; ++k)
      if (source.visible(b, h, row.q_begin, k)) append_range(ranges, k, k + 1);
    return;
  }
  const std::int64_t middle = row.k_begin + (row.k_end - row.k_begin) / 2;
  collect_ranges(source, b, h, {row.q_begin, row.q_end, row.k_begin, middle}, ranges);
  collect_ranges(source, b, h, {row.q_begin, row.q_end, middle, row.k_end}, ranges);
}

}  // namespace

KeyRanges visible_ranges(const MaskSource& source, std::int64_t b, std::int64_t h, std::int64_t q) {
  KeyRanges ranges;
  collect_ranges(source, b, h, {q, q + 1, 0, source.shape.seq_kv}, ranges);
  return ranges;
}

std::string format_ranges(const KeyRanges& ranges) {
  if (ranges.empty()) return "nothing";
  std::string text;
  for (const auto& [begin, end] : ranges) {
    if (!text.empty()) text += ", ";
    text += std::to_string(begin);
    if (end - begin > 1) text += (end - begin > 2 ? ".." : ", ") + std::to_string(end - 1);
  }
  return text;
}

}  // namespace stof::cli
