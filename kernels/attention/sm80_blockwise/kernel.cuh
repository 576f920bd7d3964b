#pragma once
// Block-wise masked attention by warp-level matrix instructions (sm_80 and later): persistent
// blocks on a queue, every warp loads, multiplies and weighs. README.md beside this has roofline
// and schedule.

#include "attention/epilogue.cuh"
#include "attention/queue.cuh"
#include "attention/scores.cuh"
#include "attention/sm80_blockwise/loader.cuh"
#include "attention/sm80_blockwise/products.cuh"
#include "ptx/barrier.cuh"
#include "ptx/grid.cuh"
#include "ptx/thread.cuh"

namespace stof {

/// What all threads know of the item under way, in shared memory: registers are short.
struct Item {
  WorkRecord record;
  WorkRecord next;  // of the item after it, copied here early; num_partial -1: none
  const unsigned char* keys;    // row 0 of the key/value head
  const unsigned char* values;
  PartialTile tiles[4];  // ring of the next tiles; a full one's payload is never read
  TileRun run;           // what is left of the run under way
  i32 run_index;
  i32 unused;
};
static_assert(sizeof(Item) == kItemBytes);

/// Thread 0: writes tile i of the item into the ring; called for i = 0, 1, ... in order.
__device__ __forceinline__ void publish_tile(const AttentionParams& params, Item& item, i32 i) {
  const WorkRecord& record = item.record;
  if (i >= record.num_partial + record.num_full) return;
  if (i < record.num_partial) {
    item.tiles[i % 4] = params.partial[record.partial_begin + i];
    return;
  }
  if (i == record.num_partial) {
    item.run_index = record.run_begin;
    item.run = params.runs[record.run_begin];
  }
  if (item.run.begin == item.run.end) item.run = params.runs[++item.run_index];
  item.tiles[i % 4].tile = item.run.begin++;
}

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
    request_record(blockIdx.x);
    for (;;) {
      ptx::commit_copies();
      ptx::wait_copies<0>();
      __syncthreads();  // the next record is here, and nobody reads the last item's tiles any more
      if (threadIdx.x == 0) begin_item();
      __syncthreads();
      if (item().record.num_partial < 0) return;
      one_item();
    }
  }

 private:
  /// Tiles in the ring beyond the one under way.
  static constexpr int kPublished = D::kStages > 2 ? D::kStages : 2;
  static_assert(kPublished < 4);

  using QueryLoader = TileLoader<D::kHeadDimQk, 64, D::kThreads, D::kLoadBytes>;
  using KeyLoader = TileLoader<D::kHeadDimQk, D::kTileKv, D::kThreads, D::kLoadBytes>;
  using ValueLoader = TileLoader<D::kHeadDimV, D::kTileKv, D::kThreads, D::kLoadBytes>;

  __device__ __forceinline__ Sequence sequence() const {
    return {0, params_.seq_q, 0, params_.position_offset};
  }
  __device__ __forceinline__ Item& item() const {
    return *reinterpret_cast<Item*>(shared_ + D::kItemOffset);
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

  /// Thread 0: has the record of a ticket copied to Item::next; it arrives with the next group.
  __device__ __forceinline__ void request_record(u32 ticket) const {
    if (threadIdx.x != 0) return;
    if (ticket >= static_cast<u32>(params_.num_records)) {
      item().next.num_partial = -1;
      return;
    }
    const u32 target = ptx::shared_address(&item().next);
    ptx::copy_16(target, params_.records + ticket);
    ptx::copy_16(target + 16, reinterpret_cast<const unsigned char*>(params_.records + ticket) + 16);
  }
  /// Thread 0: makes the next record the current one.
  __device__ __forceinline__ void begin_item() const {
    const WorkRecord record = item().next;
    item().record = record;
    if (record.num_partial < 0) return;
    const i32 head_kv = record.head / params_.heads_per_group;
    item().keys = head_rows(operands_.k, record.batch, head_kv);
    item().values = head_rows(operands_.v, record.batch, head_kv);
  }
  /// Thread 0: the next ticket.
  __device__ __forceinline__ u32 take_ticket() const {
    return threadIdx.x == 0 ? gridDim.x + atomicAdd(params_.queue, 1u) : 0;
  }

  /// Whether tile i is when the block takes its next ticket: late, so that a long item does not hold
  /// one that another block could have started, and early enough for the record to arrive behind the
  /// last tiles.
  static __device__ __forceinline__ bool takes_ticket(const WorkRecord& record, int i) {
    const int total = num_tiles(record);
    return i == (total > 3 ? total - 3 : 0);
  }
  static __device__ __forceinline__ int num_tiles(const WorkRecord& record) {
    return record.num_partial + record.num_full;
  }

  __device__ __forceinline__ void load_query(const WorkRecord& record) const {
    const QueryLoader loader(ptx::thread_index());
#pragma unroll 1
    for (int s = 0; s < D::kSlabs; ++s)
      loader.load(base_ + s * D::kQueryBytes,
                  head_rows(operands_.q, record.batch, record.head + (D::kPackHeads ? s : 0)),
                  operands_.q.row_stride, record.q_row + (D::kPackHeads ? 0 : 64 * s),
                  query_order());
  }
  __device__ __forceinline__ TokenOrder query_order() const {
    return {static_cast<u32>(params_.residue_rows_q), static_cast<u32>(params_.step)};
  }
  __device__ __forceinline__ TokenOrder key_order() const {
    return {static_cast<u32>(params_.residue_rows_kv), static_cast<u32>(params_.step)};
  }
  __device__ __forceinline__ u32 stage_base(int stage) const {
    return base_ + D::kStageOffset + stage * D::kStageBytes;
  }
  // K and V of the item's tile i, into its stage. Both of a pair share the arithmetic.
  __device__ __forceinline__ u32 tile_position(int i) const {
    return static_cast<u32>(item().tiles[i % 4].tile) * D::kTileKv;
  }
  __device__ __forceinline__ void load_keys(int i, u32 thread, u32 position) const {
    KeyLoader(thread).load(stage_base(i % D::kStages), item().keys, operands_.k.row_stride, position,
                           key_order());
  }
  __device__ __forceinline__ void load_values(int i, u32 thread, u32 position) const {
    ValueLoader(thread).load(stage_base(i % D::kStages) + D::kKeyBytes, item().values,
                             operands_.v.row_stride, position, key_order());
  }
  __device__ __forceinline__ void load_keys(int i) const {
    load_keys(i, ptx::thread_index(), tile_position(i));
  }
  __device__ __forceinline__ void load_values(int i) const {
    load_values(i, ptx::thread_index(), tile_position(i));
  }
  __device__ __forceinline__ void load_pair(int i) const {
    const u32 thread = ptx::thread_index(), position = tile_position(i);
    load_keys(i, thread, position);
    load_values(i, thread, position);
  }

  /// The bits of tile i of the item, which is partial.
  __device__ __forceinline__ void load_bits(int i,
                                            u32 (&bits)[D::kWarpSlabs][D::kPayloadWords]) const {
    const i32 payload = item().tiles[i % 4].payload;
    const u32* words = reinterpret_cast<const u32*>(
        params_.payloads + static_cast<i64>(payload) * D::kPayloadBytes);
#pragma unroll
    for (int w = 0; w < D::kWarpSlabs; ++w)
#pragma unroll
      for (int word = 0; word < D::kPayloadWords; ++word)
        bits[w][word] = words[((D::kPackHeads ? 0 : slab(w)) * D::kPayloadWords + word) * 128 +
                              (ptx::thread_index() & 127)];
  }

  /// Scores become weights; the output so far is rescaled where a maximum grew.
  __device__ __forceinline__ void weigh(
      float (&scores)[D::kWarpSlabs][D::kScoreRegisters], i32 first_key, bool masked,
      const u32 (&bits)[D::kWarpSlabs][D::kPayloadWords]) {
#pragma unroll
    for (int w = 0; w < D::kWarpSlabs; ++w)  // made anew for each tile to spare registers
      ScoreRows<D>(params_, item().record, sequence(), slab(w)).modify(scores[w], params_, first_key);
    if (masked) {
#pragma unroll
      for (int w = 0; w < D::kWarpSlabs; ++w) apply_bits(scores[w], bits[w]);
    }
#pragma unroll
    for (int w = 0; w < D::kWarpSlabs; ++w) {
      float alpha[2];
      if (softmax_step(scores[w], state_[w], alpha, score_unit<D>(params_))) {
#pragma unroll
        for (int i = 0; i < D::kOutRegisters; ++i) out_[w][i] *= alpha[(i >> 1) & 1];
      }
    }
  }

  /// Tile i of the item, in the stage of its number. With one stage its V is requested here, and the next K once
  /// every warp has multiplied this one; with more, K and V of a tile travel together.
  __device__ __forceinline__ void one_tile(const WorkRecord& record, int i) {
    const int stage = i % D::kStages;
    const bool masked = i < record.num_partial;
    float scores[D::kWarpSlabs][D::kScoreRegisters];
    u32 bits[D::kWarpSlabs][D::kPayloadWords];
    ptx::wait_copies<D::kStages == 1 ? 0 : D::kStages - 2>();
    __syncthreads();
    query_.begin(query_row(), i == 0);
    if constexpr (D::kStages == 1)
      load_values(i);
    else if (i + D::kStages - 1 < num_tiles(record))
      load_pair(i + D::kStages - 1);
    ptx::commit_copies();
    if (threadIdx.x == 0) publish_tile(params_, item(), i + kPublished);
    if (masked) load_bits(i, bits);
    multiply_scores<D>(scores, query_, key_row(stage));
    if constexpr (D::kStages == 1) {
      ptx::wait_copies<0>();
      __syncthreads();
      if (i + 1 < num_tiles(record)) load_keys(i + 1);
      ptx::commit_copies();
    }
    const i32 first_key = D::kAlibi || D::kBias ? key_token<D>(params_, tile_position(i)) : 0;
    weigh(scores, first_key, masked, bits);
    multiply_output<D>(out_, scores, value_row(stage));
  }

  __device__ __forceinline__ void one_item() {
    const WorkRecord& record = item().record;
#pragma unroll
    for (int w = 0; w < D::kWarpSlabs; ++w) {
#pragma unroll
      for (int i = 0; i < D::kOutRegisters; ++i) out_[w][i] = 0.0f;
      state_[w] = {{-ptx::infinity(), -ptx::infinity()}, {0.0f, 0.0f}};
    }
    if (num_tiles(record) > 0) {
      walk_tiles(record);
    } else {
      request_record(take_ticket());
      ptx::commit_copies();
    }
#pragma unroll
    for (int w = 0; w < D::kWarpSlabs; ++w) {
      OutputRows<D> rows;
      rows.locate(params_, record, sequence(), slab(w), column_group() * D::kOutColumns);
      rows.fetch();
      rows.store(OwnAccumulators<D>{out_[w]}, state_[w], score_unit<D>(params_));
    }
  }

  __device__ __forceinline__ void walk_tiles(const WorkRecord& record) {
    load_query(record);
    if (threadIdx.x == 0)
      for (int i = 0; i < kPublished; ++i) publish_tile(params_, item(), i);
    __syncthreads();
    if constexpr (D::kStages == 1) {
      load_keys(0);
      ptx::commit_copies();
    } else {
#pragma unroll
      for (int i = 0; i + 1 < D::kStages; ++i) {
        if (i < num_tiles(record)) load_pair(i);
        ptx::commit_copies();
      }
    }
    u32 ticket = 0;
    for (int i = 0; i < num_tiles(record); ++i) {
      if (takes_ticket(record, i)) ticket = take_ticket();
      one_tile(record, i);
      if (takes_ticket(record, i)) request_record(ticket);
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
