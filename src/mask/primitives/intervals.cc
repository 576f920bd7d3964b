// intervals(): per column, the rows it is hidden from (FlashMask).

#include <algorithm>

#include "mask/arguments.h"
#include "mask/node.h"

namespace stof::mask {
namespace {

/// One hidden interval per column, [begin, end); begin == end hides nothing. Each column's own
/// intervals are disjoint, apart and ascending over the slots.
struct Slot {
  std::vector<std::int64_t> begin, end;
  /// Per 64 columns: every interval lies in [outer_begin, outer_end), every column is hidden from
  /// [inner_begin, inner_end).
  std::vector<std::int64_t> outer_begin, outer_end, inner_begin, inner_end;

  explicit Slot(std::size_t columns) : begin(columns), end(columns) {}

  void summarise() {
    for (std::size_t first = 0; first < begin.size(); first += 64) {
      std::int64_t low = kUnbounded, high = 0, late = 0, early = kUnbounded;
      for (std::size_t k = first; k < std::min(first + 64, begin.size()); ++k) {
        late = std::max(late, begin[k]);
        early = std::min(early, end[k]);
        if (begin[k] == end[k]) continue;
        low = std::min(low, begin[k]);
        high = std::max(high, end[k]);
      }
      outer_begin.push_back(low);
      outer_end.push_back(high);
      inner_begin.push_back(late);
      inner_end.push_back(early);
    }
  }
};

class Intervals final : public Node {
 public:
  Intervals(std::vector<Slot> slots, std::int64_t columns)
      : slots_(std::move(slots)), columns_(columns) {
    for (Slot& slot : slots_) slot.summarise();
  }

  bool visible(std::int64_t, std::int64_t, std::int64_t q, std::int64_t k) const override {
    if (q < 0 || k < 0 || k >= columns_) return false;
    return column_class(q, q + 1, static_cast<std::size_t>(k)) == TileClass::kFull;
  }
  TileClass classify(std::int64_t, std::int64_t, const TileRect& rect) const override {
    const ClippedRect c = clip(rect, kUnbounded, columns_);
    if (c.empty) return TileClass::kEmpty;
    const std::int64_t q0 = c.rect.q_begin, q1 = c.rect.q_end;
    bool some = false, every = !c.clipped;
    std::int64_t k = c.rect.k_begin;
    while (k < c.rect.k_end) {
      const std::int64_t next = std::min(k / 64 * 64 + 64, c.rect.k_end);
      TileClass found = group_class(q0, q1, static_cast<std::size_t>(k / 64));
      if (found == TileClass::kPartial) {  // the summary can't tell
        found = column_class(q0, q1, static_cast<std::size_t>(k));
        for (std::int64_t i = k + 1; i < next && found != TileClass::kPartial; ++i)
          if (column_class(q0, q1, static_cast<std::size_t>(i)) != found)
            found = TileClass::kPartial;
      }
      some |= found != TileClass::kEmpty;
      every &= found == TileClass::kFull;
      if (some && !every) return TileClass::kPartial;
      k = next;
    }
    return every ? TileClass::kFull : some ? TileClass::kPartial : TileClass::kEmpty;
  }
  std::uint64_t row_bits(std::int64_t, std::int64_t, std::int64_t q,
                         std::int64_t k_begin) const override {
    if (q < 0) return 0;
    std::uint64_t bits = bits_of_range(k_begin, 0, columns_);
    const std::int64_t first = std::max<std::int64_t>(k_begin, 0);
    const std::int64_t last = std::min(k_begin + 64, columns_);
    for (const Slot& slot : slots_)
      for (std::int64_t k = first; k < last; ++k) {
        const auto i = static_cast<std::size_t>(k);
        const bool hidden = slot.begin[i] <= q && q < slot.end[i];
        bits &= ~(static_cast<std::uint64_t>(hidden) << (k - k_begin));
      }
    return bits;
  }
  std::shared_ptr<const Node> bind(const BindContext& context) const override {
    STOF_CHECK(context.free_lengths || columns_ == context.shape.seq_kv, kInvalidArgument,
               "intervals: expected lists of length {} (the keys of {}), got {}",
               context.shape.seq_kv, context.shape.to_string(), columns_);
    return nullptr;
  }
  Spec spec() const override {
    IntList begin, end;
    for (const Slot& slot : slots_) {
      begin.insert(begin.end(), slot.begin.begin(), slot.begin.end());
      end.insert(end.end(), slot.end.begin(), slot.end.end());
    }
    return {"intervals",
            {{"lists", static_cast<std::int64_t>(slots_.size())},
             {"begin", std::move(begin)},
             {"end", std::move(end)}},
            {}};
  }

