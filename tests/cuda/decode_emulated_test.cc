// The decode kernel's and its combine's own source, run on the CPU thread by thread
// (emulated/machine.h), against a reference in double. Proves addresses, fragments, barriers, the
// order of copies and the cutting of sequences without a GPU.

#include <gtest/gtest.h>

#include <numeric>

#include "attention/decode/combine.cuh"
#include "attention/decode/kernel.cuh"
#include "backend/cpu/attention/position_bias.h"
#include "backend/cuda/attention/decode_config.h"
#include "backend/cuda/attention/decode_lists.h"
#include "backend/cuda/attention/device_plan.h"
#include "emulated/operand.h"

namespace stof {

namespace decode {
alignas(1024) unsigned char shared[96 * 1024];  // what the kernels call their shared memory
}

namespace cuda {
namespace {

using emulated::CopiesLand;

/// One kernel configuration, as src/codegen/decode.cc would emit it.
template <class E, int kQk, int kV, int kRowsWide, int kTiles, int kKeysWide, int kKeys, int kRing,
          int kPage, bool kList, bool kExtras, bool kMerge = false>
struct EmulatedConfig {
  using Element = E;
  static constexpr int kHeadDimQk = kQk, kHeadDimV = kV, kRowWarps = kRowsWide, kRowTiles = kTiles,
                       kKeyWarps = kKeysWide, kTileKeys = kKeys, kStages = kRing, kPageSize = kPage;
  static constexpr bool kLists = kList, kSoftcap = kExtras, kAlibi = kExtras,
                        kPositionBias = kExtras, kEarlyStart = true, kMerges = kMerge,
                        kEarlyKeys = kMerge && !kList;

  static codegen::DecodeConfig host() {
    codegen::DecodeConfig config;
    config.head_dim_qk = kQk, config.head_dim_v = kV;
    config.row_warps = kRowsWide, config.row_tiles = kTiles, config.key_warps = kKeysWide;
    config.tile_keys = kKeys, config.stages = kRing, config.blocks_per_sm = 1;
    config.page_size = kPage, config.lists = kList;
    config.validate();
    return config;
  }
};

template <class Config>
class Emulation {
 public:
  using Value = std::conditional_t<std::is_same_v<typename Config::Element, ptx::BFloat16>,
                                   BFloat16, Float16>;

  /// Lengths may be shorter than max_seq_kv; what lies past them is NaN.
  Emulation(std::int64_t heads_q, std::int64_t heads_kv, std::int64_t seq_q,
            std::int64_t max_seq_kv, std::vector<int> lengths)
      : random_(5),
        lengths_(std::move(lengths)),
        pages_((max_seq_kv + 63) / 64 * 4),
        q_(batch(), heads_q, seq_q, Config::kHeadDimQk, random_),
        k_(caches(), heads_kv, cache_rows(max_seq_kv), Config::kHeadDimQk, random_),
        v_(caches(), heads_kv, cache_rows(max_seq_kv), Config::kHeadDimV, random_),
        out_(batch(), heads_q, seq_q, Config::kHeadDimV, random_) {
    problem_.batch = batch(), problem_.num_heads_q = heads_q, problem_.num_heads_kv = heads_kv;
    problem_.seq_q = seq_q, problem_.max_seq_kv = max_seq_kv;
    problem_.head_dim_qk = Config::kHeadDimQk, problem_.head_dim_v = Config::kHeadDimV;
    problem_.lengths = true, problem_.page_size = Config::kPageSize;
    problem_.position_bias = {kBuckets, true, 20};
    problem_.validate();
    for (std::int64_t i = 0; i < problem_.num_heads_q; ++i)
      slopes_.push_back(0.01f * static_cast<float>(i - 1)), sinks_.push_back(0.5f);
    std::normal_distribution<float> normal;
    for (std::int64_t i = 0; i < kBuckets * heads_q; ++i) biases_.push_back(normal(random_));
    AttentionProblem distances;
    distances.seq_q = seq_q, distances.seq_kv = max_seq_kv;
    distances.position_bias = problem_.position_bias;
    buckets_ = position_buckets(distances);
    if (Config::kPageSize > 0) {
      table_.resize(static_cast<std::size_t>(batch() * pages_));
      std::iota(table_.begin(), table_.end(), 0);
      std::shuffle(table_.begin(), table_.end(), random_);
    }
    for (std::int64_t b = 0; b < batch(); ++b)
      for (std::int64_t h = 0; h < heads_kv; ++h)
        for (std::int64_t row = length(b); row < max_seq_kv; ++row) {
          k_.clear_row(cache(b, row), h, cache_row(row));
          v_.clear_row(cache(b, row), h, cache_row(row));
        }
  }

