#pragma once
// Seeded random draws for checks on a GPU.

#include <cstdint>
#include <initializer_list>
#include <random>

namespace stof::check {

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : engine_(seed) {}
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(high - low + 1));
  }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return *(values.begin() + between(0, static_cast<std::int64_t>(values.size()) - 1));
  }
  bool chance(std::int64_t one_in) { return between(1, one_in) == 1; }
  /// Nearly normal: mean 0, variance 1.
  float normal() {
    const std::uint64_t bits = engine_();
    float sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<float>(bits >> (16 * i) & 0xffff);
    return (sum / 65536.0f - 2.0f) * 1.7320508f;
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace stof::check
