#pragma once
// Draws expressions as text, each with a plain function that says what it must give. Call inside a
// RapidCheck property.

#include <rapidcheck.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace stof::expr::testing {

using I = std::int64_t;

struct Point {
  I b = 0, h = 0, q = 0, k = 0;
};

template <class T>
struct Sample {
  std::string text;
  std::function<T(const Point&)> at;
};

/// The tables random expressions read: row-major, one or two dimensions.
struct SampleTable {
  std::string name;
  std::vector<I> shape, values;

  I read(const std::vector<I>& indices) const {
    I place = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      I index = indices[d];
      if (index < 0) index += shape[d];
      if (index < 0 || index >= shape[d]) return 0;
      place = place * shape[d] + index;
    }
    return values[static_cast<std::size_t>(place)];
  }
};

inline I draw(I lo, I hi) { return *rc::gen::resize(100, rc::gen::inRange<I>(lo, hi + 1)); }

/// "steps" has 9 elements that rise, "grid" 4 x 7 of any size.
inline std::vector<SampleTable> random_tables() {
  SampleTable steps{"steps", {9}, {}}, grid{"grid", {4, 7}, {}};
  I value = draw(-3, 3);
  for (int i = 0; i < 9; ++i) steps.values.push_back(value += draw(0, 2));
  const I most = draw(0, 1) != 0 ? 3 : I{1} << draw(8, 62);
  for (int i = 0; i < 28; ++i) grid.values.push_back(draw(-most, most));
  return {steps, grid};
}

class RandomExpression {
 public:
  explicit RandomExpression(const std::vector<SampleTable>& tables) : tables_(tables) {}

  Sample<bool> boolean(int depth) const {
    if (depth == 0 || draw(0, 3) == 0) return comparison(depth);
    switch (draw(0, 4)) {
      case 0: {
        const auto a = boolean(depth - 1);
        return {"~(" + a.text + ")", [=](const Point& p) { return !a.at(p); }};
      }
      case 1: {
        const auto c = boolean(depth - 1), a = boolean(depth - 1), b = boolean(depth - 1);
        return {"where(" + c.text + ", " + a.text + ", " + b.text + ")",
                [=](const Point& p) { return c.at(p) ? a.at(p) : b.at(p); }};
      }
      case 2:
        return junction(depth, "&", [](bool a, bool b) { return a && b; });
      case 3:
        return junction(depth, "|", [](bool a, bool b) { return a || b; });
      default:
        return junction(depth, "^", [](bool a, bool b) { return a != b; });
    }
  }

  Sample<I> integer(int depth) const {
    if (depth == 0) return leaf();
    switch (draw(0, 15)) {
      case 0:
        return binary(depth, "+", [](I a, I b) { return wrap(u(a) + u(b)); });
      case 1:
      case 2:
        return binary(depth, "-", [](I a, I b) { return wrap(u(a) - u(b)); });
      case 3:
        return binary(depth, "*", [](I a, I b) { return wrap(u(a) * u(b)); });
      case 4:
        return binary(depth, "//", floor_quotient);
      case 5:
        return binary(depth, "%", [](I a, I b) {
          return wrap(u(a) - u(floor_quotient(a, b)) * u(b)) * (b != 0 ? 1 : 0);
        });
      case 6:
        return binary(depth, "<<", [](I a, I n) {
          for (I i = 0; i < n && i < 64; ++i) a = wrap(u(a) * 2);
          return n < 0 || n > 63 ? 0 : a;
        });
      case 7:
        return binary(depth, ">>", [](I a, I n) {
          const I steps = n < 0 || n > 63 ? 63 : n;
          for (I i = 0; i < steps; ++i) a = floor_quotient(a, 2);
          return a;
        });
      case 8:
        return binary(depth, "&", [](I a, I b) { return a & b; });
      case 9:
        return binary(depth, "|", [](I a, I b) { return a | b; });
      case 10:
        return binary(depth, "^", [](I a, I b) { return a ^ b; });
      case 11:
        return call(depth, "min", [](I a, I b) { return a < b ? a : b; });
      case 12:
        return call(depth, "max", [](I a, I b) { return a < b ? b : a; });
      case 13: {
        const auto a = integer(depth - 1);
        if (draw(0, 1) != 0)
          return {"abs(" + a.text + ")",
                  [=](const Point& p) { return a.at(p) < 0 ? wrap(0 - u(a.at(p))) : a.at(p); }};
        return {"-(" + a.text + ")", [=](const Point& p) { return wrap(0 - u(a.at(p))); }};
      }
      case 14: {
        const auto c = boolean(depth - 1);
        const auto a = integer(depth - 1), b = integer(depth - 1);
        return {"where(" + c.text + ", " + a.text + ", " + b.text + ")",
                [=](const Point& p) { return c.at(p) ? a.at(p) : b.at(p); }};
      }
      default:
        return table(depth);
    }
  }