  void set_window(std::int64_t left, std::int64_t right, std::int64_t sinks) {
    problem_.window_left = left, problem_.window_right = right, problem_.sink_tokens = sinks;
  }

  /// `num_sms`: of the GPU, one block each. With a mask, by its lists.
  void check(int num_sms, int waves, CopiesLand copies, const mask::Mask* mask = nullptr) {
    SCOPED_TRACE(problem_.describe() + (mask != nullptr ? " mask " + mask->describe() : ""));
    std::optional<mask::Mask> bound;
    if (mask != nullptr)
      bound = mask->bind({batch(), problem_.num_heads_q, problem_.seq_q, problem_.max_seq_kv},
                         mask::Alignment::kBottomRight);
    launch(num_sms, waves, copies, bound ? &*bound : nullptr);
    compare(bound ? &*bound : nullptr);
  }

 private:
  using D = decode::Derived<Config>;

  std::int64_t batch() const { return static_cast<std::int64_t>(lengths_.size()); }
  std::int64_t length(std::int64_t b) const { return lengths_[static_cast<std::size_t>(b)]; }
  std::int64_t caches() const { return Config::kPageSize > 0 ? batch() * pages_ : batch(); }
  static std::int64_t cache_rows(std::int64_t max_seq_kv) {
    return Config::kPageSize > 0 ? Config::kPageSize : max_seq_kv;
  }
  std::int64_t cache(std::int64_t b, std::int64_t row) const {
    if constexpr (Config::kPageSize > 0)
      return table_[static_cast<std::size_t>(b * pages_ + row / Config::kPageSize)];
    return b;
  }
  static std::int64_t cache_row(std::int64_t row) {
    if constexpr (Config::kPageSize > 0) return row % Config::kPageSize;
    return row;
  }

  void launch(int num_sms, int waves, CopiesLand copies, const mask::Mask* bound) {
    const codegen::DecodeConfig config = Config::host();
    DecodeGrid grid = decode_grid(problem_, config, num_sms);
    grid.max_waves = waves;
    out_.clear();
    lse_.assign(static_cast<std::size_t>(batch() * problem_.num_heads_q * problem_.seq_q),
                std::nanf(""));
    const auto slots = static_cast<std::size_t>(grid.slots() * grid.slot_rows);
    std::vector<float4> partial(slots * Config::kHeadDimV / 4, {NAN, NAN, NAN, NAN});
    std::vector<float2> sums(slots, {NAN, NAN});
    std::vector<u32> arrivals(
        static_cast<std::size_t>(batch() * problem_.num_heads_kv * grid.row_blocks));
    DecodeLists lists;
    if (bound != nullptr) lists = build_decode_lists(problem_, *bound, config);

    decode::DecodeParams params{};
    params.q = q_.data(), params.k = k_.data(), params.v = v_.data(), params.out = out_.data();
    params.lse = lse_.data();
    params.partial_out = &partial[0].x, params.partial_sums = sums.data();
    params.arrivals = arrivals.data();
    params.lengths = lengths_.data(), params.page_table = table_.data();
    params.tiles = reinterpret_cast<const decode::ListedTile*>(lists.tiles.data());
    params.payloads = reinterpret_cast<const u64*>(lists.payloads.data());
    params.sequence_begin = reinterpret_cast<const i64*>(lists.sequence_begin.data());
    params.list_begin = reinterpret_cast<const i64*>(lists.list_begin.data());
    params.sink = sinks_.data(), params.alibi_slopes = slopes_.data();
    params.position_table = biases_.data();
    params.position_reach = static_cast<int>(buckets_.size() / 2);
    params.position_buckets = buckets_.data() + params.position_reach;
    for (int i = 0; i < 3; ++i) {
      params.q_strides[i] = q_.strides()[i], params.k_strides[i] = k_.strides()[i];
      params.v_strides[i] = v_.strides()[i], params.out_strides[i] = out_.strides()[i];
    }
    params.page_table_stride = pages_;
    params.batch = static_cast<int>(batch());
    params.num_heads_kv = static_cast<int>(problem_.num_heads_kv);
    params.group = static_cast<int>(problem_.num_heads_q / problem_.num_heads_kv);
    params.seq_q = static_cast<int>(problem_.seq_q);
    params.num_rows = params.group * params.seq_q;
    params.row_blocks = grid.row_blocks, params.slot_rows = grid.slot_rows;
    params.seq_kv = static_cast<int>(problem_.max_seq_kv);
    const auto side = [](const std::optional<std::int64_t>& reach) {
      return reach ? static_cast<int>(*reach) : decode::Window::kUnbounded;
    };
    params.window = {side(problem_.window_left), side(problem_.window_right),
                     static_cast<int>(problem_.sink_tokens)};
    params.resident_blocks = grid.resident_blocks, params.max_waves = grid.max_waves;
    params.scale = 1.0f / std::sqrt(static_cast<float>(Config::kHeadDimQk));
    params.softcap = kCap;

    static_assert(D::kSharedBytes <= sizeof(decode::shared));
    ASSERT_EQ(D::kSharedBytes, config.shared_bytes());
    ASSERT_EQ(sizeof(decode::CombineShared<D>),
              static_cast<std::size_t>(config.combine_shared_bytes()));
    const auto run = [&](unsigned blocks, int threads, std::size_t bytes, auto kernel) {
      gridDim.x = blocks;
      for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
        emulated::machine.run(threads, decode::shared, bytes, copies, [&] { kernel(params); });
    };
    run(static_cast<unsigned>(grid.blocks()), D::kThreads, D::kSharedBytes,
        decode::decode_kernel<D>);
    for (const u32 count : arrivals) EXPECT_EQ(count, 0u) << "the next launch needs zeros";
    if (!D::kMerges)
      run(static_cast<unsigned>(batch() * problem_.num_heads_q * problem_.seq_q),
          decode::kCombineThreads, sizeof(decode::CombineShared<D>), decode::combine_kernel<D>);
  }

