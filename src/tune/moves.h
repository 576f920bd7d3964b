#pragma once
// Changes of a scheme that stage 1 tries: STOF's expand, seize and compete (arXiv 2506.06095), and
// split, which undoes what an initial scheme fused too much.

#include <string>
#include <vector>

#include "tune/landscape.h"

namespace stof::tune {

enum class MoveKind {
  kExpand,   ///< two neighbouring segments become one; no third is touched
  kSeize,    ///< a segment with a matrix product takes operators from one without
  kCompete,  ///< two segments want the operator at their boundary: it goes to the one with fewer
             ///< matrix products
  kSplit,    ///< one segment becomes two
};

const char* to_string(MoveKind kind);

struct Move {
  MoveKind kind = MoveKind::kExpand;
  std::vector<Range> before;  ///< one or two neighbouring segments of the partition
  std::vector<Range> after;   ///< what takes their place

  /// "expand 0-1 2 -> 0-2"
  std::string text() const;
};

/// Segments hold at most this many operators that do matrix products.
inline constexpr int kMaxComputeIntensive = 2;

/// Every range that may be a segment.
std::vector<Range> allowed_ranges(const Landscape& landscape);

/// Every move that leads to legal segments, in a fixed order, each outcome once.
std::vector<Move> possible_moves(const Landscape& landscape, const Partition& partition);

/// The partition after a move of it.
Partition after_move(const Partition& partition, const Move& move);

}  // namespace stof::tune
