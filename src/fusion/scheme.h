#pragma once
// Which neighbours of a layer's operators run as one: one bit per operator, equal neighbours are
// fused, a flip is a boundary (Dai et al., "Accelerating Sparse Transformer Inference on GPU",
// arXiv 2506.06095).

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stof::fusion {

/// An immutable value in canonical form: the first bit is 0, so that bits and boundaries determine
/// each other. A scheme says nothing of legality.
class Scheme {
 public:
  Scheme() = default;
  /// Complemented where the first bit is 1.
  explicit Scheme(std::vector<bool> bits);
  /// Every operator alone.
  static Scheme separate(int num_operators);
  /// sizes[i]: operators of segment i, each at least 1.
  static Scheme from_sizes(const std::vector<int>& sizes);
  /// Takes what text() and hex() give. Throws InvalidArgument naming what does not fit.
  static Scheme from_text(std::string_view text);

  int size() const { return static_cast<int>(bits_.size()); }
  const std::vector<bool>& bits() const { return bits_; }
  /// Whether operator i, of 1 to size() - 1, starts a segment.
  bool boundary(int i) const;
  /// First and last operator of each segment, counted from the layer's first.
  std::vector<std::pair<int, int>> segments() const;
  /// With the boundary before operator i set or removed.
  Scheme with_boundary(int i, bool boundary) const;

  /// "00110100111010"
  std::string text() const;
  /// "14:34e8": the number of operators, then the bits, four a digit, the first operator's highest.
  std::string hex() const;

  auto operator<=>(const Scheme&) const = default;

 private:
  std::vector<bool> bits_;
};

}  // namespace stof::fusion
