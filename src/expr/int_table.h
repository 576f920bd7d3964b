#pragma once
// IntTable: the whole numbers of a table, kept once in as few bytes as they need, with the least
// and greatest of any part of it.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "expr/bounds.h"
#include "stof/tensor.h"

namespace stof::expr {

/// Immutable.
class IntTable {
 public:
  /// Row-major. Throws InvalidArgument naming the table unless there are as many values as the
  /// shape has elements.
  IntTable(std::string name, const Dims& shape, std::span<const std::int64_t> values);
  /// Copies booleans (0 and 1), int32 or int64 of any strides. Throws InvalidArgument naming the
  /// table for other dtypes, and where there is no data.
  IntTable(std::string name, const TensorView& values);

  const std::string& name() const { return name_; }
  const Dims& shape() const { return values_.shape(); }
  std::int64_t size() const { return values_.size(); }
  /// int8 to int64.
  TensorView view() const { return values_.view(); }
  std::int64_t operator[](std::int64_t element) const;
  std::vector<std::int64_t> values() const;

  /// What is read at those indices: element values, and 0 where some lie outside.
  Interval range(std::span<const Interval> indices) const;

 private:
  void store(const Dims& shape, std::span<const std::int64_t> values);
  /// Of elements first to last, both inclusive.
  Interval range_of(std::int64_t first, std::int64_t last) const;

  std::string name_;
  Tensor values_;
  /// levels_[0] has one interval for kFanout elements, each next one for kFanout of the one before.
  std::vector<std::vector<Interval>> levels_;
};

}  // namespace stof::expr
