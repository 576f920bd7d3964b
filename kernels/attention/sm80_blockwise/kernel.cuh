#pragma once
// Block-wise masked attention by warp-level matrix instructions (sm_80 and later): persistent
// blocks on a queue, every warp loads, multiplies and weighs. README.md beside this has roofline
// and schedule.

#include "attention/epilogue.cuh"
#include "attention/scores.cuh"
#include "attention/sm80_blockwise/loader.cuh"
#include "attention/sm80_blockwise/products.cuh"
#include "attention/sm80_blockwise/stream.cuh"
#include "attention/sm80_sparse/products.cuh"
#include "ptx/barrier.cuh"
#include "ptx/grid.cuh"
#include "ptx/thread.cuh"

namespace stof {

template <class D>
class MmaBlock {
 public:
  __device__ __forceinline__ MmaBlock(const AttentionParams& params, const Operands& operands,
                                      unsigned char* shared)
      : params_(params),
        operands_(operands),
        shared_(shared),
        base_(ptx::shared_address(shared)) {}

  __device__ __forceinline__ void run() {
    clear_padding();
    const Feeder<D> feeder(params_, operands_, stream());
    if (threadIdx.x == 0) feeder.begin();
    __syncthreads();
    load_query(0);
#pragma unroll
    for (int n = 0; n < (D::kStages > 1 ? D::kStages - 1 : 1); ++n) {
      if constexpr (D::kStages == 1)
        load_keys(n);
      else
        load_pair(n);
      ptx::commit_copies();
    }
    clear();
    u32 ticket = Feeder<D>::kNone;  // thread 0's, taken and not yet used
    for (int n = 0;; ++n) {
      const i32 flags = step_at(n).flags;
      if (flags & kNoMore) return;
      ptx::wait_copies<D::kStages <= 2 ? 0 : D::kStages - 2>();
      if (D::kStages > 2 && flags & kFirstOfItem) ptx::wait_copies<0>();  // Q came last
      __syncthreads();
      if constexpr (D::kStages == 1)
        load_values(n);
      else
        load_pair(n + D::kStages - 1);
      if (ticket != Feeder<D>::kNone) feeder.request(ticket, n);
      ptx::commit_copies();
      one_step(n, flags);
      // Here the latencies of the feeder run beside the step's last products.
      ticket = threadIdx.x == 0 ? feeder.advance(n) : Feeder<D>::kNone;
      if (flags & kLastOfItem) {
        end_item(item_at(n));
        clear();
      }
    }
  }

 private:
  using QueryLoader = TileLoader<D::kHeadDimQk, 64, D::kThreads, D::kLoadBytes>;
  using KeyLoader =
      TileLoader<D::kHeadDimQk, D::kTileKv, D::kThreads, D::kLoadBytes, D::kTwoOfFour>;
  using ValueLoader = TileLoader<D::kHeadDimV, D::kTileKv, D::kThreads, D::kLoadBytes>;

  __device__ __forceinline__ Stream& stream() const {
    return *reinterpret_cast<Stream*>(shared_ + D::kStreamOffset);
  }
  __device__ __forceinline__ const Step& step_at(int n) const {
    return stream().steps[n % Stream::kSteps];
  }
  __device__ __forceinline__ const Item& item_at(int n) const {
    return stream().items[step_at(n).item];
  }

  static __device__ __forceinline__ int row_group() {
    return D::kRowGroups == 1 ? 0 : static_cast<int>(threadIdx.x) / 128;
  }
  static __device__ __forceinline__ int column_group() {
    return D::kColumnGroups == 1 ? 0 : static_cast<int>(threadIdx.x) / 128;
  }
  /// The w-th slab of this group's warps.
  static __device__ __forceinline__ int slab(int w) { return row_group() * D::kWarpSlabs + w; }

  // The lane's rows of the first fragment, computed anew for each product to spare registers.
  __device__ __forceinline__ u32 query_row() const {
    const u32 thread = ptx::thread_index();
    return base_ + row_group() * D::kWarpSlabs * D::kQueryBytes + ((thread >> 5) & 3) * 16 * 128 +
           row_major_lane(thread & 31);
  }
  __device__ __forceinline__ u32 key_row(int stage) const {
    return stage_base(stage) + unit_major_lane(ptx::thread_index() & 31);
  }
  __device__ __forceinline__ u32 value_row(int stage) const {
    return stage_base(stage) + D::kKeyBytes +
           column_group() * (D::kOutColumns / D::kChunk) * D::kTileKv * 128 +
           row_major_lane(ptx::thread_index() & 31);
  }

  __device__ __forceinline__ void clear_padding() const {
    for (int s = 0; s < D::kSlabs; ++s) QueryLoader::clear_padding(base_ + s * D::kQueryBytes);
    for (int s = 0; s < D::kStages; ++s)
      KeyLoader::clear_padding(base_ + D::kStageOffset + s * D::kStageBytes);
  }

