#include "expr/int_table.h"

#include <algorithm>
#include <limits>

#include "core/bits.h"
#include "core/check.h"

namespace stof::expr {
namespace {

using I = std::int64_t;

constexpr I kFanout = 16;
/// Rows that range() looks at one by one.
constexpr I kMaxRows = 256;

constexpr Interval kNothing{std::numeric_limits<I>::max(), std::numeric_limits<I>::min()};

template <class T>
bool fits(const Interval& range) {
  return range.lo >= std::numeric_limits<T>::min() && range.hi <= std::numeric_limits<T>::max();
}

DType narrowest(const Interval& range) {
  if (fits<std::int8_t>(range)) return DType::kInt8;
  if (fits<std::int16_t>(range)) return DType::kInt16;
  return fits<std::int32_t>(range) ? DType::kInt32 : DType::kInt64;
}

/// Calls `visit` with the elements as the type they are kept in.
template <class Visit>
decltype(auto) with_elements(const TensorView& view, Visit&& visit) {
  switch (view.dtype) {
    case DType::kInt8:
      return visit(static_cast<const std::int8_t*>(view.data));
    case DType::kInt16:
      return visit(static_cast<const std::int16_t*>(view.data));
    case DType::kInt32:
      return visit(static_cast<const std::int32_t*>(view.data));
    default:
      return visit(static_cast<const std::int64_t*>(view.data));
  }
}

/// The places along one dimension that an interval of indices reads.
struct Places {
  Interval from_begin = kNothing;  ///< indices of at least 0
  Interval from_end = kNothing;    ///< those below 0, as places
  bool outside = false;

  Interval all() const { return join(from_begin, from_end); }
};

Places places_of(const Interval& index, I extent) {
  Places places;
  places.outside = index.lo < -extent || index.hi >= extent;
  const Interval positive{std::max<I>(index.lo, 0), std::min(index.hi, extent - 1)};
  if (positive.lo <= positive.hi) places.from_begin = positive;
  const Interval negative{std::max(index.lo, -extent), std::min<I>(index.hi, -1)};
  if (negative.lo <= negative.hi) places.from_end = {negative.lo + extent, negative.hi + extent};
  return places;
}

std::vector<I> row_major(const std::string& name, const TensorView& view) {
  const Tensor copy = Tensor::copy_of(view);
  std::vector<I> values(static_cast<std::size_t>(copy.size()));
  const auto read = [&](const auto* data) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<I>(data[i]);
  };
  switch (view.dtype) {
    case DType::kBool: {
      const auto* data = static_cast<const std::uint8_t*>(copy.data());
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = data[i] != 0 ? 1 : 0;
      break;
    }
    case DType::kInt32:
      read(static_cast<const std::int32_t*>(copy.data()));
      break;
    case DType::kInt64:
      read(static_cast<const std::int64_t*>(copy.data()));
      break;
    default:
      throw_error(ErrorCode::kInvalidArgument,
                  "predicate: table {}: expected bool, int32 or int64, got {}", name,
                  to_string(view.dtype));
  }
  return values;
}

}  // namespace

IntTable::IntTable(std::string name, const Dims& shape, std::span<const std::int64_t> values)
    : name_(std::move(name)) {
  store(shape, values);
}

IntTable::IntTable(std::string name, const TensorView& values) : name_(std::move(name)) {
  STOF_CHECK(values.defined() || num_elements(values.shape) == 0, kInvalidArgument,
             "predicate: table {}: expected values for its shape {}, got no data", name_,
             values.shape.to_string());
  store(values.shape, row_major(name_, values));
}

void IntTable::store(const Dims& shape, std::span<const std::int64_t> values) {
  const I size = num_elements(shape);
  STOF_CHECK(size == static_cast<I>(values.size()), kInvalidArgument,
             "predicate: table {}: expected {} values for its shape {}, got {}", name_, size,
             shape.to_string(), values.size());
  std::vector<Interval> level(static_cast<std::size_t>(ceil_div(size, kFanout)), kNothing);
  Interval whole{0, 0};
  for (std::size_t i = 0; i < values.size(); ++i) {
    Interval& part = level[i / kFanout];
    part = join(part, {values[i], values[i]});
    whole = join(whole, {values[i], values[i]});
  }
  while (!level.empty()) {
    levels_.push_back(std::move(level));
    const std::vector<Interval>& below = levels_.back();
    if (below.size() <= static_cast<std::size_t>(kFanout)) break;
    level.assign((below.size() + kFanout - 1) / kFanout, kNothing);
    for (std::size_t i = 0; i < below.size(); ++i)
      level[i / kFanout] = join(level[i / kFanout], below[i]);
  }
  values_ = Tensor(narrowest(whole), shape);
  const auto write = [&](auto* out) {
    for (std::size_t i = 0; i < values.size(); ++i)
      out[i] = static_cast<std::remove_reference_t<decltype(*out)>>(values[i]);
  };
  switch (values_.dtype()) {
    case DType::kInt8:
      return write(static_cast<std::int8_t*>(values_.data()));
    case DType::kInt16:
      return write(static_cast<std::int16_t*>(values_.data()));
    case DType::kInt32:
      return write(static_cast<std::int32_t*>(values_.data()));
    default:
      return write(static_cast<std::int64_t*>(values_.data()));
  }
}