 private:
  /// Of one column in rows [q0, q1). As its intervals don't touch, only one alone can hide all
  /// rows.
  TileClass column_class(std::int64_t q0, std::int64_t q1, std::size_t k) const {
    for (const Slot& slot : slots_) {
      if (slot.begin[k] <= q0 && q1 <= slot.end[k]) return TileClass::kEmpty;
      if (slot.begin[k] < q1 && q0 < slot.end[k] && slot.begin[k] < slot.end[k])
        return TileClass::kPartial;
    }
    return TileClass::kFull;
  }
  /// Of 64 columns, from their summaries; kPartial where they don't decide.
  TileClass group_class(std::int64_t q0, std::int64_t q1, std::size_t group) const {
    bool clear = true;
    for (const Slot& slot : slots_) {
      if (slot.inner_begin[group] <= q0 && q1 <= slot.inner_end[group]) return TileClass::kEmpty;
      clear &= slot.outer_begin[group] >= q1 || slot.outer_end[group] <= q0;
    }
    return clear ? TileClass::kFull : TileClass::kPartial;
  }

  std::vector<Slot> slots_;
  std::int64_t columns_;
};

}  // namespace

Mask intervals(const std::vector<HiddenRows>& hidden) {
  STOF_CHECK(!hidden.empty(), kInvalidArgument, "intervals(): expected at least one list");
  const std::size_t columns = hidden.front().begin.size();
  for (std::size_t i = 0; i < hidden.size(); ++i) {
    STOF_CHECK(hidden[i].begin.size() == columns && hidden[i].end.size() == columns,
               kInvalidArgument,
               "intervals(list {}): expected begin and end of length {}, got {} and {}", i, columns,
               hidden[i].begin.size(), hidden[i].end.size());
    for (std::size_t k = 0; k < columns; ++k)
      STOF_CHECK(hidden[i].begin[k] >= 0 && hidden[i].begin[k] <= kMaxPosition &&
                     hidden[i].end[k] >= 0 && hidden[i].end[k] <= kMaxPosition,
                 kInvalidArgument,
                 "intervals(list {}): expected rows of 0 to {}, got [{}, {}) for column {}", i,
                 kMaxPosition, hidden[i].begin[k], hidden[i].end[k], k);
  }

  std::vector<Slot> slots(1, Slot(columns));
  std::vector<std::pair<std::int64_t, std::int64_t>> column;
  for (std::size_t k = 0; k < columns; ++k) {
    column.clear();
    for (const HiddenRows& list : hidden)
      if (list.begin[k] < list.end[k]) column.emplace_back(list.begin[k], list.end[k]);
    std::sort(column.begin(), column.end());
    std::size_t used = 0;
    for (const auto& [begin, end] : column) {
      if (used > 0 && begin <= slots[used - 1].end[k]) {
        slots[used - 1].end[k] = std::max(slots[used - 1].end[k], end);
        continue;
      }
      if (used == slots.size()) slots.emplace_back(columns);
      slots[used].begin[k] = begin;
      slots[used].end[k] = end;
      ++used;
    }
  }
  return Mask(std::make_shared<Intervals>(std::move(slots), static_cast<std::int64_t>(columns)));
}

}  // namespace stof::mask
