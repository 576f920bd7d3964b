// The sm80 kernel's own source, run on the CPU thread by thread (emulated/machine.h), on plans as
// the host makes them, against a reference in double. Proves addresses, fragments, barriers and the
// order of copies without a GPU; what the compiler makes of the source it cannot prove.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>

#include "attention/sm80_blockwise/kernel.cuh"
#include "backend/cpu/attention/position_bias.h"
#include "backend/cpu/attention/problem.h"
#include "backend/cuda/attention/packed_plan.h"
#include "mask/permute.h"
#include "stof/block_mask.h"
#include "stof/prune.h"

namespace stof {

alignas(1024) unsigned char shared[96 * 1024];  // what the kernel calls its dynamic shared memory

namespace cuda {
namespace {

using emulated::CopiesLand;

/// With a bias or a long function: ALiBi and a sink as well. With the others: nothing more.
enum class Scores { kPlain, kBias, kPositionBias, kShortFunction, kLongFunction };

/// A pair as masks and functions see it: of a packed sequence, inside it.
struct Place {
  std::int64_t b, q, k;
};

/// A caller's function, as src/codegen/score_mod.cc would emit it: of all that it may depend on.
template <bool kOnceAScore>
struct Function {
  static constexpr bool kUnrolled = kOnceAScore;
  struct Params : AttentionParams {
    const float* table;  // [64]
  };
  static float value(const float* table, float score, Place at, std::int64_t h) {
    if ((at.q + 2 * at.k) % 11 == 0) return -HUGE_VALF;
    return 0.5f * score + table[(7 * at.q + 3 * at.k + 5 * at.b + h + 1000) % 64];
  }
  static float apply(const Params& params, float score, int b, int h, int q, int k) {
    return value(params.table, score, {b, q, k}, h);
  }
};

/// One kernel configuration, as src/codegen/attention_sm80.cc would emit it. kPacked: sequences of
/// their own lengths.
template <int kQk, int kV, int kSlabs, int kRows, int kColumns, int kKeys, int kRing, int kLoad,
          bool kHeld, bool kPack, Scores kScores = Scores::kPlain, bool kPacked = false,
          bool kSparse = false>
struct EmulatedConfig {
  using Element = ptx::BFloat16;
  static constexpr int kHeadDimQk = kQk, kHeadDimV = kV;
  static constexpr int kWarpSlabs = kSlabs, kRowGroups = kRows, kColumnGroups = kColumns;
  static constexpr int kTileKv = kKeys, kStages = kRing, kLoadBytes = kLoad;
  static constexpr bool kQueryInRegisters = kHeld, kPackHeads = kPack, kTwoOfFour = kSparse,
                        kMerge = false, kVarlen = kPacked, kGridOrder = false;
  static constexpr bool kSoftcap = false, kBias = kScores == Scores::kBias && !kPacked,
                        kPositionBias = kScores == Scores::kPositionBias,
                        kAlibi = kScores == Scores::kBias || kScores == Scores::kLongFunction,
                        kSink = kAlibi, kScoreMod = kScores >= Scores::kShortFunction;
  using ScoreMod = Function<kScores == Scores::kShortFunction>;

  static codegen::AttentionConfig host() {
    codegen::AttentionConfig config;
    config.family = codegen::KernelFamily::kSm80;
    config.head_dim_qk = kQk;
    config.head_dim_v = kV;
    config.warp_slabs = kSlabs;
    config.warpgroups = kRows * kColumns;
    config.split_columns = kColumns == 2;
    config.tile_kv = kKeys;
    config.stages = kRing;
    config.load_bytes = kLoad;
    config.query_in_registers = kHeld;
    config.pack_heads = kPack;
    config.two_of_four = kSparse;
    config.alibi = kAlibi;
    config.sink = kSink;
    config.bias = kBias;
    config.position_bias = kPositionBias;
    config.varlen = kPacked;
    config.validate();
    return config;
  }
};

/// Random [batch, heads, rows, columns], rows at odd strides where 16-byte loads are not used, NaN
/// between them.
class Tensor {
 public:
  Tensor(std::int64_t batch, std::int64_t heads, std::int64_t rows, std::int64_t columns,
         int load_bytes, std::mt19937& random, bool integers = false)
      : heads_(heads),
        rows_(rows),
        columns_(columns),
        offset_(load_bytes == 16 ? 0 : load_bytes / 2),
        pitch_(columns + (load_bytes == 16 ? 8 : load_bytes / 2)),
        values_(static_cast<std::size_t>(offset_ + batch * heads * rows * pitch_)) {
    for (BFloat16& value : values_) value.bits = 0xffff;
    std::normal_distribution<float> normal;
    for (std::int64_t row = 0; row < batch * heads * rows; ++row)
      for (std::int64_t column = 0; column < columns; ++column)
        values_[static_cast<std::size_t>(offset_ + row * pitch_ + column)] =
            BFloat16(integers ? std::round(normal(random)) : normal(random));
  }
  Operand operand() const {
    return {reinterpret_cast<const unsigned char*>(values_.data() + offset_),
            heads_ * rows_ * pitch_ * 2, rows_ * pitch_ * 2, pitch_ * 2};
  }
  double at(std::int64_t batch, std::int64_t head, std::int64_t row, std::int64_t column) const {
    return static_cast<float>(values_[static_cast<std::size_t>(
        offset_ + ((batch * heads_ + head) * rows_ + row) * pitch_ + column)]);
  }

