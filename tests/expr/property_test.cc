// Random expressions against plain functions: values, 64 keys at a time, text, bounds.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "expr/bounds.h"
#include "expr/int_table.h"
#include "expr/program.h"
#include "random_expression.h"

namespace stof::expr {
namespace {

using namespace testing;

struct Drawn {
  std::vector<SampleTable> samples = random_tables();
  std::vector<IntTable> tables;
  std::vector<TableDecl> declared;
  std::vector<TensorView> views;
  Sample<bool> sample;

  Drawn() {
    for (const SampleTable& table : samples) {
      tables.emplace_back(table.name, Dims(table.shape), table.values);
      declared.push_back({table.name, DType::kInt64, Dims(table.shape)});
    }
    for (const IntTable& table : tables) views.push_back(table.view());
    sample = RandomExpression(samples).boolean(static_cast<int>(draw(0, 4)));
  }

  TableBounds bounds() const {
    return [this](std::size_t table, std::span<const Interval> indices) {
      return tables[table].range(indices);
    };
  }
};

Point random_point(I size) {
  return {draw(0, 3), draw(0, 3), draw(-size, size), draw(-size, size)};
}

RC_GTEST_PROP(ExpressionProperty, GivesWhatAPlainFunctionGives, ()) {
  const Drawn drawn;
  const Expression expression = parse_predicate(drawn.sample.text, drawn.declared);
  const Program program(expression);
  Program::Scratch scratch;
  for (int round = 0; round < 4; ++round) {
    const I far = I{1} << draw(0, 40);
    const Point p = random_point(draw(0, 1) != 0 ? 12 : far);
    RC_LOG() << drawn.sample.text << " at " << p.b << " " << p.h << " " << p.q << " " << p.k
             << "\n";
    program.set_row(scratch, drawn.views, p.b, p.h, p.q);
    const std::uint64_t bits = program.bits(scratch, p.k);
    for (I i = 0; i < 64; ++i) {
      const bool expected = drawn.sample.at({p.b, p.h, p.q, p.k + i});
      RC_ASSERT((bits >> i & 1) == (expected ? 1u : 0u));
      if (i % 21 == 0)
        RC_ASSERT((program.evaluate(drawn.views, 0, p.b, p.h, p.q, p.k + i).i != 0) == expected);
    }
  }
}

RC_GTEST_PROP(ExpressionProperty, IsReadBackFromItsText, ()) {
  const Drawn drawn;
  const Expression expression = parse_predicate(drawn.sample.text, drawn.declared);
  const std::string text = expression.to_text();
  RC_LOG() << drawn.sample.text << "\n" << text << "\n";
  const Expression again = parse_predicate(text, drawn.declared);
  RC_ASSERT(again.to_text() == text);
  const Program program(again);
  for (int round = 0; round < 20; ++round) {
    const Point p = random_point(12);
    RC_ASSERT((program.evaluate(drawn.views, 0, p.b, p.h, p.q, p.k).i != 0) == drawn.sample.at(p));
  }
}

RC_GTEST_PROP(ExpressionProperty, LiesWithinItsBounds, ()) {
  const Drawn drawn;
  const Expression expression = parse_predicate(drawn.sample.text, drawn.declared);
  const auto interval = [](I most) {
    const I lo = draw(-most, most);
    return Interval{lo, lo + draw(0, most)};
  };
  const I size = draw(0, 1) != 0 ? 6 : I{1} << draw(3, 45);
  const Ranges ranges{interval(3), interval(3), interval(size), interval(size)};
  const std::vector<Interval> known = bounds_of(expression, ranges, drawn.bounds());
  const std::vector<Interval> unknown = bounds_of(expression, ranges, unknown_tables(expression));
  for (int round = 0; round < 20; ++round) {
    const auto within = [](const Interval& range) { return draw(range.lo, range.hi); };
    const Point p{within(ranges.b), within(ranges.h), within(ranges.q), within(ranges.k)};
    for (std::size_t i = 0; i < expression.nodes().size(); ++i) {
      const Program program(expression.part(static_cast<std::int32_t>(i)));
      const I value = program.evaluate(drawn.views, 0, p.b, p.h, p.q, p.k).i;
      RC_LOG() << program.expression().to_text() << " = " << value << "\n";
      RC_ASSERT(known[i].lo <= value && value <= known[i].hi);
      RC_ASSERT(unknown[i].lo <= value && value <= unknown[i].hi);
    }
  }
}

RC_GTEST_PROP(IntTableProperty, KnowsTheLeastAndGreatestOfAnyPart, ()) {
  const I rank = draw(1, 3);
  Dims shape;
  for (I d = 0; d < rank; ++d) shape.push_back(draw(1, rank == 1 ? 2000 : rank == 2 ? 60 : 12));
  std::vector<I> values(static_cast<std::size_t>(num_elements(shape)));
  const I most = I{1} << draw(0, 62);
  I value = 0;
  for (I& x : values) x = value = draw(0, 9) == 0 ? draw(-most, most) : value;
  const IntTable table("t", shape, values);
  RC_ASSERT(table.values() == values);
  std::vector<Interval> indices;
  for (const I extent : shape) {
    const I lo = draw(-extent - 3, extent + 2);
    indices.push_back({lo, std::min(lo + draw(0, extent), extent + 4)});
  }
  const Interval range = table.range(indices);
  const SampleTable plain{"t", {shape.begin(), shape.end()}, values};
  Interval exact{std::numeric_limits<I>::max(), std::numeric_limits<I>::min()};
  std::vector<I> at;
  for (const Interval& index : indices) at.push_back(index.lo);
  for (bool more = true; more;) {
    const I x = plain.read(at);
    exact = {std::min(exact.lo, x), std::max(exact.hi, x)};
    more = false;
    for (std::size_t d = at.size(); d-- > 0 && !more;) {
      more = ++at[d] <= indices[d].hi;
      if (!more) at[d] = indices[d].lo;
    }
  }
  RC_ASSERT(range.lo <= exact.lo && exact.hi <= range.hi);
  if (rank == 1) RC_ASSERT(range == exact);
}

}  // namespace
}  // namespace stof::expr