std::int64_t IntTable::operator[](std::int64_t element) const {
  return with_elements(view(), [&](const auto* data) { return static_cast<I>(data[element]); });
}

std::vector<std::int64_t> IntTable::values() const {
  std::vector<I> out(static_cast<std::size_t>(size()));
  with_elements(view(), [&](const auto* data) { std::copy_n(data, out.size(), out.begin()); });
  return out;
}

Interval IntTable::range_of(std::int64_t first, std::int64_t last) const {
  Interval out = kNothing;
  const auto take = [&](I i) {
    const I value = (*this)[i];
    out = join(out, {value, value});
  };
  for (; first <= last && first % kFanout != 0; ++first) take(first);
  for (; first <= last && (last + 1) % kFanout != 0 && last + 1 != size(); --last) take(last);
  if (first > last) return out;
  // Whole groups from here on; the last one of a level may be short.
  first /= kFanout;
  last /= kFanout;
  for (std::size_t l = 0; l < levels_.size(); ++l) {
    const std::vector<Interval>& level = levels_[l];
    const auto at = [&](I i) { return level[static_cast<std::size_t>(i)]; };
    const bool top = l + 1 == levels_.size();
    for (; first <= last && (top || first % kFanout != 0); ++first) out = join(out, at(first));
    const I end = static_cast<I>(level.size());
    for (; first <= last && (last + 1) % kFanout != 0 && last + 1 != end; --last)
      out = join(out, at(last));
    if (first > last) break;
    first /= kFanout;
    last /= kFanout;
  }
  return out;
}

Interval IntTable::range(std::span<const Interval> indices) const {
  const int rank = shape().rank();
  if (rank == 0) return {(*this)[0], (*this)[0]};
  bool outside = false;
  std::array<Interval, Dims::kMaxRank> leading;
  I rows = 1, first_row = 0, last_row = 0;
  for (int d = 0; d + 1 < rank; ++d) {
    const auto at = static_cast<std::size_t>(d);
    const Places places = places_of(indices[at], shape()[d]);
    outside |= places.outside;
    leading[at] = places.all();
    if (leading[at] == kNothing) return {0, 0};
    rows =
        std::min(kMaxRows + 1, rows * std::min(kMaxRows + 1, leading[at].hi - leading[at].lo + 1));
    first_row = first_row * shape()[d] + leading[at].lo;
    last_row = last_row * shape()[d] + leading[at].hi;
  }
  const I cols = shape()[rank - 1];
  const Places places = places_of(indices[static_cast<std::size_t>(rank - 1)], cols);
  outside |= places.outside;
  Interval out = outside ? Interval{0, 0} : kNothing;
  if (places.all() == kNothing) return {0, 0};
  if (rows > kMaxRows) {
    const Interval span = places.all();
    return join(out, range_of(first_row * cols + span.lo, last_row * cols + span.hi));
  }
  // Row after row, the last leading index fastest.
  std::array<I, Dims::kMaxRank> at{};
  for (int d = 0; d + 1 < rank; ++d)
    at[static_cast<std::size_t>(d)] = leading[static_cast<std::size_t>(d)].lo;
  for (I row = 0; row < rows; ++row) {
    I start = 0;
    for (int d = 0; d + 1 < rank; ++d) start = start * shape()[d] + at[static_cast<std::size_t>(d)];
    for (const Interval& part : {places.from_begin, places.from_end})
      if (part != kNothing)
        out = join(out, range_of(start * cols + part.lo, start * cols + part.hi));
    for (int d = rank - 2; d >= 0; --d) {
      const auto i = static_cast<std::size_t>(d);
      if (++at[i] <= leading[i].hi) break;
      at[i] = leading[i].lo;
    }
  }
  return out;
}

}  // namespace stof::expr
