#include <algorithm>

#include "core/check.h"
#include "stof/tensor.h"

namespace stof {

Dims::Dims(std::initializer_list<std::int64_t> values)
    : Dims(std::span<const std::int64_t>(values.begin(), values.size())) {}

Dims::Dims(std::span<const std::int64_t> values) {
  STOF_CHECK(values.size() <= kMaxRank, kInvalidArgument,
             "shape: expected at most {} dimensions, got {}", kMaxRank, values.size());
  std::copy(values.begin(), values.end(), values_.begin());
  rank_ = static_cast<int>(values.size());
}

void Dims::push_back(std::int64_t value) {
  STOF_CHECK(rank_ < kMaxRank, kInvalidArgument, "shape: expected at most {} dimensions, got {}",
             kMaxRank, rank_ + 1);
  values_[static_cast<std::size_t>(rank_++)] = value;
}

std::string Dims::to_string() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) {
    if (i > 0) text += ", ";
    text += std::to_string((*this)[i]);
  }
  return text + "]";
}

bool Dims::operator==(const Dims& other) const {
  return std::equal(begin(), end(), other.begin(), other.end());
}

std::int64_t num_elements(const Dims& shape) {
  // Zero extents are left out of the product, so that strides of an empty tensor fit as well.
  std::int64_t product = 1;
  bool empty = false;
  for (const std::int64_t extent : shape) {
    STOF_CHECK(extent >= 0, kInvalidArgument, "shape {}: expected extents of at least 0, got {}",
               shape.to_string(), extent);
    if (extent == 0) {
      empty = true;
    } else {
      STOF_CHECK(!__builtin_mul_overflow(product, extent, &product), kInvalidArgument,
                 "shape {}: expected fewer than 2^63 elements", shape.to_string());
    }
  }
  return empty ? 0 : product;
}

Dims contiguous_strides(const Dims& shape) {
  num_elements(shape);  // throws where the products below could overflow
  Dims strides = shape;
  std::int64_t next = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = next;
    next *= std::max<std::int64_t>(shape[i], 1);
  }
  return strides;
}

}  // namespace stof
