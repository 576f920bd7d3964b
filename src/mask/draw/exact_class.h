#pragma once
// The class of a rectangle, where classify() may only say "look closer".

#include "stof/mask.h"

namespace stof::mask {

/// classify() made exact: where it says partial, looks until a visible and a hidden pair are found.
/// `source` has classify() and visible(), as Mask does.
template <class Source>
TileClass exact_class(const Source& source, std::int64_t b, std::int64_t h, const TileRect& rect) {
  const std::int64_t rows = rect.q_end - rect.q_begin;
  const std::int64_t cols = rect.k_end - rect.k_begin;
  if (rows == 1 && cols == 1)
    return source.visible(b, h, rect.q_begin, rect.k_begin) ? TileClass::kFull : TileClass::kEmpty;
  const TileClass found = source.classify(b, h, rect);
  if (found != TileClass::kPartial) return found;
  TileRect first = rect, second = rect;
  if (rows > cols)
    first.q_end = second.q_begin = rect.q_begin + rows / 2;
  else
    first.k_end = second.k_begin = rect.k_begin + cols / 2;
  const TileClass first_class = exact_class(source, b, h, first);
  if (first_class == TileClass::kPartial) return first_class;
  return exact_class(source, b, h, second) == first_class ? first_class : TileClass::kPartial;
}

/// '#' full, '+' partial, '.' empty.
inline char symbol(TileClass tile_class) {
  switch (tile_class) {
    case TileClass::kFull:
      return '#';
    case TileClass::kPartial:
      return '+';
    case TileClass::kEmpty:
      break;
  }
  return '.';
}

}  // namespace stof::mask
