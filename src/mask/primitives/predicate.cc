// predicate(): a boolean expression in b, h, q, k and tables.

#include <algorithm>

#include "core/check.h"
#include "expr/program.h"
#include "mask/interval.h"
#include "mask/nesting.h"
#include "mask/node.h"
#include "mask/node_factories.h"
#include "mask/predicate_atom.h"

namespace stof::mask {
namespace {

using expr::Expression;
using expr::Op;

class Predicate final : public Node {
 public:
  Predicate(const Expression& expression, const IntTables& tables, const expr::Analysis& analysis)
      : program_(expression), tables_(tables), bounds_(bounds_of_tables(tables)) {
    for (const auto& table : tables_) views_.push_back(table->view());
    period_ = analysis.period(static_cast<std::int32_t>(expression.nodes().size()) - 1);
  }

  bool visible(std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t k) const override {
    if (!relative() && (q < 0 || k < 0)) return false;
    return program_.evaluate(views_, 0, b, h, q, k).i != 0;
  }
  TileClass classify(std::int64_t b, std::int64_t h, const TileRect& rect) const override {
    ClippedRect c{rect, false, false};
    if (!relative()) c = clip(rect);
    if (c.empty) return TileClass::kEmpty;
    thread_local std::vector<expr::Interval> bounds;
    expr::bounds_of(
        program_.expression(),
        {{b, b}, {h, h}, {c.rect.q_begin, c.rect.q_end - 1}, {c.rect.k_begin, c.rect.k_end - 1}},
        bounds_, bounds);
    if (bounds.back().hi == 0) return TileClass::kEmpty;
    return bounds.back().lo == 1 && !c.clipped ? TileClass::kFull : TileClass::kPartial;
  }
  std::uint64_t row_bits(std::int64_t b, std::int64_t h, std::int64_t q,
                         std::int64_t k_begin) const override {
    if (!relative() && (q < 0 || k_begin <= -64)) return 0;
    thread_local expr::Program::Scratch scratch;
    program_.set_row(scratch, views_, b, h, q);
    const std::uint64_t bits = program_.bits(scratch, k_begin);
    return relative() ? bits : bits & bits_of_range(k_begin, 0, kUnbounded);
  }
  std::int64_t diagonal_period() const override { return period_; }
  /// Of the entry or head itself there are as many as there will be.
  std::int64_t batch_extent() const override {
    return program_.expression().uses(Op::kBatch) ? 0 : 1;
  }
  std::int64_t head_extent() const override {
    return program_.expression().uses(Op::kHead) ? 0 : 1;
  }

  std::shared_ptr<const Node> bind(const BindContext& context) const override {
    const std::int64_t offset = context.query_offset();
    // Under the user's shifts the positions that are asked for are not known.
    if (!context.free_lengths)
      if (const auto mask = recognise_at(context.shape, offset))
        return offset == 0 ? mask->shared_node() : shifted(*mask, offset, 0).shared_node();
    return bind_positional(*this, context);
  }
  Spec spec() const override {
    IntTables read;
    for (std::size_t i = 0; i < tables_.size(); ++i)
      if (program_.expression().reads_table(i)) read.push_back(tables_[i]);
    std::sort(read.begin(), read.end(),
              [](const auto& a, const auto& b) { return a->name() < b->name(); });
    return {"predicate", {{"text", program_.expression().to_text()}, {"tables", read}}, {}};
  }

 private:
  bool relative() const { return period_ == 1; }

  /// The primitive that it is for scores of that shape.
  std::optional<Mask> recognise_at(const ScoreShape& shape, std::int64_t offset) const {
    const Expression& expression = program_.expression();
    if (auto mask = recognise_tables(expression, tables_, shape, offset)) return mask;
    return recognise_grid(expression, expr::Analysis(expression, bounds_), shape, offset);
  }

  expr::Program program_;
  IntTables tables_;  ///< as the expression declares them
  std::vector<TensorView> views_;
  expr::TableBounds bounds_;
  std::int64_t period_;
};

class Builder {
 public:
  Builder(const Expression& expression, const IntTables& tables)
      : expression_(expression), tables_(tables) {}

  Mask build(std::int32_t index) const {
    const expr::Node& node = at(index);
    if (node.op == Op::kConstant) return node.integer != 0 ? all() : none();
    if (node.op == Op::kNot) return ~build(node.args[0]);
    if (divides(index)) return build_chain(index);
    const Expression part = expression_.part(index);
    const expr::Analysis analysis(part, bounds_of_tables(tables_));
    if (const auto mask = recognise(part, analysis)) return *mask;
    return Mask(std::make_shared<Predicate>(part, tables_, analysis));
  }

 private:
  const expr::Node& at(std::int32_t index) const {
    return expression_.nodes()[static_cast<std::size_t>(index)];
  }

  /// & and | of booleans.
  bool divides(std::int32_t index) const {
    const expr::Node& node = at(index);
    return (node.op == Op::kAnd || node.op == Op::kOr) && node.type == expr::Type::kBool;
  }

  /// All operands of a chain of one operator, from left to right, however it was nested.
  Mask build_chain(std::int32_t index) const {
    const Op op = at(index).op;
    std::vector<Mask> operands;
    std::vector<std::int32_t> pending{index};
    while (!pending.empty()) {
      const std::int32_t next = pending.back();
      pending.pop_back();
      if (divides(next) && at(next).op == op) {
        pending.push_back(at(next).args[1]);
        pending.push_back(at(next).args[0]);
      } else {
        operands.push_back(build(next));
      }
    }
    return join_atoms(op == Op::kAnd, std::move(operands));
  }

  const Expression& expression_;
  const IntTables& tables_;
};

Mask build_predicate(std::string_view text, std::vector<expr::TableDecl> declared,
                     const IntTables& tables) {
  const Expression expression = expr::parse_predicate(text, std::move(declared));
  const auto root = static_cast<std::int32_t>(expression.nodes().size()) - 1;
  Mask mask = Builder(expression, tables).build(root);
  check_nesting(mask);
  return mask;
}

}  // namespace

Mask predicate_of_tables(std::string_view text, const IntTables& tables) {
  std::vector<expr::TableDecl> declared;
  for (const auto& table : tables)
    declared.push_back({table->name(), DType::kInt64, table->shape()});
  return build_predicate(text, std::move(declared), tables);
}

Mask predicate(std::string_view text, const std::vector<PredicateTable>& tables) {
  std::vector<expr::TableDecl> declared;
  IntTables copies;
  for (const PredicateTable& table : tables) {
    copies.push_back(std::make_shared<expr::IntTable>(table.name, table.values));
    declared.push_back({table.name, table.values.dtype, table.values.shape});
  }
  return build_predicate(text, std::move(declared), copies);
}

}  // namespace stof::mask