  /// Of one batch entry, contiguous.
  std::vector<float> values(std::int64_t heads) const {
    std::vector<float> all;
    for (std::int64_t i = 0; i < heads * rows_ * columns_; ++i)
      all.push_back(static_cast<float>(at(0, 0, i / columns_, i % columns_)));
    return all;
  }

 private:
  std::int64_t heads_, rows_, columns_, offset_, pitch_;
  std::vector<BFloat16> values_;
};

constexpr std::int64_t kBatch = 1, kHeads = 2, kHeadsKv = 1;

template <class Config>
class Emulation {
 public:
  Emulation(std::int64_t seq_q, std::int64_t seq_kv)
      : random_(7),
        q_(kBatch, kHeads, seq_q, Config::kHeadDimQk, Config::kLoadBytes, random_,
           Config::kTwoOfFour),
        k_(kBatch, kHeadsKv, seq_kv, Config::kHeadDimQk, Config::kLoadBytes, random_,
           Config::kTwoOfFour),
        v_(kBatch, kHeadsKv, seq_kv, Config::kHeadDimV, Config::kLoadBytes, random_) {
    problem_.batch = kBatch;
    problem_.num_heads_q = kHeads;
    problem_.num_heads_kv = kHeadsKv;
    problem_.seq_q = seq_q;
    problem_.seq_kv = seq_kv;
    problem_.head_dim_qk = Config::kHeadDimQk;
    problem_.head_dim_v = Config::kHeadDimV;
    problem_.dtype = DType::kBFloat16;
    if constexpr (Config::kPositionBias) set_buckets({12, true, 20});
    std::normal_distribution<float> of_table;
    for (float& value : table_) value = of_table(random_);
    if constexpr (Config::kBias) {
      std::normal_distribution<float> normal;
      bias_.resize(static_cast<std::size_t>(seq_q * seq_kv));
      bias_strides_[0] = seq_kv;
      bias_strides_[1] = 1;
      for (float& value : bias_) {
        value = normal(random_);
        if (value > 1.5f) value = -HUGE_VALF;
        if (value < -1.5f) value = -3e38f;  // finite: hides nothing that is seen alone
      }
    }
  }

  /// Bias by keys, so that no two of a row's are neighbours, and as one row for all queries.
  void transpose_bias() { bias_strides_[0] = 1, bias_strides_[1] = problem_.seq_q; }
  void broadcast_bias() { bias_strides_[0] = 0, bias_strides_[1] = 1; }
  void set_buckets(const PositionBias& rule) {
    problem_.position_bias = rule;
    std::normal_distribution<float> normal;
    position_table_.resize(static_cast<std::size_t>(rule.num_buckets * kTablePitch));
    for (float& value : position_table_) value = 3 * normal(random_);
    position_table_[kTablePitch] = -HUGE_VALF;  // of head 0: nothing sees its neighbour
  }
  void align_last() { problem_.alignment = mask::Alignment::kBottomRight; }

  void check(const mask::Mask& mask, std::int64_t step, CopiesLand copies) {
    SCOPED_TRACE(mask.describe() + " step " + std::to_string(step));
    const mask::ScoreShape shape{kBatch, kHeads, problem_.seq_q, problem_.seq_kv};
    const mask::Mask bound = mask.bind(shape, problem_.alignment);
    const auto config = Config::host();
    const auto blocks = build_block_mask(step == 1 ? bound : mask::permuted(bound, shape, step),
                                         shape, problem_.alignment);
    launch(build_device_plan(problem_, build_mask_plan(blocks, plan_config(config)), config, 2), {},
           step, copies);
    const mask::Mask seen = Config::kTwoOfFour ? pruned(mask) : bound;
    compare([&](std::int64_t h, std::int64_t i, std::int64_t j) {
      return seen.visible(0, h, i, j)
                 ? std::optional(Place{0, i + cpu::position_offset(problem_), j})
                 : std::nullopt;
    });
  }

