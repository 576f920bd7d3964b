#pragma once
// Program: an expression made ready to be evaluated on the CPU, 64 keys at a time.

#include <cstdint>
#include <span>
#include <vector>

#include "expr/expression.h"
#include "expr/value.h"
#include "stof/tensor.h"

namespace stof::expr {

/// Immutable; threads share it, each with a Scratch of its own.
class Program {
 public:
  static constexpr std::int64_t kLanes = 64;

  explicit Program(Expression expression);

  /// Memory that evaluation works in; one may serve several programs, one after the other.
  struct Scratch {
    std::vector<Value> uniform;        ///< [nodes] values of the row
    std::vector<std::int64_t> ints;    ///< [slots, 64]
    std::vector<float> reals;          ///< likewise
    std::vector<std::uint64_t> masks;  ///< [nodes] booleans of 64 keys
    std::span<const TensorView> tables;
  };

  const Expression& expression() const { return expression_; }

  /// Evaluates what depends on neither key nor score. `tables` has one view per declared table, of
  /// its dtype and shape and any strides, and must live as long as the row is asked about.
  void set_row(Scratch& scratch, std::span<const TensorView> tables, std::int64_t b, std::int64_t h,
               std::int64_t q) const;

  /// Of a boolean expression: bit i is its value at key k_begin + i.
  std::uint64_t bits(Scratch& scratch, std::int64_t k_begin) const;

  /// Of a float expression: scores[i] becomes its value for that score at key k_begin + i, for all
  /// i below count.
  void scores(Scratch& scratch, float* scores, std::int64_t k_begin, std::int64_t count) const;

  /// One value, for tests and constants; set_row() is not needed before.
  Value evaluate(std::span<const TensorView> tables, float score, std::int64_t b, std::int64_t h,
                 std::int64_t q, std::int64_t k) const;

 private:
  void run(Scratch& scratch, std::int64_t k_begin, const float* scores, std::int64_t count) const;

  Expression expression_;
  std::vector<bool> varying_;       ///< [nodes] depends on key or score
  std::vector<std::int32_t> slot_;  ///< [nodes] lanes of an integer or float, -1 where none
  std::int32_t num_slots_ = 0;
};

}  // namespace stof::expr
