#include "tune/moves.h"

#include <algorithm>

#include "core/check.h"

namespace stof::tune {
namespace {

int count_compute_intensive(const Landscape& landscape, Range range) {
  int count = 0;
  for (int op = range.first; op <= range.last; ++op) count += landscape.compute_intensive(op);
  return count;
}

bool allowed(const Landscape& landscape, Range range) {
  return range.size() == 1 || (count_compute_intensive(landscape, range) <= kMaxComputeIntensive &&
                               landscape.legal(range));
}

class Collector {
 public:
  explicit Collector(const Landscape& landscape) : landscape_(landscape) {}

  /// Keeps the move if its segments are allowed and no move before led to the same.
  void add(MoveKind kind, std::vector<Range> before, std::vector<Range> after) {
    for (const Range& range : after)
      if (!allowed(landscape_, range)) return;
    for (const Move& known : moves_)
      if (known.before == before && known.after == after) return;
    moves_.push_back({kind, std::move(before), std::move(after)});
  }

  std::vector<Move> take() { return std::move(moves_); }

 private:
  const Landscape& landscape_;
  std::vector<Move> moves_;
};

/// Moves of the boundary between two neighbours.
void add_boundary_moves(const Landscape& landscape, Range a, Range b, Collector& moves) {
  const int in_a = count_compute_intensive(landscape, a);
  const int in_b = count_compute_intensive(landscape, b);
  if (in_a > 0 && in_b == 0)
    for (int taken = 1; taken < b.size(); ++taken)
      moves.add(MoveKind::kSeize, {a, b}, {{a.first, a.last + taken}, {b.first + taken, b.last}});
  if (in_b > 0 && in_a == 0)
    for (int taken = 1; taken < a.size(); ++taken)
      moves.add(MoveKind::kSeize, {a, b}, {{a.first, a.last - taken}, {b.first - taken, b.last}});
  // With equally many, either may win: the measurement decides.
  if (in_a <= in_b && b.size() > 1)
    moves.add(MoveKind::kCompete, {a, b}, {{a.first, a.last + 1}, {b.first + 1, b.last}});
  if (in_b <= in_a && a.size() > 1)
    moves.add(MoveKind::kCompete, {a, b}, {{a.first, a.last - 1}, {b.first - 1, b.last}});
}

}  // namespace

const char* to_string(MoveKind kind) {
  switch (kind) {
    case MoveKind::kExpand:
      return "expand";
    case MoveKind::kSeize:
      return "seize";
    case MoveKind::kCompete:
      return "compete";
    case MoveKind::kSplit:
      return "split";
  }
  return "?";
}

std::string Move::text() const {
  return fmt::format("{} {} -> {}", to_string(kind), to_text(before), to_text(after));
}

std::vector<Range> allowed_ranges(const Landscape& landscape) {
  std::vector<Range> ranges;
  for (int first = 0; first < landscape.num_operators(); ++first)
    for (int last = first; last < landscape.num_operators(); ++last)
      if (allowed(landscape, {first, last})) ranges.push_back({first, last});
  return ranges;
}

std::vector<Move> possible_moves(const Landscape& landscape, const Partition& partition) {
  Collector moves(landscape);
  for (std::size_t i = 0; i + 1 < partition.size(); ++i) {
    const Range a = partition[i], b = partition[i + 1];
    moves.add(MoveKind::kExpand, {a, b}, {{a.first, b.last}});
    add_boundary_moves(landscape, a, b, moves);
  }
  for (const Range& range : partition)
    for (int last = range.first; last < range.last; ++last)
      moves.add(MoveKind::kSplit, {range}, {{range.first, last}, {last + 1, range.last}});
  return moves.take();
}

Partition after_move(const Partition& partition, const Move& move) {
  const auto at =
      std::search(partition.begin(), partition.end(), move.before.begin(), move.before.end());
  STOF_ASSERT(at != partition.end());
  Partition result(partition.begin(), at);
  result.insert(result.end(), move.after.begin(), move.after.end());
  result.insert(result.end(), at + static_cast<std::ptrdiff_t>(move.before.size()),
                partition.end());
  return result;
}

}  // namespace stof::tune