  bool visible(std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t k,
               const mask::Mask* bound) const {
    if (bound != nullptr) return bound->visible(b, h, q, k);
    const std::int64_t position = length(b) - problem_.seq_q + q;
    if (problem_.window_right && k > position + *problem_.window_right) return false;
    return !problem_.window_left || k >= position - *problem_.window_left ||
           k < problem_.sink_tokens;
  }

  void compare(const mask::Mask* bound) const {
    const std::int64_t group = problem_.num_heads_q / problem_.num_heads_kv;
    double difference = 0, norm = 0;
    for (std::int64_t b = 0; b < batch(); ++b)
      for (std::int64_t h = 0; h < problem_.num_heads_q; ++h)
        for (std::int64_t q = 0; q < problem_.seq_q; ++q) {
          const std::int64_t position = length(b) - problem_.seq_q + q;
          const ReferenceRow want(
              length(b), Config::kHeadDimQk, Config::kHeadDimV, Config::kSoftcap ? kCap : 0,
              sinks_[static_cast<std::size_t>(h)],
              [&](std::int64_t k) {
                if (!visible(b, h, q, k, bound)) return -HUGE_VAL;
                if (!Config::kAlibi) return 0.0;
                const std::int64_t bucket =
                    cpu::position_bucket(problem_.position_bias, k - position);
                return slopes_[static_cast<std::size_t>(h)] * static_cast<double>(k - position) +
                       biases_[static_cast<std::size_t>(bucket * problem_.num_heads_q + h)];
              },
              [&](std::int64_t d) { return q_.get(b, h, q, d); },
              [&](std::int64_t k, std::int64_t d) {
                return k_.get(cache(b, k), h / group, cache_row(k), d);
              },
              [&](std::int64_t k, std::int64_t d) {
                return v_.get(cache(b, k), h / group, cache_row(k), d);
              });
          const float lse =
              lse_[static_cast<std::size_t>((b * problem_.num_heads_q + h) * problem_.seq_q + q)];
          if (want.lse == -HUGE_VAL)
            ASSERT_EQ(lse, -HUGE_VALF) << b << " " << h << " " << q;
          else
            ASSERT_NEAR(lse, want.lse, 1e-4) << b << " " << h << " " << q;
          for (std::int64_t d = 0; d < Config::kHeadDimV; ++d) {
            const double got = out_.get(b, h, q, d),
                         expected = want.out[static_cast<std::size_t>(d)];
            ASSERT_FALSE(std::isnan(got)) << b << " " << h << " " << q << " " << d;
            difference += (got - expected) * (got - expected);
            norm += expected * expected;
          }
        }
    EXPECT_LE(std::sqrt(difference), 4e-3 * std::sqrt(norm));
  }

