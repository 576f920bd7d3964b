// Every reason not to fuse, each in a graph where it is the only one: without the check the segment
// would be legal.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "fusion/segment.h"
#include "stof/error.h"

namespace stof::fusion {
namespace {

using graph::GraphBuilder;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using enum ReasonCode;

constexpr DType kF32 = DType::kFloat32;
constexpr std::int64_t kRows = 6, kWidth = 8;

std::vector<ReasonCode> codes(const std::vector<Reason>& reasons) {
  std::vector<ReasonCode> codes;
  for (const Reason& reason : reasons) codes.push_back(reason.code);
  return codes;
}

/// A builder with inputs and weights at hand; the last operator's output becomes the result.
struct Parts : GraphBuilder {
  ValueId x = input("x", kF32, {kRows, kWidth});
  ValueId other = input("other", kF32, {kRows, kWidth});
  ValueId weight1 = weight("weight1", kF32, {kWidth, kWidth});
  ValueId weight2 = weight("weight2", kF32, {kWidth, kWidth});
  ValueId vector = weight("vector", kF32, {kWidth});

  std::vector<Reason> reasons(ValueId result, OperatorId first, OperatorId last,
                              const Limits& limits = {}) {
    mark_live_out(result);
    built = build();
    return legality(*built, first, last, limits);
  }
  std::optional<Graph> built;
};

TEST(Legality, LetsOneOperatorAlone) {
  Parts p;
  const ValueId m = p.matmul("m", p.x, p.weight1);
  p.mark_live_out(m);
  const ValueId r = p.reshape("r", m, {2, 24});
  EXPECT_THAT(p.reasons(r, 0, 0), IsEmpty());
  EXPECT_THAT(legality(*p.built, 1, 1), IsEmpty());
  EXPECT_THROW(legality(*p.built, 1, 2), Error);
  EXPECT_THROW(legality(*p.built, 1, 0), Error);
}

TEST(Legality, LetsAProductTakeWhatComesAfterIt) {
  Parts p;
  const ValueId m = p.matmul("m", p.x, p.weight1);
  const ValueId b = p.bias("b", m, p.vector);
  const ValueId a = p.activation("a", b, graph::Activation::kSilu);
  const ValueId r = p.add("r", p.other, a);  // either operand may be the running one
  const ValueId n = p.layer_norm("n", r, p.vector, p.vector, 1e-5);
  EXPECT_THAT(p.reasons(n, 0, 4), IsEmpty());
}

TEST(Legality, OtherConsumer) {
  Parts p;
  const ValueId m = p.matmul("m", p.x, p.weight1);
  const ValueId b = p.bias("b", m, p.vector);
  const ValueId late = p.add("late", b, m);
  const auto reasons = p.reasons(late, 0, 1);
  EXPECT_THAT(codes(reasons), ElementsAre(kOtherConsumer));
  EXPECT_THAT(reasons[0].text, AllOf(HasSubstr("\"m\""), HasSubstr("\"late\"")));
  EXPECT_EQ(reasons[0].value, p.built->find("m"));
}

TEST(Legality, OtherConsumerOfAView) {
  Parts p;
  const ValueId m = p.matmul("m", p.x, p.weight1);
  const ValueId half = p.columns("half", m, 0, 4);
  const ValueId b = p.bias("b", m, p.vector);
  p.mark_live_out(b);
  const ValueId late = p.activation("late", half, graph::Activation::kRelu);
  EXPECT_THAT(codes(p.reasons(late, 0, 1)), ElementsAre(kOtherConsumer));
}

TEST(Legality, LiveOut) {
  Parts p;
  const ValueId m = p.matmul("m", p.x, p.weight1);
  p.mark_live_out(m);
  EXPECT_THAT(codes(p.reasons(p.bias("b", m, p.vector), 0, 1)), ElementsAre(kLiveOut));
}

TEST(Legality, LiveOutView) {
  Parts p;
  const ValueId m = p.matmul("m", p.x, p.weight1);
  p.mark_live_out(p.columns("half", m, 4, 4));
  const auto reasons = p.reasons(p.bias("b", m, p.vector), 0, 1);
  EXPECT_THAT(codes(reasons), ElementsAre(kLiveOut));
  EXPECT_THAT(reasons[0].text, HasSubstr("\"half\""));
}

TEST(Legality, RowKernelsStoreTheSumTheyNormalise) {
  Parts p;  // as in pre-norm layers: the sum goes on beside the norm
  const ValueId s = p.add("s", p.x, p.other);
  const ValueId n = p.rms_norm("n", s, p.vector, 1e-6);
  const ValueId late = p.add("late", n, s);
  EXPECT_THAT(p.reasons(late, 0, 1), IsEmpty());
  const Segment segment = make_segment(*p.built, 0, 1);
  EXPECT_EQ(segment.family, Family::kRow);
  EXPECT_THAT(segment.outputs, ElementsAre(n, s));
}

TEST(Legality, ProductsDoNotStoreTheSumTheyNormalise) {
  Parts p;
  const ValueId m = p.matmul("m", p.x, p.weight1);
  const ValueId n = p.rms_norm("n", m, p.vector, 1e-6);
  EXPECT_THAT(codes(p.reasons(p.add("late", n, m), 0, 1)), ElementsAre(kOtherConsumer));
}

TEST(Legality, AliasOfAValueThatMustBeWritten) {
  Parts p;
  const ValueId cache = p.input("cache", kF32, {kRows, kWidth});
  const ValueId m = p.matmul("m", p.x, p.weight1);
  const ValueId b = p.bias("b", m, p.vector);
  p.overwrite(b, cache);
  const ValueId a = p.activation("a", b, graph::Activation::kRelu);
  const auto reasons = p.reasons(a, 0, 2);
  EXPECT_THAT(codes(reasons), ElementsAre(kAlias));
  EXPECT_THAT(reasons[0].text, AllOf(HasSubstr("\"b\""), HasSubstr("\"cache\"")));
  EXPECT_THAT(legality(*p.built, 0, 1), IsEmpty());
}

TEST(Legality, AliasOfAValueWhoseMemoryIsUsedAgain) {
  Parts p;
  const ValueId m = p.matmul("m", p.x, p.weight1);
  const ValueId b = p.bias("b", m, p.vector);
  const ValueId a = p.activation("a", b, graph::Activation::kRelu);
  p.overwrite(a, m);
  EXPECT_THAT(codes(p.reasons(a, 0, 1)), ElementsAre(kAlias));
}

TEST(Legality, OverlapOfTheResultWithWhatTheProductReads) {
  Parts p;
  const ValueId m = p.matmul("m", p.x, p.weight1);
  const ValueId b = p.bias("b", m, p.vector);
  p.overwrite(b, p.x);
  const auto reasons = p.reasons(b, 0, 1);
  EXPECT_THAT(codes(reasons), ElementsAre(kOverlap));
  EXPECT_THAT(reasons[0].text, AllOf(HasSubstr("\"b\""), HasSubstr("\"x\""), HasSubstr("\"m\"")));
}

TEST(Legality, LetsTheResultReplaceItsResidual) {
  Parts p;
  const ValueId m = p.matmul("m", p.x, p.weight1);
  const ValueId r = p.add("r", m, p.other);
  p.overwrite(r, p.other);
  EXPECT_THAT(p.reasons(r, 0, 1), IsEmpty());
}

TEST(Legality, OverlapWithColumnsOfTheResidual) {
  Parts p;
  const ValueId wide = p.input("wide", kF32, {kRows, kWidth});
  const ValueId half = p.columns("half", wide, 4, 4);
  const ValueId narrow = p.weight("narrow", kF32, {4, kWidth});
  const ValueId m = p.matmul("m", p.x, narrow);
  const ValueId r = p.add("r", m, half);
  const ValueId back = p.weight("back", kF32, {kWidth, 4});
  const ValueId m2 = p.matmul("m2", r, back);
  const ValueId b = p.bias("b", m2, p.vector);
  p.overwrite(b, wide);
  EXPECT_THAT(codes(p.reasons(b, 0, 3)), ElementsAre(kOverlap));
}

TEST(Legality, OverlapWithAResidualThatIsRotated) {
  Parts p;
  const ValueId positions = p.input("positions", DType::kInt32, {kRows});
  const ValueId r = p.add("r", p.x, p.other);
  const ValueId turned = p.rope("turned", r, positions, p.weight("f", kF32, {1}), 2, 1, 2);
  const ValueId b = p.bias("b", turned, p.vector);
  p.overwrite(b, p.other);
  EXPECT_THAT(codes(p.reasons(b, 0, 2)), ElementsAre(kOverlap));
}

TEST(Legality, BroadcastAdd) {
  for (const Dims& shape : {Dims({1, kWidth}), Dims({kRows, 1}), Dims({1, 1})}) {
    Parts p;
    const ValueId small = p.input("small", kF32, shape);
    const ValueId m = p.matmul("m", p.x, p.weight1);
    const auto reasons = p.reasons(p.add("sum", m, small), 0, 1);
    EXPECT_THAT(codes(reasons), ElementsAre(kBroadcast));
    EXPECT_THAT(reasons[0].text, AllOf(HasSubstr("\"small\""), HasSubstr(shape.to_string())));
  }
}

TEST(Legality, BroadcastProductButForRowScales) {
  for (const Dims& shape : {Dims({1, kWidth}), Dims({kRows, 1}), Dims({1, 1})}) {
    Parts p;
    const ValueId small = p.input("small", kF32, shape);
    const ValueId m = p.matmul("m", p.x, p.weight1);
    const auto found = codes(p.reasons(p.multiply("scaled", m, small), 0, 1));
    if (shape == Dims({kRows, 1}))
      EXPECT_THAT(found, IsEmpty());
    else
      EXPECT_THAT(found, ElementsAre(kBroadcast));
  }
}

TEST(Legality, BroadcastOfTheRunningValue) {
  Parts p;
  const ValueId row = p.input("row", kF32, {1, kWidth});
  const ValueId m = p.matmul("m", row, p.weight1);
  EXPECT_THAT(codes(p.reasons(p.add("sum", p.x, m), 0, 1)), ElementsAre(kBroadcast));
}

TEST(Legality, TooManyMatmuls) {
  Parts p;
  const ValueId m1 = p.matmul("m1", p.x, p.weight1);
  const ValueId m2 = p.matmul("m2", m1, p.weight2);
  const ValueId m3 = p.matmul("m3", m2, p.weight1);
  EXPECT_THAT(codes(p.reasons(m3, 0, 2)), Each(kTooManyMatmuls));
  EXPECT_EQ(legality(*p.built, 0, 2).size(), 3u);
  EXPECT_THAT(legality(*p.built, 0, 1), IsEmpty());
  EXPECT_EQ(make_segment(*p.built, 0, 1).family, Family::kGemmChain);
}

TEST(Legality, MatmulNotFirst) {
  Parts p;
  const ValueId n = p.layer_norm("n", p.x, p.vector, p.vector, 1e-5);
  Limits limits;
  limits.prologue_rows = kRows - 1;
  const auto reasons = p.reasons(p.matmul("m", n, p.weight1), 0, 1, limits);
  EXPECT_THAT(codes(reasons), ElementsAre(kMatmulNotFirst));
  EXPECT_THAT(reasons[0].text, HasSubstr("a norm of at most 5 rows, here 6"));
  Parts other;
  const ValueId a = other.activation("a", other.x, graph::Activation::kSilu);
  EXPECT_THAT(codes(other.reasons(other.matmul("m", a, other.weight1), 0, 1)),
              ElementsAre(kMatmulNotFirst));
}

TEST(Legality, LetsANormOfFewRowsGoBeforeOneProduct) {
  Parts p;
  const ValueId n = p.rms_norm("n", p.x, p.vector, 1e-5);
  const ValueId m = p.matmul("m", n, p.weight1);
  const ValueId b = p.bias("b", m, p.vector);
  const ValueId second = p.matmul("second", b, p.weight2);
  EXPECT_THAT(codes(p.reasons(second, 0, 3)), Each(kMatmulNotFirst));
  EXPECT_THAT(legality(*p.built, 0, 2), IsEmpty());
  const Segment segment = make_segment(*p.built, 0, 2);
  EXPECT_EQ(describe(*p.built, segment), "norm_gemm \"n\": rms_norm, matmul, bias");
  EXPECT_THAT(segment.inputs, ElementsAre(p.x, p.vector, p.weight1));
  EXPECT_EQ(segment.steps[1].operand, p.weight1);
  Limits limits;
  limits.row_columns = kWidth - 1;
  EXPECT_THAT(codes(legality(*p.built, 0, 1, limits)), ElementsAre(kRowTooWide));
}

TEST(Legality, RowTooWide) {
  Parts p;
  const ValueId m = p.matmul("m", p.x, p.weight1);
  const ValueId b = p.bias("b", m, p.vector);
  const ValueId n = p.layer_norm("n", b, p.vector, p.vector, 1e-5);
  Limits limits;
  limits.gemm_row_columns = kWidth;
  EXPECT_THAT(p.reasons(n, 0, 2, limits), IsEmpty());
  limits.gemm_row_columns = kWidth - 1;
  const auto reasons = legality(*p.built, 0, 2, limits);
  EXPECT_THAT(codes(reasons), ElementsAre(kRowTooWide));
  EXPECT_THAT(reasons[0].text, AllOf(HasSubstr("\"n\""), HasSubstr("8"), HasSubstr("7")));
  EXPECT_THAT(legality(*p.built, 1, 2, limits), IsEmpty());
  limits.row_columns = kWidth - 1;
  EXPECT_THAT(codes(legality(*p.built, 1, 2, limits)), ElementsAre(kRowTooWide));
}

TEST(Legality, SharedMemory) {
  Parts p;
  const ValueId m1 = p.matmul("m1", p.x, p.weight1);
  const ValueId m2 = p.matmul("m2", m1, p.weight2);
  Limits limits;
  limits.shared_bytes = 16 * kWidth * 4 + (32 << 10);  // 6 rows are a tile of 16
  EXPECT_THAT(p.reasons(m2, 0, 1, limits), IsEmpty());
  limits.shared_bytes -= 1;
  const auto reasons = legality(*p.built, 0, 1, limits);
  EXPECT_THAT(codes(reasons), ElementsAre(kSharedMemory));
}

TEST(Legality, Registers) {
  Parts p;
  const ValueId m = p.matmul("m", p.x, p.weight1);
  const ValueId b = p.bias("b", m, p.vector);
  const ValueId r = p.add("r", b, p.other);
  Limits limits;
  limits.epilogue_operands = 2;
  EXPECT_THAT(p.reasons(r, 0, 2, limits), IsEmpty());
  limits.epilogue_operands = 1;
  EXPECT_THAT(codes(legality(*p.built, 0, 2, limits)), ElementsAre(kRegisters));
}

TEST(Legality, NotAStoreMap) {
  Parts p;
  const ValueId m = p.matmul("m", p.x, p.weight1);
  EXPECT_THAT(codes(p.reasons(p.reshape("r", m, {4, 12}), 0, 1)), ElementsAre(kNotAStoreMap));
}

TEST(Legality, HeadStoreIsAStoreMapAtTheEnd) {
  Parts p;
  const ValueId m = p.matmul("m", p.x, p.weight1);
  const ValueId h = p.head_store("h", m, 2, 4);
  const ValueId r = p.reshape("r", h, {12, 4});
  EXPECT_THAT(codes(p.reasons(r, 0, 2)), ElementsAre(kNotAStoreMap, kNotAStoreMap));
  EXPECT_THAT(legality(*p.built, 0, 1), IsEmpty());
}

TEST(Legality, RowKernelsStoreTheRowsWhoseKeysGoToACache) {
  Parts p;
  const ValueId numbers = p.input("numbers", DType::kInt32, {kRows});
  const ValueId frequencies = p.weight("frequencies", kF32, {1});
  const ValueId cache = p.state("cache", kF32, {9, 4});
  const ValueId m = p.matmul("m", p.x, p.weight1);
  const ValueId b = p.bias("b", m, p.vector);
  const ValueId turned = p.rope("turned", b, numbers, frequencies, 2, 1, 2);
  const ValueId stored = p.cache_store("stored", turned, numbers, cache, 2, 1, 2);
  Limits limits;
  limits.epilogue_operands = 2;  // numbers of rows and the cache take no registers
  EXPECT_THAT(p.reasons(p.add("late", turned, p.other), 1, 3, limits), IsEmpty());
  const Segment segment = make_segment(*p.built, 1, 3);
  EXPECT_EQ(segment.family, Family::kElementwise);
  EXPECT_THAT(segment.outputs, ElementsAre(stored, turned));
  EXPECT_THAT(segment.inputs, ElementsAre(m, p.vector, numbers, frequencies, cache));
  EXPECT_EQ(segment.steps.back().step, Step::kCacheStore);
  // A product of more than a few rows stores its result alone.
  limits.prologue_rows = kRows - 1;
  EXPECT_THAT(codes(legality(*p.built, 0, 3, limits)), ElementsAre(kOtherConsumer));
  limits.prologue_rows = kRows;
  EXPECT_THAT(make_segment(*p.built, 0, 3, limits).outputs, ElementsAre(stored, turned));
}

TEST(Legality, SumsOfSquaresEndASegmentAndAreStoredBesideWhatTheyAreOf) {
  struct Squares : Parts {
    ValueId m = matmul("m", x, weight("wide", kF32, {64, kWidth}));
    ValueId s = row_squares("s", m);
  };
  Squares p;
  const ValueId n = p.matmul("n", p.m, p.weight("back", kF32, {kWidth, 64}));
  EXPECT_THAT(p.reasons(p.rms_scale("r", n, p.s, 1e-6), 0, 1), IsEmpty());  // n reads m, too
  EXPECT_THAT(make_segment(*p.built, 0, 1).outputs, ElementsAre(p.s, p.m));
  EXPECT_THAT(legality(*p.built, 2, 3), IsEmpty());
  EXPECT_EQ(make_segment(*p.built, 2, 3).steps.at(0).step, Step::kRmsScale);
  Squares followed;
  const ValueId a = followed.activation("a", followed.s, graph::Activation::kRelu);
  EXPECT_THAT(codes(followed.reasons(a, 0, 2)), ElementsAre(kNotAStoreMap));
}

TEST(Legality, CacheStoreIsAStoreMapAtTheEnd) {
  Parts p;
  const ValueId numbers = p.input("numbers", DType::kInt32, {kRows});
  const ValueId cache = p.state("cache", kF32, {9, 4});
  const ValueId m = p.matmul("m", p.x, p.weight1);
  const ValueId stored = p.cache_store("stored", m, numbers, cache, 2, 1, 2);
  const ValueId a = p.activation("a", stored, graph::Activation::kRelu);
  EXPECT_THAT(codes(p.reasons(a, 0, 2)), ElementsAre(kNotAStoreMap, kAlias));
  EXPECT_THAT(legality(*p.built, 0, 1), IsEmpty());
}

TEST(Legality, AttentionAlone) {
  Parts p;
  const ValueId q = p.matmul("q", p.x, p.weight1);
  const auto reasons = p.reasons(p.attention("a", q, p.x, p.other, 2, 2, 4), 0, 1);
  EXPECT_THAT(codes(reasons), ElementsAre(kAttentionAlone));
  EXPECT_THAT(reasons[0].text, HasSubstr("\"a\""));
}

TEST(Legality, PoolAlone) {
  Parts p;
  const ValueId offsets = p.input("offsets", DType::kInt32, {3});
  const ValueId b = p.bias("b", p.x, p.vector);
  EXPECT_THAT(codes(p.reasons(p.pool("pooled", b, offsets, graph::Pooling::kMean), 0, 1)),
              ElementsAre(kPoolAlone));
}

TEST(Legality, TwoNorms) {
  Parts p;
  const ValueId n1 = p.layer_norm("n1", p.x, p.vector, p.vector, 1e-5);
  const ValueId n2 = p.rms_norm("n2", n1, p.vector, 1e-5);
  EXPECT_THAT(codes(p.reasons(n2, 0, 1)), ElementsAre(kTwoNorms));
}

TEST(Legality, TwoNormsOfOneSource) {
  Parts p;
  const ValueId s = p.add("s", p.x, p.other);
  p.mark_live_out(p.layer_norm("n1", s, p.vector, p.vector, 1e-5));
  const ValueId n2 = p.layer_norm("n2", s, p.vector, p.vector, 1e-6);
  const auto reasons = p.reasons(n2, 0, 2);
  EXPECT_THAT(codes(reasons), Contains(kTwoNorms));
  for (const Reason& reason : reasons) {
    if (reason.code != kTwoNorms) continue;
    EXPECT_THAT(reason.text, AllOf(HasSubstr("\"n1\""), HasSubstr("\"n2\""), HasSubstr("\"s\"")));
  }
}

TEST(Legality, EmbeddingTail) {
  Parts p;
  const ValueId ids = p.input("ids", DType::kInt32, {kRows});
  const ValueId words = p.weight("words", kF32, {20, kWidth});
  const ValueId e = p.embedding("e", ids, words);
  const ValueId n = p.layer_norm("n", e, p.vector, p.vector, 1e-5);
  EXPECT_THAT(codes(p.reasons(p.bias("b", n, p.vector), 0, 2)), ElementsAre(kEmbeddingTail));
  EXPECT_THAT(legality(*p.built, 0, 1), IsEmpty());
}

TEST(Legality, LayerBoundary) {
  Parts p;
  p.begin_layer(p.x);
  p.end_layer(p.activation("layer.0.a", p.x, graph::Activation::kRelu));
  EXPECT_THAT(codes(p.reasons(p.stamp_layers(2), 0, 1)), ElementsAre(kLayerBoundary));
}

TEST(Legality, NotAChain) {
  Parts p;  // side by side
  p.mark_live_out(p.matmul("m1", p.x, p.weight1));
  EXPECT_THAT(codes(p.reasons(p.matmul("m2", p.x, p.weight2), 0, 1)), Contains(kNotAChain));

  Parts two;  // a value inside as second operand
  const ValueId m = two.matmul("m", two.x, two.weight1);
  const ValueId a = two.activation("a", m, graph::Activation::kRelu);
  EXPECT_THAT(codes(two.reasons(two.add("r", a, m), 0, 2)), ElementsAre(kNotAChain));

  Parts doubled;  // the running value twice
  const ValueId once = doubled.matmul("m", doubled.x, doubled.weight1);
  EXPECT_THAT(codes(doubled.reasons(doubled.add("r", once, once), 0, 1)), ElementsAre(kNotAChain));

  Parts square;  // the running value as a weight
  const ValueId w = square.matmul("w", square.weight1, square.weight2);
  EXPECT_THAT(codes(square.reasons(square.matmul("m", square.x, w), 0, 1)),
              ElementsAre(kNotAChain));

  Parts half;  // columns, but no gate
  const ValueId wide = half.matmul("m", half.x, half.weight1);
  const ValueId view = half.columns("view", wide, 0, 4);
  EXPECT_THAT(codes(half.reasons(half.activation("a", view, graph::Activation::kRelu), 0, 1)),
              ElementsAre(kNotAChain));
}

TEST(Legality, LetsAProductTakeItsGate) {
  // Halves in either order, the gate as either factor; what is no pair of halves is refused.
  for (const std::int64_t gate_column : {0, 4, 2}) {
    for (const bool swapped : {false, true}) {
      Parts p;
      const ValueId m = p.matmul("m", p.x, p.weight1);
      const ValueId b = p.bias("b", m, p.vector);
      const ValueId gate = p.columns("gate", b, gate_column, 4);
      const ValueId up = p.columns("up", b, 4 - gate_column, 4);
      const ValueId a = p.activation("a", gate, graph::Activation::kSilu);
      const auto found = p.reasons(swapped ? p.multiply("y", up, a) : p.multiply("y", a, up), 0, 3);
      if (gate_column == 2) {
        EXPECT_THAT(codes(found), Contains(kNotAChain));
        continue;
      }
      EXPECT_THAT(found, IsEmpty());
      const Segment segment = make_segment(*p.built, 0, 3);
      EXPECT_EQ(segment.steps[1].operand, gate);
      EXPECT_EQ(segment.gate_view, gate);
      EXPECT_EQ(segment.steps.back().step, Step::kGate);
      EXPECT_EQ(segment.steps.back().operand, up);
      // Apart from the product both halves are read from outside.
      EXPECT_THAT(legality(*p.built, 2, 3), IsEmpty());
      EXPECT_THAT(make_segment(*p.built, 2, 3).inputs, ElementsAre(gate, up));
      EXPECT_THAT(codes(legality(*p.built, 0, 2)), Contains(kOtherConsumer));
    }
  }
}

TEST(Legality, NamesEveryReasonOnce) {
  std::vector<std::string_view> names;
  for (int code = 0; code <= static_cast<int>(kPoolAlone); ++code) {
    const std::string_view name = to_string(static_cast<ReasonCode>(code));
    EXPECT_THAT(names, ::testing::Not(Contains(name)));
    names.push_back(name);
  }
}

}  // namespace
}  // namespace stof::fusion
