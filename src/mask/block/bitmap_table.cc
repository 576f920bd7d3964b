#include "mask/block/bitmap_table.h"

#include <limits>
#include <utility>

#include "core/check.h"
#include "core/hash.h"

namespace stof::mask {
namespace {

constexpr std::int32_t kFree = -1;
constexpr std::size_t kFirstSlots = 64;

}  // namespace

BitmapTable::BitmapTable() : slots_(kFirstSlots, kFree) {}

std::size_t BitmapTable::find_slot(const OuterBitmap& bitmap) const {
  const std::size_t wrap = slots_.size() - 1;
  std::size_t slot = fingerprint_of(bitmap.data(), sizeof bitmap).low & wrap;
  while (slots_[slot] != kFree && bitmaps_[static_cast<std::size_t>(slots_[slot])] != bitmap)
    slot = (slot + 1) & wrap;
  return slot;
}

std::int32_t BitmapTable::intern(const OuterBitmap& bitmap) {
  std::size_t slot = find_slot(bitmap);
  if (slots_[slot] != kFree) return slots_[slot];
  STOF_CHECK(bitmaps_.size() < std::numeric_limits<std::int32_t>::max(), kUnsupported,
             "block mask: expected at most 2^31-1 distinct partial tiles, got more; split the "
             "sequence or use a coarser mask");
  if ((bitmaps_.size() + 1) * 2 > slots_.size()) {
    grow();
    slot = find_slot(bitmap);
  }
  slots_[slot] = static_cast<std::int32_t>(bitmaps_.size());
  bitmaps_.push_back(bitmap);
  return slots_[slot];
}

void BitmapTable::grow() {
  slots_.assign(slots_.size() * 2, kFree);
  for (std::size_t i = 0; i < bitmaps_.size(); ++i)
    slots_[find_slot(bitmaps_[i])] = static_cast<std::int32_t>(i);
}

std::vector<OuterBitmap> BitmapTable::release() {
  slots_.assign(kFirstSlots, kFree);
  return std::exchange(bitmaps_, {});
}

}  // namespace stof::mask