  /// The rows as sequences, each masked with its own lengths.
  void check_packed(const mask::Mask& mask, const std::vector<std::int64_t>& cu_q,
                    const std::vector<std::int64_t>& cu_kv, CopiesLand copies) {
    SCOPED_TRACE("packed " + mask.describe());
    const auto config = Config::host();
    const auto packed = cpu::pack_sequences(problem_, mask, cu_q, cu_kv);
    launch(build_packed_plan(packed, blocks_of_parts(packed), config, 2), sequences_of(packed), 1,
           copies);
    std::vector<mask::Mask> bound;
    for (const auto& part : packed.parts)
      bound.push_back(part.mask.bind(cpu::score_shape(part.problem), part.problem.alignment));
    compare([&](std::int64_t h, std::int64_t i, std::int64_t j) -> std::optional<Place> {
      std::size_t s = 0;
      while (i >= cu_q[s + 1]) ++s;
      if (j < cu_kv[s] || j >= cu_kv[s + 1]) return std::nullopt;
      const std::size_t part = packed.part_of[s];
      const std::int64_t query = i - cu_q[s], key = j - cu_kv[s];
      if (!bound[part].visible(0, h, query, key)) return std::nullopt;
      return Place{static_cast<std::int64_t>(s),
                   query + cpu::position_offset(packed.parts[part].problem), key};
    });
  }

 private:
  using D = MmaDerived<Config>;

  /// What the CPU's pruner leaves of it: of integers, so that scores are exact and many are equal.
  mask::Mask pruned(const mask::Mask& base) const {
    const std::vector<float> q = q_.values(kHeads), k = k_.values(kHeadsKv);
    const Dims q_shape{1, kHeads, problem_.seq_q, problem_.head_dim_qk},
        k_shape{1, kHeadsKv, problem_.seq_kv, problem_.head_dim_qk};
    const mask::PruneInput input{{q.data(), DType::kFloat32, q_shape, contiguous_strides(q_shape)},
                                 {k.data(), DType::kFloat32, k_shape, contiguous_strides(k_shape)},
                                 0,
                                 base,
                                 problem_.alignment};
    return mask::prune(input, mask::Pruner::parse("nm(2, 4)"), 1).mask;
  }

  void launch(const DevicePlan& plan, const std::vector<Sequence>& sequences, std::int64_t step,
              CopiesLand copies) {
    BFloat16 poison;
    poison.bits = 0x7fc1;
    out_.assign(static_cast<std::size_t>(kBatch * kHeads * problem_.seq_q * problem_.head_dim_v),
                poison);
    lse_.assign(static_cast<std::size_t>(kBatch * kHeads * problem_.seq_q), std::nanf(""));
    const int seq_q = static_cast<int>(problem_.seq_q), seq_kv = static_cast<int>(problem_.seq_kv);
    const auto residues = static_cast<int>(step);
    typename Config::ScoreMod::Params params{};
    params.table = table_;
    static_assert(sizeof(stof::WorkRecord) == sizeof(WorkRecord));
    std::vector<stof::WorkRecord> records(plan.records.size());
    std::memcpy(records.data(), plan.records.data(), records.size() * sizeof(WorkRecord));
    params.records = records.data();
    params.partial = reinterpret_cast<const stof::PartialTile*>(plan.partial.data());
    params.runs = reinterpret_cast<const stof::TileRun*>(plan.runs.data());
    params.payloads = reinterpret_cast<const unsigned char*>(plan.payloads.data());
    unsigned queue[2] = {0, 0};
    params.queue = queue;
    params.out = out_.data();
    params.lse = lse_.data();
    params.out_batch_stride = kHeads * problem_.seq_q * problem_.head_dim_v;
    params.out_head_stride = problem_.seq_q * problem_.head_dim_v;
    params.out_row_stride = problem_.head_dim_v;
    params.num_records = static_cast<int>(records.size());
    params.num_heads_q = kHeads;
    params.heads_per_group = kHeads / kHeadsKv;
    params.seq_q = seq_q;
    params.step = residues;
    params.residue_rows_q = seq_q / residues;
    params.residue_rows_kv = seq_kv / residues;
    params.scale = 1.0f / std::sqrt(static_cast<float>(problem_.head_dim_qk));
    params.scale_log2 = params.scale * 1.44269504f;
    params.seq_kv = seq_kv;
    params.bottom_right = problem_.alignment == mask::Alignment::kBottomRight;
    params.sequences = reinterpret_cast<const stof::Sequence*>(sequences.data());
    params.alibi_slopes = kSlopes;
    params.sink = kSinks;
    params.alibi_stride = params.sink_stride = 1;
    params.bias = bias_.data();
    params.bias_strides[2] = bias_strides_[0];
    params.bias_strides[3] = bias_strides_[1];
    params.bias_pairs = step == 1 && bias_strides_[1] == 1 && bias_strides_[0] % 2 == 0;
    if (Config::kPositionBias) {
      params.position_table = position_table_.data();
      params.position_head_stride = 1;
      params.position_bucket_stride = kTablePitch;
      params.position_reach = static_cast<int>(plan.position_buckets.size() / 2);
      params.position_buckets = plan.position_buckets.data() + params.position_reach;
    }
    const Operands operands{q_.operand(), k_.operand(), v_.operand()};
    static_assert(D::kSharedBytes <= sizeof(shared));
    ASSERT_EQ(D::kSharedBytes, Config::host().shared_bytes());
    ASSERT_EQ(D::kThreads, Config::host().threads());
    // Blocks one after the other: the first takes what it finds in the queue.
    gridDim.x = static_cast<unsigned>(std::min<std::size_t>(2, records.size()));
    for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x)
      emulated::machine.run(D::kThreads, shared, D::kSharedBytes, copies,
                            [&] { sm80_blockwise<Config>(params, operands); });
    EXPECT_EQ(queue[0], 0u) << "the next launch needs an empty queue";
    EXPECT_EQ(queue[1], 0u);
  }

