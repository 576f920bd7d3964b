#pragma once
// Expression: a typed formula in (score, b, h, q, k) and tables, parsed from Python-like text.
// Masks (predicate) and score modifications are made of it.
//
//   b h q k      batch entry, query head, query position, key position: 64-bit integers
//   score        float32; in score modifications only, as are all floats
//   integers     + - * // % ** (exponent a literal 0 to 63), unary - + ~, << >> & | ^, abs(x),
//                min(x, y, ...), max(x, y, ...). Arithmetic wraps at 64 bits. // and % round down,
//                as Python's do; by 0 they give 0. x << n is 0 for n outside [0, 63]; x >> n takes
//                n outside [0, 63] as 63.
//   booleans     True False & | ^ ~, == != < <= > >=, where(condition, x, y). A boolean used as a
//                number is 0 or 1.
//   floats       + - * / // % **, unary -, abs min max pow exp exp2 log log2 sqrt rsqrt tanh
//   sigmoid
//                sin cos, float(x), int(x), inf. Each operation rounds to float32. An integer met
//                by a float becomes one; / always gives a float. // and % round down as torch's do.
//                min and max give NaN where either side is NaN. int(x) rounds towards zero, takes
//                NaN to 0 and what is past 64 bits to the nearest end.
//   name[i, j]   a table (stof/expression.h)
//
// Precedence is Python's: ** binds tightest, then unary, * / // %, + -, << >>, &, ^, |,
// comparisons.
//
// How score modifications use it:
//   Expression e = parse_score(text, decls);        // throws InvalidArgument with a caret
//   e.to_text()                                     // canonical: for keys, fingerprints, explain
//   Program p(e);  p.set_row(...); p.scores(...)    // expr/program.h: on the CPU
//   emit_cuda(e, ranges)                            // expr/emit.h: device source

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stof/expression.h"

namespace stof::expr {

enum class Type : std::uint8_t { kBool, kInt, kFloat };

/// "a boolean", "an integer", "a float".
const char* describe(Type type);

enum class Op : std::uint8_t {
  // Leaves.
  kConstant,
  kScore,
  kBatch,
  kHead,
  kQuery,
  kKey,
  kTable,  ///< of a bool table: an integer 0 or 1, always inside "!= 0"
  // One operand.
  kToInt,    ///< of a boolean or float
  kToFloat,  ///< of an integer
  kNegate,
  kNot,  ///< of a boolean or integer
  kAbs,
  kExp,
  kExp2,
  kLog,
  kLog2,
  kSqrt,
  kRsqrt,
  kTanh,
  kSigmoid,
  kSin,
  kCos,
  // Two operands of one type; comparisons give a boolean.
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFloorDiv,
  kMod,
  kPow,  ///< of integers the exponent is a constant from 0 to 63
  kShiftLeft,
  kShiftRight,
  kAnd,
  kOr,
  kXor,
  kMin,
  kMax,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  // A boolean and two operands of one type.
  kWhere,
};

/// One vertex. Its operands stand before it.
struct Node {
  Op op = Op::kConstant;
  Type type = Type::kInt;
  std::uint8_t num_args = 0;  ///< operands, of a table its indices
  std::array<std::int32_t, Dims::kMaxRank> args{};
  std::int64_t integer = 0;  ///< a constant's value (booleans 0 or 1), a table's number
  float real = 0;            ///< a float constant's value

  std::span<const std::int32_t> operands() const { return {args.data(), num_args}; }
  bool operator==(const Node& other) const = default;
};

/// Immutable and cheap to copy. Equal subexpressions are one vertex.
class Expression {
 public:
  /// `nodes` in which operands stand before their users; only what nodes[root] needs is kept.
  Expression(std::span<const Node> nodes, std::int32_t root,
             std::shared_ptr<const std::vector<TableDecl>> tables);

  std::span<const Node> nodes() const { return *nodes_; }  ///< the last is the root
  const Node& root() const { return nodes_->back(); }
  Type type() const { return root().type; }
  /// As declared, also those that are not read.
  const std::vector<TableDecl>& tables() const { return *tables_; }
  const std::shared_ptr<const std::vector<TableDecl>>& shared_tables() const { return tables_; }
  /// Whether kScore, kBatch, kHead, kQuery or kKey occurs.
  bool uses(Op leaf) const;
  bool reads_table(std::size_t table) const;
  /// The part whose root is that vertex.
  Expression part(std::int32_t node) const { return {nodes(), node, tables_}; }

  /// Canonical text: parsed again with the same tables it is the same expression.
  std::string to_text() const;

 private:
  std::shared_ptr<const std::vector<Node>> nodes_;
  std::shared_ptr<const std::vector<TableDecl>> tables_;
};

/// A boolean expression without floats. Throws InvalidArgument: the message shows the text with a
/// caret, or names the table at fault.
Expression parse_predicate(std::string_view text, std::vector<TableDecl> tables);

/// A float expression; an integer or boolean result is converted.
Expression parse_score(std::string_view text, std::vector<TableDecl> tables);

}  // namespace stof::expr
