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

mask::TileClass exact_class(const MaskSource& source, std::int64_t b, std::int64_t h,
                            const mask::TileRect& rect) {
  const std::int64_t rows = rect.q_end - rect.q_begin;
  const std::int64_t cols = rect.k_end - rect.k_begin;
  if (rows == 1 && cols == 1)
    return source.visible(b, h, rect.q_begin, rect.k_begin) ? mask::TileClass::kFull
                                                            : mask::TileClass::kEmpty;
  const mask::TileClass found = source.classify(b, h, rect);
  if (found != mask::TileClass::kPartial) return found;
  mask::TileRect first = rect, second = rect;
  if (rows > cols)
    first.q_end = second.q_begin = rect.q_begin + rows / 2;
  else
    first.k_end = second.k_begin = rect.k_begin + cols / 2;
  const mask::TileClass first_class = exact_class(source, b, h, first);
  if (first_class == mask::TileClass::kPartial) return first_class;
  const mask::TileClass second_class = exact_class(source, b, h, second);
  return second_class == first_class ? first_class : mask::TileClass::kPartial;
}

}  // namespace stof::cli