  /// place(head, query, key): nothing where the key is not seen.
  template <class PlaceOf>
  void compare(const PlaceOf& place) const {
    const std::int64_t columns = problem_.head_dim_v;
    double difference = 0, norm = 0;
    for (std::int64_t h = 0; h < kHeads; ++h)
      for (std::int64_t i = 0; i < problem_.seq_q; ++i) {
        double sum = 0, top = 0;
        std::vector<double> row(static_cast<std::size_t>(columns), 0);
        for (std::int64_t j = 0; j < problem_.seq_kv; ++j) {
          const std::optional<Place> at = place(h, i, j);
          if (!at) continue;
          const double score = logit(h, i, j, *at);
          if (score == -HUGE_VAL) continue;
          if (sum == 0 || score > top) {
            const double rescale = sum == 0 ? 0 : std::exp(top - score);
            sum *= rescale;
            for (double& value : row) value *= rescale;
            top = score;
          }
          const double weight = std::exp(score - top);
          sum += weight;
          for (std::int64_t d = 0; d < columns; ++d)
            row[static_cast<std::size_t>(d)] += weight * v_.at(0, 0, j, d);
        }
        if (Config::kSink && sum > 0) sum += std::exp(kSinks[h] - top);
        const auto at = static_cast<std::size_t>(h * problem_.seq_q + i);
        const double lse = top + std::log(sum);
        if (sum > 0 && lse < -1e30)
          ASSERT_LT(lse_[at], -1e30) << "head " << h << " row " << i;  // held where it is finite
        else if (sum > 0)
          ASSERT_NEAR(lse_[at], lse, 1e-4) << "head " << h << " row " << i;
        else
          ASSERT_EQ(lse_[at], -HUGE_VALF) << "head " << h << " row " << i;
        for (std::int64_t d = 0; d < columns; ++d) {
          const double want = sum > 0 ? row[static_cast<std::size_t>(d)] / sum : 0;
          const double got = static_cast<float>(
              out_[at * static_cast<std::size_t>(columns) + static_cast<std::size_t>(d)]);
          ASSERT_FALSE(std::isnan(got)) << "head " << h << " row " << i << " column " << d;
          difference += (got - want) * (got - want);
          norm += want * want;
        }
      }
    EXPECT_LE(std::sqrt(difference), 4e-3 * std::sqrt(norm));
  }