  /// Q of the item of step n, if that has tiles.
  __device__ __forceinline__ void load_query(int n) const {
    if ((step_at(n).flags & kHasTile) == 0) return;
    const QueryLoader loader(ptx::thread_index());
    const Item& item = item_at(n);
    const i32 batch = D::kVarlen ? 0 : item.record.batch;
    const i64 first = D::kVarlen ? item.sequence.q_begin * operands_.q.row_stride : 0;
#pragma unroll 1
    for (int s = 0; s < D::kSlabs; ++s)
      loader.load(
          base_ + s * D::kQueryBytes,
          head_rows(operands_.q, batch, item.record.head + (D::kPackHeads ? s : 0)) + first,
          operands_.q.row_stride, item.record.q_row + (D::kPackHeads ? 0 : 64 * s),
          query_order(item));
  }
  __device__ __forceinline__ TokenOrder query_order(const Item& item) const {
    if constexpr (D::kVarlen) return {static_cast<u32>(item.sequence.seq_q), 1};
    return {static_cast<u32>(params_.residue_rows_q), static_cast<u32>(params_.step)};
  }
  /// Of a sequence without keys no residue exists: all of its one hidden tile arrives as zero.
  __device__ __forceinline__ TokenOrder key_order(const Item& item) const {
    if constexpr (D::kVarlen) {
      const u32 rows = static_cast<u32>(item.sequence.seq_kv);
      return {rows > 0 ? rows : 1, rows > 0};
    }
    return {static_cast<u32>(params_.residue_rows_kv), static_cast<u32>(params_.step)};
  }
  __device__ __forceinline__ u32 stage_base(int stage) const {
    return base_ + D::kStageOffset + stage * D::kStageBytes;
  }
  /// What all of a step's copies need, read from shared memory at once.
  struct Source {
    bool has_tile;
    u32 position;
    const unsigned char *keys, *values;
    TokenOrder order;
  };
  __device__ __forceinline__ Source source_of(int n) const {
    const Step step = step_at(n);
    const Item& item = stream().items[step.item];
    return {(step.flags & kHasTile) != 0, static_cast<u32>(step.tile) * D::kTileKv, item.keys,
            item.values, key_order(item)};
  }
  // K and V of step n, if it has a tile, into the stage of its number. Both of a pair share the
  // arithmetic.
  __device__ __forceinline__ void load_keys(int n, u32 thread, const Source& source) const {
    KeyLoader(thread).load(stage_base(n % D::kStages), source.keys, operands_.k.row_stride,
                           source.position, source.order);
  }
  __device__ __forceinline__ void load_values(int n, u32 thread, const Source& source) const {
    ValueLoader(thread).load(stage_base(n % D::kStages) + D::kKeyBytes, source.values,
                             operands_.v.row_stride, source.position, source.order);
  }
  __device__ __forceinline__ void load_keys(int n) const {
    if (const Source source = source_of(n); source.has_tile)
      load_keys(n, ptx::thread_index(), source);
  }
  __device__ __forceinline__ void load_values(int n) const {
    if (const Source source = source_of(n); source.has_tile)
      load_values(n, ptx::thread_index(), source);
  }
  __device__ __forceinline__ void load_pair(int n) const {
    const Source source = source_of(n);
    if (!source.has_tile) return;
    const u32 thread = ptx::thread_index();
    load_keys(n, thread, source);
    load_values(n, thread, source);
  }

  __device__ __forceinline__ void load_bits(i32 payload,
                                            u32 (&bits)[D::kWarpSlabs][D::kPayloadWords]) const {
    const u32* words = reinterpret_cast<const u32*>(
        params_.payloads + static_cast<i64>(payload) * D::kPayloadBytes);
#pragma unroll
    for (int w = 0; w < D::kWarpSlabs; ++w)
#pragma unroll
      for (int word = 0; word < D::kPayloadWords; ++word) {
        const u32* const of_threads =
            words + ((D::kPackHeads ? 0 : slab(w)) * D::kPayloadWords + word) * 128;
        const u32 thread = ptx::thread_index() & 127;
        if constexpr (D::kTwoOfFour) {
          const uint2 pair = *reinterpret_cast<const uint2*>(
              of_threads + (thread & ~3u) + 2 * (thread & 1));
          bits[w][word] = neighbour_bits(pair.x, pair.y, thread);
        } else {
          bits[w][word] = of_threads[thread];
        }
      }
  }