  static constexpr float kCap = 20;
  static constexpr std::int64_t kBuckets = 8;
  std::mt19937 random_;
  std::vector<int> lengths_;
  std::int64_t pages_;  // of a sequence
  DecodeProblem problem_;
  Operand16<Value> q_, k_, v_, out_;
  std::vector<float> lse_, slopes_, sinks_, biases_;
  std::vector<int> table_, buckets_;
};

TEST(DecodeEmulated, SequencesOfAllLengthsOverAllWaysToCutThem) {
  using Config = EmulatedConfig<ptx::BFloat16, 64, 40, 1, 1, 4, 64, 3, 0, false, false>;
  Emulation<Config> run(6, 2, 1, 300, {300, 0, 1, 65});
  run.check(1, 1, CopiesLand::kLate);
  run.check(5, 1, CopiesLand::kEarly);
  run.check(9, 2, CopiesLand::kLate);  // more blocks than tiles
  // More sequences than a warp has lanes.
  std::vector<int> lengths(35, 1);
  lengths[0] = 70, lengths[33] = 66, lengths[34] = 2;
  using Small = EmulatedConfig<ptx::BFloat16, 8, 8, 1, 1, 1, 16, 2, 0, false, false>;
  Emulation<Small>(1, 1, 1, 70, lengths).check(3, 1, CopiesLand::kLate);
}

TEST(DecodeEmulated, LastBlockOfASequenceMergesItsParts) {
  using Config = EmulatedConfig<ptx::BFloat16, 64, 40, 1, 1, 4, 64, 3, 0, false, false, true>;
  Emulation<Config> run(6, 2, 1, 300, {300, 0, 1, 65});
  run.check(1, 1, CopiesLand::kLate);
  run.check(5, 1, CopiesLand::kEarly);
  run.check(9, 2, CopiesLand::kLate);
  // Parts that see nothing, rows in two pieces, pages.
  using Tall = EmulatedConfig<ptx::BFloat16, 16, 16, 4, 2, 1, 64, 2, 32, true, false, true>;
  const mask::Mask mask = mask::random_elements(0.05, 3);
  Emulation<Tall>(10, 1, 14, 200, {200}).check(3, 1, CopiesLand::kLate, &mask);
}

TEST(DecodeEmulated, WindowsAndSinksReadNothingElse) {
  using Config = EmulatedConfig<ptx::Float16, 24, 16, 2, 1, 2, 64, 2, 0, false, true>;
  Emulation<Config> run(7, 1, 3, 400, {400, 150, 2});
  run.set_window(70, 0, 5);
  run.check(3, 1, CopiesLand::kLate);
  run.set_window(10, 4, 70);
  run.check(4, 1, CopiesLand::kEarly);
}

TEST(DecodeEmulated, PagesInAnyOrder) {
  using Narrow = EmulatedConfig<ptx::BFloat16, 32, 32, 1, 1, 2, 32, 2, 16, false, false>;
  using Wide = EmulatedConfig<ptx::BFloat16, 136, 8, 4, 1, 1, 64, 2, 48, false, false>;
  Emulation<Narrow>(2, 1, 2, 130, {130, 47}).check(3, 1, CopiesLand::kLate);
  Emulation<Wide>(5, 1, 11, 100, {100, 49}).check(2, 1, CopiesLand::kEarly);
}

TEST(DecodeEmulated, ListsOfStaticMasks) {
  using Config = EmulatedConfig<ptx::BFloat16, 16, 24, 1, 1, 4, 64, 2, 0, true, false>;
  using Tall = EmulatedConfig<ptx::BFloat16, 16, 16, 4, 2, 1, 64, 2, 32, true, false>;
  Emulation<Config> run(4, 2, 2, 300, {300, 100});
  for (const mask::Mask& mask :
       {mask::none(), mask::random_elements(0.05, 3), mask::window(80, 0) | mask::global(0, 3)})
    run.check(3, 1, CopiesLand::kLate, &mask);
  // More rows than a block holds: two pieces.
  const mask::Mask causal = mask::causal();
  Emulation<Tall>(10, 1, 14, 70, {70}).check(2, 1, CopiesLand::kLate, &causal);
}

}  // namespace
}  // namespace cuda
}  // namespace stof