 private:
  static std::uint64_t u(I a) { return static_cast<std::uint64_t>(a); }
  static I wrap(std::uint64_t a) { return static_cast<I>(a); }

  static I floor_quotient(I a, I b) {
    if (b == 0) return 0;
    if (b == -1) return wrap(0 - u(a));
    // C++ rounds towards zero, which is one too high where an exact quotient would be below it.
    I quotient = a / b;
    const bool exact = quotient * b == a;
    if (!exact && (a < 0) != (b < 0)) --quotient;
    return quotient;
  }

  Sample<I> leaf() const {
    switch (draw(0, 8)) {
      case 0:
        return {"b", [](const Point& p) { return p.b; }};
      case 1:
        return {"h", [](const Point& p) { return p.h; }};
      case 2:
      case 3:
        return {"q", [](const Point& p) { return p.q; }};
      case 4:
      case 5:
        return {"k", [](const Point& p) { return p.k; }};
      case 6:
        return table(0);
      default: {
        const I value = draw(0, 9) == 0 ? I{1} << draw(5, 62) : draw(0, 12);
        return {std::to_string(value), [=](const Point&) { return value; }};
      }
    }
  }

  Sample<I> table(int depth) const {
    const SampleTable source = tables_[static_cast<std::size_t>(draw(0, 1))];
    std::vector<Sample<I>> indices;
    std::string text = source.name + "[";
    for (std::size_t d = 0; d < source.shape.size(); ++d) {
      if (d > 0) text += ", ";
      if (depth == 0)
        indices.push_back(draw(0, 1) != 0 ? Sample<I>{"q", [](const Point& p) { return p.q; }}
                                          : Sample<I>{"k", [](const Point& p) { return p.k; }});
      else
        indices.push_back(integer(depth - 1));
      text += indices.back().text;
    }
    return {text + "]", [=](const Point& p) {
              std::vector<I> at;
              for (const auto& index : indices) at.push_back(index.at(p));
              return source.read(at);
            }};
  }

  template <class F>
  Sample<I> binary(int depth, const std::string& sign, F f) const {
    const auto a = integer(depth - 1), b = integer(depth - 1);
    return {"(" + a.text + ") " + sign + " (" + b.text + ")",
            [=](const Point& p) { return f(a.at(p), b.at(p)); }};
  }
  template <class F>
  Sample<I> call(int depth, const std::string& name, F f) const {
    const auto a = integer(depth - 1), b = integer(depth - 1);
    return {name + "(" + a.text + ", " + b.text + ")",
            [=](const Point& p) { return f(a.at(p), b.at(p)); }};
  }
  template <class F>
  Sample<bool> junction(int depth, const std::string& sign, F f) const {
    const auto a = boolean(depth - 1), b = boolean(depth - 1);
    return {"(" + a.text + ") " + sign + " (" + b.text + ")",
            [=](const Point& p) { return f(a.at(p), b.at(p)); }};
  }

  Sample<bool> comparison(int depth) const {
    const auto a = integer(depth), b = integer(depth > 0 ? depth - 1 : 0);
    const auto with = [&](const std::string& sign, auto f) {
      return Sample<bool>{a.text + " " + sign + " " + b.text,
                          [=](const Point& p) { return f(a.at(p), b.at(p)); }};
    };
    // Operands that bind less tightly than a comparison do not occur: binary ones are in
    // parentheses only inside; | ^ & bind tighter than it.
    switch (draw(0, 5)) {
      case 0:
        return with("==", [](I x, I y) { return x == y; });
      case 1:
        return with("!=", [](I x, I y) { return x != y; });
      case 2:
        return with("<", [](I x, I y) { return x < y; });
      case 3:
        return with("<=", [](I x, I y) { return x <= y; });
      case 4:
        return with(">", [](I x, I y) { return x > y; });
      default:
        return with(">=", [](I x, I y) { return x >= y; });
    }
  }

  const std::vector<SampleTable>& tables_;
};

}  // namespace stof::expr::testing