  /// Modifies scores and hides what the mask hides.
  __device__ __forceinline__ void modify(
      float (&scores)[D::kWarpSlabs][D::kScoreRegisters], int n, bool masked,
      const u32 (&bits)[D::kWarpSlabs][D::kPayloadWords]) {
    if constexpr (D::kSoftcap || kNeedsTokens<D>) {
      const i32 key = kNeedsTokens<D> ? key_token<D>(params_, step_at(n).tile * D::kTileKv) : 0;
#pragma unroll
      for (int w = 0; w < D::kWarpSlabs; ++w)  // made anew for each tile to spare registers
        ScoreRows<D>(params_, item_at(n).record, item_at(n).sequence, slab(w))
            .modify(scores[w], params_, key);
    }
    if (masked) {
#pragma unroll
      for (int w = 0; w < D::kWarpSlabs; ++w) apply_bits(scores[w], bits[w]);
    }
  }

  /// Scores become weights; the output so far is rescaled where a maximum grew.
  template <int kRegisters>
  __device__ __forceinline__ void weigh(float (&scores)[D::kWarpSlabs][kRegisters]) {
#pragma unroll
    for (int w = 0; w < D::kWarpSlabs; ++w) {
      float alpha[2];
      if (softmax_step(scores[w], state_[w], alpha, score_unit<D>(params_))) {
#pragma unroll
        for (int i = 0; i < D::kOutRegisters; ++i) out_[w][i] *= alpha[(i >> 1) & 1];
      }
    }
  }

  /// With one stage V of a step is requested when its K is there, and K of the next step once every
  /// warp has multiplied this one; with more, K and V of a tile travel together. Q of the next item
  /// is requested once every warp has multiplied the last K of this one.
  __device__ __forceinline__ void one_step(int n, i32 flags) {
    if (flags & kHasTile) {
      one_tile(n, flags);
    } else {  // an item that sees nothing
      if constexpr (D::kStages == 1) load_keys(n + 1);
      load_query(n + 1);
      ptx::commit_copies();
    }
  }

  __device__ __forceinline__ void one_tile(int n, i32 flags) {
    const int stage = n % D::kStages;
    float scores[D::kWarpSlabs][D::kScoreRegisters];
    u32 bits[D::kWarpSlabs][D::kPayloadWords] = {};
    const i32 payload = step_at(n).payload;
    if (payload >= 0) load_bits(payload, bits);
    query_.begin(query_row(), flags & kFirstOfItem);
    multiply_scores<D>(scores, query_, key_row(stage));
    if (D::kStages == 1 || flags & kLastOfItem) {
      if constexpr (D::kStages == 1) ptx::wait_copies<0>();
      __syncthreads();
      if constexpr (D::kStages == 1) load_keys(n + 1);
      if (flags & kLastOfItem) load_query(n + 1);
      ptx::commit_copies();
    }
    modify(scores, n, payload >= 0, bits);
    if constexpr (D::kTwoOfFour) {
      float kept[D::kWarpSlabs][D::kScoreRegisters / 2];
      u32 places[D::kWarpSlabs][kPlaceWords<D::kScoreRegisters>];
#pragma unroll
      for (int w = 0; w < D::kWarpSlabs; ++w) keep_two_of_four(scores[w], kept[w], places[w]);
      weigh(kept);
      multiply_output_sparse<D>(out_, kept, places, value_row(stage));
    } else {
      weigh(scores);
      multiply_output<D>(out_, scores, value_row(stage));
    }
  }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int w = 0; w < D::kWarpSlabs; ++w) {
#pragma unroll
      for (int i = 0; i < D::kOutRegisters; ++i) out_[w][i] = 0.0f;
      state_[w] = {{-ptx::infinity(), -ptx::infinity()}, {0.0f, 0.0f}};
    }
  }
  __device__ __forceinline__ void end_item(const Item& item) {
#pragma unroll
    for (int w = 0; w < D::kWarpSlabs; ++w) {
      OutputRows<D> rows;
      rows.locate(params_, item.record, item.sequence, slab(w), column_group() * D::kOutColumns);
      rows.fetch();
      rows.store(OwnAccumulators<D>{out_[w]}, state_[w], score_unit<D>(params_));
    }
  }

  const AttentionParams& params_;
  const Operands& operands_;
  unsigned char* const shared_;
  const u32 base_;
  QueryOperand<D> query_;
  SoftmaxState state_[D::kWarpSlabs];
  float out_[D::kWarpSlabs][D::kOutRegisters];
};

template <class Config>
__device__ __forceinline__ void sm80_blockwise(const AttentionParams& params,
                                               const Operands& operands) {
  extern __shared__ __align__(1024) unsigned char shared[];
  ptx::allow_next_kernel();
  ptx::wait_for_previous_kernel();
  MmaBlock<MmaDerived<Config>>(params, operands, shared).run();
  if (threadIdx.x == 0) leave_queue(params.queue);
}

}  // namespace stof
