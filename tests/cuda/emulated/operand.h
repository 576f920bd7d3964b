#pragma once
// Random operands of an emulated kernel and one row of attention in double.

#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "stof/dtype.h"

namespace stof {

/// Random [batch or page, heads, rows, columns] of 16-bit elements; heads and rows change places in
/// memory, and 8 elements of NaN follow each row.
template <class Value>
class Operand16 {
 public:
  Operand16(std::int64_t batch, std::int64_t heads, std::int64_t rows, std::int64_t columns,
            std::mt19937& random)
      : columns_(columns),
        strides_{rows * heads * (columns + 8), columns + 8, heads * (columns + 8)},
        // 16 bytes of slack: vectors are only aligned to what the allocator gives, which is 16.
        values_(static_cast<std::size_t>(batch * strides_[0])) {
    clear();
    std::normal_distribution<float> normal;
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t c = 0; c < columns; ++c) at(b, h, r, c) = Value(normal(random));
  }
  void clear() {
    for (Value& value : values_) value.bits = 0xffff;
  }
  /// NaN in one row: to be never read.
  void clear_row(std::int64_t b, std::int64_t h, std::int64_t r) {
    for (std::int64_t c = 0; c < columns_; ++c) at(b, h, r, c).bits = 0xffff;
  }

  Value& at(std::int64_t b, std::int64_t h, std::int64_t r, std::int64_t c) {
    return values_[static_cast<std::size_t>(b * strides_[0] + h * strides_[1] + r * strides_[2] +
                                            c)];
  }
  double get(std::int64_t b, std::int64_t h, std::int64_t r, std::int64_t c) const {
    return static_cast<float>(const_cast<Operand16*>(this)->at(b, h, r, c));
  }
  Value* data() { return values_.data(); }
  const std::int64_t* strides() const { return strides_; }
  std::int64_t columns() const { return columns_; }

 private:
  std::int64_t columns_;
  std::int64_t strides_[3];
  std::vector<Value> values_;
};

/// One query row against `num_keys` keys. `logit`: what is added to the scaled product, -inf: not
/// seen; `cap`: softcap or 0; `sink`: a logit or -inf.
struct ReferenceRow {
  double lse;
  std::vector<double> out;

  ReferenceRow(std::int64_t num_keys, std::int64_t head_dim_qk, std::int64_t head_dim_v, double cap,
               double sink, const std::function<double(std::int64_t)>& logit,
               const std::function<double(std::int64_t)>& query,
               const std::function<double(std::int64_t, std::int64_t)>& key,
               const std::function<double(std::int64_t, std::int64_t)>& value)
      : out(static_cast<std::size_t>(head_dim_v), 0) {
    double sum = 0;
    for (std::int64_t k = 0; k < num_keys; ++k) {
      const double added = logit(k);
      if (added == -HUGE_VAL) continue;
      double score = 0;
      for (std::int64_t d = 0; d < head_dim_qk; ++d) score += query(d) * key(k, d);
      score /= std::sqrt(static_cast<double>(head_dim_qk));
      if (cap > 0) score = cap * std::tanh(score / cap);
      const double weight = std::exp(score + added);
      sum += weight;
      for (std::int64_t d = 0; d < head_dim_v; ++d)
        out[static_cast<std::size_t>(d)] += weight * value(k, d);
    }
    if (sum > 0) sum += std::exp(sink);
    lse = sum > 0 ? std::log(sum) : -HUGE_VAL;
    if (sum > 0)
      for (double& x : out) x /= sum;
  }
};

}  // namespace stof
