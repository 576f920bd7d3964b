// Predicates whose tables are what document() and key_lengths() have as lengths. A table is only
// that much where it is known which part of it is read, so this waits for the shape.

#include <algorithm>
#include <unordered_set>

#include "mask/predicate_atom.h"

namespace stof::mask {
namespace {

using expr::Op;
using I = std::int64_t;

/// A read of table[leading..., q or k], or of table[b].
struct Read {
  std::size_t table;
  bool per_entry;  ///< its first index is b
  Op last;
};

class Reader {
 public:
  Reader(const expr::Expression& expression, const IntTables& tables)
      : nodes_(expression.nodes()), tables_(tables) {}

  const expr::Node& at(std::int32_t node) const { return nodes_[static_cast<std::size_t>(node)]; }

  std::optional<Read> read_of(std::int32_t index) const {
    const expr::Node& node = at(index);
    if (node.op != Op::kTable || node.num_args < 1 || node.num_args > 2) return std::nullopt;
    const Op first = at(node.args[0]).op;
    if (node.num_args == 2 && first != Op::kBatch) return std::nullopt;
    return Read{static_cast<std::size_t>(node.integer), node.num_args == 2,
                at(node.args[node.num_args - 1u]).op};
  }

  const expr::IntTable& table(const Read& read) const { return *tables_[read.table]; }

 private:
  std::span<const expr::Node> nodes_;
  const IntTables& tables_;
};

/// Lengths of the runs in elements [begin, begin + count); nothing where a value comes back.
std::optional<IntList> runs_of(const expr::IntTable& table, I begin, I count) {
  IntList lengths;
  std::unordered_set<I> seen;
  for (I i = 0; i < count; ++i) {
    const I value = table[begin + i];
    if (i > 0 && value == table[begin + i - 1]) {
      ++lengths.back();
    } else {
      if (!seen.insert(value).second) return std::nullopt;
      lengths.push_back(1);
    }
  }
  return lengths;
}

/// doc[q] == doc[k], or the same with one row of doc for each batch entry.
std::optional<Mask> documents(const Reader& reader, const expr::Node& root, const ScoreShape& shape,
                              I offset) {
  const auto x = reader.read_of(root.args[0]), y = reader.read_of(root.args[1]);
  if (!x || !y || x->table != y->table || x->per_entry != y->per_entry) return std::nullopt;
  const bool both = (x->last == Op::kQuery && y->last == Op::kKey) ||
                    (x->last == Op::kKey && y->last == Op::kQuery);
  if (!both) return std::nullopt;
  const expr::IntTable& table = reader.table(*x);
  const I length = std::max(shape.seq_q + offset, shape.seq_kv);
  const I cols = table.shape()[table.shape().rank() - 1];
  const I entries = x->per_entry ? shape.batch : 1;
  if (cols < length || (x->per_entry && table.shape()[0] < entries)) return std::nullopt;
  std::vector<Mask> masks;
  for (I entry = 0; entry < entries; ++entry) {
    const std::optional<IntList> lengths = runs_of(table, entry * cols, length);
    if (!lengths) return std::nullopt;
    masks.push_back(document(*lengths));
  }
  return x->per_entry ? per_batch(masks) : masks.front();
}

/// k < lengths[b] or k <= lengths[b].
std::optional<Mask> padding(const Reader& reader, const expr::Node& root, const ScoreShape& shape) {
  const auto lengths = reader.read_of(root.args[1]);
  if (reader.at(root.args[0]).op != Op::kKey || !lengths || lengths->per_entry ||
      lengths->last != Op::kBatch)
    return std::nullopt;
  const expr::IntTable& table = reader.table(*lengths);
  IntList keys;
  for (I b = 0; b < shape.batch; ++b) {
    const I length = b < table.size() ? table[b] : 0;  // outside a table there are zeros
    const I more = root.op == Op::kLessEqual && length < shape.seq_kv ? 1 : 0;
    keys.push_back(std::clamp<I>(length + more, 0, shape.seq_kv));
  }
  return key_lengths(keys);
}

}  // namespace

std::optional<Mask> recognise_tables(const expr::Expression& expression, const IntTables& tables,
                                     const ScoreShape& shape, std::int64_t offset) {
  const expr::Node& root = expression.root();
  const Reader reader(expression, tables);
  if (root.op == Op::kEqual) return documents(reader, root, shape, offset);
  if (root.op == Op::kLess || root.op == Op::kLessEqual) return padding(reader, root, shape);
  return std::nullopt;
}

}  // namespace stof::mask