  double logit(std::int64_t h, std::int64_t i, std::int64_t j, Place at) const {
    const std::int64_t apart = at.k - at.q;
    double score = 0;
    for (std::int64_t d = 0; d < problem_.head_dim_qk; ++d)
      score += q_.at(0, h, i, d) * k_.at(0, 0, j, d);
    score /= std::sqrt(problem_.head_dim_qk);
    if (Config::kAlibi) score += kSlopes[h] * static_cast<double>(apart);
    if (Config::kPositionBias)
      score += position_table_[static_cast<std::size_t>(
          cpu::position_bucket(problem_.position_bias, apart) * kTablePitch + h)];
    if (Config::kBias)
      score += bias_[static_cast<std::size_t>(i * bias_strides_[0] + j * bias_strides_[1])];
    if (Config::kScoreMod)
      score = Config::ScoreMod::value(table_, static_cast<float>(score), at, h);
    return score;
  }

  static constexpr float kSlopes[kHeads] = {0.25f, 0.03f}, kSinks[kHeads] = {1.5f, 30.0f};
  std::mt19937 random_;
  AttentionProblem problem_;
  static constexpr int kTablePitch = kHeads + 1;
  std::vector<float> bias_, position_table_;
  float table_[64];
  std::int64_t bias_strides_[2] = {0, 0};
  Tensor q_, k_, v_;
  std::vector<BFloat16> out_;
  std::vector<float> lse_;
};

TEST(Sm80Emulated, TwoSlabsAWarpWithQueriesInRegisters) {
  using Config = EmulatedConfig<64, 64, 2, 1, 1, 64, 2, 16, true, false>;
  Emulation<Config> run(150, 150);
  run.check(mask::causal(), 1, CopiesLand::kLate);
  run.check(mask::dilated(40, 2), 2, CopiesLand::kLate);
  run.check(mask::document({70, 60, 20}), 1, CopiesLand::kEarly);
}

TEST(Sm80Emulated, OneStageAndPackedHeads) {
  using Config = EmulatedConfig<32, 32, 2, 1, 1, 32, 1, 16, false, true>;
  Emulation<Config> run(70, 150);
  for (const CopiesLand copies : {CopiesLand::kLate, CopiesLand::kEarly})
    for (const mask::Mask& mask : {mask::all(), mask::causal(), mask::random_elements(0.3, 5)})
      run.check(mask, 1, copies);
}

TEST(Sm80Emulated, NarrowLoadsAndOddHeadDimensions) {
  using TwoBytes = EmulatedConfig<40, 24, 1, 1, 1, 64, 3, 2, true, false>;
  using FourBytes = EmulatedConfig<24, 72, 1, 1, 1, 32, 2, 4, false, false>;
  for (const CopiesLand copies : {CopiesLand::kLate, CopiesLand::kEarly}) {
    Emulation<TwoBytes>(70, 200).check(mask::window(60, 10), 1, copies);
    Emulation<FourBytes>(70, 100).check(mask::causal(), 2, copies);
  }
}

TEST(Sm80Emulated, AlibiBiasAndSinkInEveryOrderAndLayout) {
  using Config = EmulatedConfig<16, 16, 2, 1, 1, 32, 2, 16, true, false, Scores::kBias>;
  using Packed = EmulatedConfig<16, 16, 2, 1, 1, 64, 1, 16, false, true, Scores::kBias>;
  Emulation<Config> even(150, 150);
  even.check(mask::causal(), 1, CopiesLand::kLate);
  even.broadcast_bias();
  even.check(mask::window(40, 9), 1, CopiesLand::kLate);
  Emulation<Config> residues(132, 192);
  residues.check(mask::dilated(60, 2), 2, CopiesLand::kLate);
  residues.transpose_bias();
  residues.align_last();
  residues.check(mask::dilated(60, 3), 3, CopiesLand::kLate);
  Emulation<Packed> odd(70, 133);
  odd.align_last();
  odd.check(mask::causal(), 1, CopiesLand::kEarly);
  odd.transpose_bias();
  odd.check(mask::random_elements(0.3, 5), 1, CopiesLand::kLate);
}

TEST(Sm80Emulated, PackedSequencesOfAllLengths) {
  using Plain = EmulatedConfig<32, 32, 1, 1, 1, 32, 2, 16, true, false, Scores::kPlain, true>;
  using Modified = EmulatedConfig<16, 16, 2, 1, 1, 64, 1, 16, false, true, Scores::kBias, true>;
  using Buckets =
      EmulatedConfig<16, 16, 1, 1, 1, 16, 2, 16, true, false, Scores::kPositionBias, true>;
  Emulation<Plain> run(200, 230);
  run.check_packed(mask::causal(), {0, 70, 70, 71, 200}, {0, 100, 101, 101, 230},
                   CopiesLand::kLate);
  run.check_packed(mask::per_batch({mask::all(), mask::window(20, 3)}), {0, 128, 200}, {0, 64, 230},
                   CopiesLand::kEarly);
  Emulation<Modified> modified(130, 210);
  modified.check_packed(mask::window(30, 5), {0, 100, 130}, {0, 100, 210}, CopiesLand::kLate);
  modified.align_last();
  modified.check_packed(mask::causal(), {0, 60, 130, 130}, {0, 130, 150, 210}, CopiesLand::kLate);
  Emulation<Buckets> buckets(100, 120);
  buckets.align_last();
  buckets.check_packed(mask::window(70, 30), {0, 20, 100}, {0, 70, 120}, CopiesLand::kLate);
}

TEST(Sm80Emulated, PositionBucketsNearAndFar) {
  using Config = EmulatedConfig<16, 16, 2, 1, 1, 32, 2, 16, true, false, Scores::kPositionBias>;
  Emulation<Config> run(150, 192);
  run.check(mask::all(), 1, CopiesLand::kLate);
  run.align_last();
  run.check(mask::dilated(80, 3), 3, CopiesLand::kEarly);
  run.set_buckets({7, false, 500});  // a reach beyond all distances
  run.check(mask::causal(), 1, CopiesLand::kLate);
}

TEST(Sm80Emulated, FunctionsOfScores) {
  using Short = EmulatedConfig<16, 16, 2, 1, 1, 32, 2, 16, true, false, Scores::kShortFunction>;
  using Long = EmulatedConfig<16, 16, 2, 1, 1, 64, 1, 16, false, true, Scores::kLongFunction>;
  using Packed =
      EmulatedConfig<16, 16, 1, 1, 1, 32, 2, 16, true, false, Scores::kLongFunction, true>;
  Emulation<Short> once(132, 192);
  once.check(mask::causal(), 1, CopiesLand::kLate);
  once.align_last();
  once.check(mask::dilated(60, 3), 3, CopiesLand::kLate);
  Emulation<Long> looped(130, 192);
  looped.check(mask::window(40, 9), 1, CopiesLand::kEarly);
  looped.align_last();
  looped.check(mask::causal(), 1, CopiesLand::kLate);
  Emulation<Packed> packed(100, 120);
  packed.align_last();
  packed.check_packed(mask::window(70, 30), {0, 20, 100}, {0, 70, 120}, CopiesLand::kLate);
}

TEST(Sm80Emulated, TwoWarpgroupsOverRowsAndOverColumns) {
  using Rows = EmulatedConfig<16, 136, 1, 2, 1, 32, 2, 16, false, false>;
  using Columns = EmulatedConfig<16, 264, 1, 1, 2, 16, 1, 16, false, false>;
  Emulation<Rows>(150, 100).check(mask::causal(), 1, CopiesLand::kLate);
  for (const mask::Mask& mask : {mask::causal(), mask::none()})
    Emulation<Columns>(70, 60).check(mask, 1, CopiesLand::kLate);
}

/// Two of four neighbouring keys: the CPU pruner's choice, in groups that the mask cuts and that
/// the last key does.
template <int kHeadDim, int kSlabs, int kKeys, int kRing, int kLoad, bool kPack, int kRows = 1>
using SparseConfig = EmulatedConfig<kHeadDim, kHeadDim, kSlabs, kRows, 1, kKeys, kRing, kLoad,
                                    false, kPack, Scores::kPlain, false, true>;

TEST(Sm80Emulated, TwoOfFourAsTheCpuPrunerChooses) {
  Emulation<SparseConfig<64, 2, 64, 2, 16, false>> wide(150, 150);
  wide.check(mask::all(), 1, CopiesLand::kLate);
  wide.check(mask::causal(), 1, CopiesLand::kEarly);
  Emulation<SparseConfig<128, 1, 32, 1, 16, false>> deep(70, 101);
  deep.check(mask::causal(), 1, CopiesLand::kLate);
  deep.align_last();
  deep.check(mask::window(41, 3), 1, CopiesLand::kLate);
  Emulation<SparseConfig<32, 2, 96, 2, 16, true>> packed(70, 203);
  packed.check(mask::random_elements(0.3, 5), 1, CopiesLand::kLate);
  Emulation<SparseConfig<32, 1, 64, 3, 4, false, 2>> narrow(130, 133);
  narrow.check(mask::random_elements(0.5, 7) & mask::causal(), 1, CopiesLand::kEarly);
}

}  // namespace
}  // namespace cuda
}  // namespace stof
