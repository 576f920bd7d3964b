#pragma once
// One value, and what each operation does to it: the one place that says so.

#include <cmath>
#include <cstdint>
#include <limits>

#include "expr/expression.h"

namespace stof::expr {

/// A boolean (0 or 1) or integer in `i`, or a float in `f`.
struct Value {
  std::int64_t i = 0;
  float f = 0;
};

namespace arithmetic {

using I = std::int64_t;
using U = std::uint64_t;

inline I add(I a, I b) { return static_cast<I>(static_cast<U>(a) + static_cast<U>(b)); }
inline I sub(I a, I b) { return static_cast<I>(static_cast<U>(a) - static_cast<U>(b)); }
inline I mul(I a, I b) { return static_cast<I>(static_cast<U>(a) * static_cast<U>(b)); }
inline I negate(I a) { return sub(0, a); }
inline I abs(I a) { return a < 0 ? negate(a) : a; }

inline I floor_div(I a, I b) {
  if (b == 0) return 0;
  if (b == -1) return negate(a);  // the quotient of the lowest value does not fit
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}
inline I floor_mod(I a, I b) {
  if (b == 0 || b == -1) return 0;
  const I rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
inline I power(I a, I exponent) {
  U result = 1, base = static_cast<U>(a);
  for (; exponent > 0; exponent >>= 1, base *= base)
    if (exponent & 1) result *= base;
  return static_cast<I>(result);
}
inline I shift_left(I a, I n) {
  return n < 0 || n > 63 ? 0 : static_cast<I>(static_cast<U>(a) << n);
}
inline I shift_right(I a, I n) { return a >> (n < 0 || n > 63 ? 63 : n); }

inline float floor_div(float a, float b) {
  if (b == 0) return a / b;
  const float rest = std::fmod(a, b);
  float quotient = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0f, a / b);
  const float floor = std::floor(quotient);
  return quotient - floor > 0.5f ? floor + 1 : floor;
}
inline float floor_mod(float a, float b) {
  const float rest = std::fmod(a, b);
  return rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest;
}
inline float power(float a, float exponent) {
  if (exponent == 2) return a * a;
  if (exponent == 0.5f) return std::sqrt(a);
  return std::pow(a, exponent);
}
inline float min(float a, float b) { return a < b || a != a ? a : b; }
inline float max(float a, float b) { return a > b || a != a ? a : b; }
inline float sigmoid(float a) { return 1 / (1 + std::exp(-a)); }
inline I to_int(float a) {
  if (a != a) return 0;
  if (a >= 0x1p63f) return std::numeric_limits<I>::max();
  return a < -0x1p63f ? std::numeric_limits<I>::min() : static_cast<I>(a);
}

}  // namespace arithmetic

/// Calls `visit` with the function of an operation on one integer.
template <class Visit>
void with_int_unary(Op op, Visit&& visit) {
  using namespace arithmetic;
  switch (op) {
    case Op::kNegate:
      return visit([](I a) { return negate(a); });
    case Op::kNot:
      return visit([](I a) { return ~a; });
    default:
      return visit([](I a) { return arithmetic::abs(a); });
  }
}

template <class Visit>
void with_int_binary(Op op, Visit&& visit) {
  using namespace arithmetic;
  switch (op) {
    case Op::kAdd:
      return visit([](I a, I b) { return add(a, b); });
    case Op::kSub:
      return visit([](I a, I b) { return sub(a, b); });
    case Op::kMul:
      return visit([](I a, I b) { return mul(a, b); });
    case Op::kFloorDiv:
      return visit([](I a, I b) { return floor_div(a, b); });
    case Op::kMod:
      return visit([](I a, I b) { return floor_mod(a, b); });
    case Op::kPow:
      return visit([](I a, I b) { return power(a, b); });
    case Op::kShiftLeft:
      return visit([](I a, I b) { return shift_left(a, b); });
    case Op::kShiftRight:
      return visit([](I a, I b) { return shift_right(a, b); });
    case Op::kAnd:
      return visit([](I a, I b) { return a & b; });
    case Op::kOr:
      return visit([](I a, I b) { return a | b; });
    case Op::kXor:
      return visit([](I a, I b) { return a ^ b; });
    case Op::kMin:
      return visit([](I a, I b) { return a < b ? a : b; });
    default:
      return visit([](I a, I b) { return a > b ? a : b; });
  }
}

template <class Visit>
void with_float_unary(Op op, Visit&& visit) {
  switch (op) {
    case Op::kNegate:
      return visit([](float a) { return -a; });
    case Op::kAbs:
      return visit([](float a) { return std::fabs(a); });
    case Op::kExp:
      return visit([](float a) { return std::exp(a); });
    case Op::kExp2:
      return visit([](float a) { return std::exp2(a); });
    case Op::kLog:
      return visit([](float a) { return std::log(a); });
    case Op::kLog2:
      return visit([](float a) { return std::log2(a); });
    case Op::kSqrt:
      return visit([](float a) { return std::sqrt(a); });
    case Op::kRsqrt:
      return visit([](float a) { return 1 / std::sqrt(a); });
    case Op::kTanh:
      return visit([](float a) { return std::tanh(a); });
    case Op::kSigmoid:
      return visit([](float a) { return arithmetic::sigmoid(a); });
    case Op::kSin:
      return visit([](float a) { return std::sin(a); });
    default:
      return visit([](float a) { return std::cos(a); });
  }
}

template <class Visit>
void with_float_binary(Op op, Visit&& visit) {
  switch (op) {
    case Op::kAdd:
      return visit([](float a, float b) { return a + b; });
    case Op::kSub:
      return visit([](float a, float b) { return a - b; });
    case Op::kMul:
      return visit([](float a, float b) { return a * b; });
    case Op::kDiv:
      return visit([](float a, float b) { return a / b; });
    case Op::kFloorDiv:
      return visit([](float a, float b) { return arithmetic::floor_div(a, b); });
    case Op::kMod:
      return visit([](float a, float b) { return arithmetic::floor_mod(a, b); });
    case Op::kPow:
      return visit([](float a, float b) { return arithmetic::power(a, b); });
    case Op::kMin:
      return visit([](float a, float b) { return arithmetic::min(a, b); });
    default:
      return visit([](float a, float b) { return arithmetic::max(a, b); });
  }
}

/// Comparisons of two booleans, integers or floats.
template <class Visit>
void with_comparison(Op op, Visit&& visit) {
  switch (op) {
    case Op::kEqual:
      return visit([](auto a, auto b) { return a == b; });
    case Op::kNotEqual:
      return visit([](auto a, auto b) { return a != b; });
    case Op::kLess:
      return visit([](auto a, auto b) { return a < b; });
    default:
      return visit([](auto a, auto b) { return a <= b; });
  }
}

inline bool is_comparison(Op op) { return op >= Op::kEqual && op <= Op::kLessEqual; }

/// The value of a vertex that is neither leaf nor table. operands[i] is that of its i-th operand,
/// operand_type the type of its last one.
Value apply(const Node& node, Type operand_type, const Value* operands);

}  // namespace stof::expr
