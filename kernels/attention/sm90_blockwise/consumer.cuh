#pragma once
// A consumer warpgroup: 64 query rows, QK of the next tile in flight while this one's softmax runs.
//
// Needs wgmma_scores (Q and K from shared memory) and wgmma_output (P from registers), emitted for
// the Config's shapes by src/codegen/wgmma.cc.

#include "attention/epilogue.cuh"
#include "attention/parts.cuh"
#include "attention/records.cuh"
#include "attention/scores.cuh"
#include "attention/sm90_blockwise/config.cuh"
#include "ptx/barrier.cuh"
#include "ptx/matrix.cuh"
#include "ptx/wgmma.cuh"

namespace stof {

/// Named barriers that let the warpgroups issue their matrix instructions in turn.
template <class D>
struct Turns {
  int warpgroup;
  __device__ __forceinline__ void wait() const {
    if constexpr (D::kPingPong)
      asm volatile("bar.sync %0, %1;" ::"r"(1 + warpgroup), "n"(256) : "memory");
  }
  __device__ __forceinline__ void pass() const {
    if constexpr (D::kPingPong) {
      const int next = warpgroup + 1 == D::kWarpgroups ? 0 : warpgroup + 1;
      asm volatile("bar.arrive %0, %1;" ::"r"(1 + next), "n"(256) : "memory");
    }
  }
  /// The last warpgroup passes once at the start, so that the first may begin.
  __device__ __forceinline__ void begin() const {
    if constexpr (D::kPingPong)
      if (warpgroup == D::kWarpgroups - 1) pass();
  }
};

template <class D>
__device__ __forceinline__ void issue_scores(float (&scores)[D::kScoreRegisters],
                                             ptx::Descriptor query, ptx::Descriptor key) {
#pragma unroll
  for (int step = 0; step < D::kStepsQk; ++step) {
    const int chunk = step / 4, inside = 32 * (step % 4);
    wgmma_scores(scores, ptx::encode(ptx::advance(query, chunk * 64 * 128 + inside)),
                 ptx::encode(ptx::advance(key, chunk * D::kTileKv * 128 + inside)), step > 0);
  }
}

/// Q in registers halves what the tensor cores read of shared memory for a 64-key tile.
template <class D>
__device__ __forceinline__ void issue_scores(float (&scores)[D::kScoreRegisters],
                                             const u32 (&query)[4 * D::kStepsQk],
                                             ptx::Descriptor key) {
#pragma unroll
  for (int step = 0; step < D::kStepsQk; ++step) {
    const int chunk = step / 4, inside = 32 * (step % 4);
    wgmma_scores(scores, query[4 * step], query[4 * step + 1], query[4 * step + 2],
                 query[4 * step + 3],
                 ptx::encode(ptx::advance(key, chunk * D::kTileKv * 128 + inside)), step > 0);
  }
}

/// One warpgroup's Q as the scores' left operand: a descriptor, or with Config::kQueryInRegisters
/// the fragments themselves.
template <class D, bool kInRegisters = D::kQueryInRegisters>
struct QueryOperand {
  ptx::Descriptor operand;
  __device__ __forceinline__ void load(u32 rows) { operand = ptx::make_descriptor(rows, 16); }
};

template <class D>
struct QueryOperand<D, true> {
  u32 operand[4 * D::kStepsQk];
  /// Fragment order of a 16x16 matrix: lanes 0-7 address its upper left 8x8 quarter, then the lower
  /// left, upper right and lower right ones.
  __device__ __forceinline__ void load(u32 rows) {
    const u32 lane = threadIdx.x & 31, row = 16 * ((threadIdx.x & 127) >> 5) + (lane & 15);
#pragma unroll
    for (int step = 0; step < D::kStepsQk; ++step) {
      const u32 column = 2 * (step % 4) + (lane >> 4);  // of 16 bytes, inside the 64-column chunk
      ptx::load_matrices(&operand[4 * step], rows + (step / 4) * 64 * 128 + row * 128 +
                                                 ((column ^ (row & 7)) << 4));
    }
  }
};

template <class D>
__device__ __forceinline__ void issue_output(float (&out)[D::kOutRegisters],
                                             const u32 (&weights)[D::kScoreRegisters / 2],
                                             ptx::Descriptor value, bool accumulate) {
#pragma unroll
  for (int step = 0; step < D::kStepsPv; ++step)
    wgmma_output(out, weights[4 * step], weights[4 * step + 1], weights[4 * step + 2],
                 weights[4 * step + 3], ptx::encode(ptx::advance(value, step * 16 * 128)),
                 step > 0 || accumulate);
}

template <class D>
class Consumer {
 public:
  __device__ Consumer(const AttentionParams& params, unsigned char* shared, int warpgroup)
      : params_(params),
        shared_(shared),
        base_(ptx::shared_address(shared)),
        barriers_{base_ + D::kBarrierOffset},
        turns_{warpgroup},
        warpgroup_(warpgroup) {}

  /// Works through the queue. While an item is normalised and stored, the first QK of the next item
  /// is in flight.
  __device__ __forceinline__ void run() {
    turns_.begin();
    WorkRecord record;
    QueryOperand<D> query;
    if (!next_item(record, query)) return;
    float scores[D::kScoreRegisters], out[D::kOutRegisters];
    u32 weights[D::kScoreRegisters / 2];
    OutputRows<D> rows;
    ptx::wgmma_fence();
    issue_first_scores(query, scores, true);
    first_tile(record, scores, weights);
    for (;;) {
      later_tiles(record, query, scores, out, weights);
      rows.locate(params_, record, sequence(), warpgroup_);
      const i32 part = record.part;
      // Registers that matrix instructions read are written before the fence in
      // issue_last_output(): a second fence after it would wait for that PV.
      bool more = false;
      if constexpr (D::kQueryInRegisters) more = next_item(record, query);
      issue_last_output(out, weights);
      rows.fetch();
      if constexpr (!D::kQueryInRegisters) {
        release_query();
        more = next_item(record, query);
      }
      issue_first_scores(query, scores, more);
      ptx::wgmma_wait<1>();
      store(rows, part, out);
      if (!more) break;
      first_tile(record, scores, weights);
    }
    ptx::wgmma_wait<0>();
  }

 private:
  __device__ __forceinline__ void release(u32 barrier) const {
    __syncwarp();
    if ((threadIdx.x & 31) == 0) ptx::arrive(barrier);
  }

  __device__ __forceinline__ ptx::Descriptor key_descriptor() const {
    return ptx::make_descriptor(base_ + D::kKeyOffset + key_.stage * D::kKeyBytes, 16);
  }
  __device__ __forceinline__ ptx::Descriptor value_descriptor() const {
    return ptx::make_descriptor(base_ + D::kValueOffset + value_.stage * D::kValueBytes,
                                D::kTileKv * 128);
  }

  /// What the payload of the current K stage shows; of a full tile everything.
  __device__ __forceinline__ void load_bits(u32 (&bits)[D::kPayloadWords], bool full) const {
    if (full) {
#pragma unroll
      for (int w = 0; w < D::kPayloadWords; ++w) bits[w] = ~0u;
      return;
    }
    const u32* slab = reinterpret_cast<const u32*>(
        shared_ + D::kPayloadOffset + key_.stage * D::kPayloadBytes +
        (D::kPackHeads ? 0 : warpgroup_) * D::kSlabBytes);
#pragma unroll
    for (int w = 0; w < D::kPayloadWords; ++w) bits[w] = slab[w * 128 + (threadIdx.x & 127)];
  }

  __device__ __forceinline__ void pack_weights(const float (&scores)[D::kScoreRegisters],
                                               u32 (&weights)[D::kScoreRegisters / 2]) const {
#pragma unroll
    for (int i = 0; i < D::kScoreRegisters / 2; ++i)
      weights[i] = D::Element::pack(scores[2 * i], scores[2 * i + 1]);
  }

  /// Softmax of the scores of the current K stage; releases the stage (its payload and first key are
  /// read here).
  template <bool kMasked>
  __device__ __forceinline__ bool weigh(float (&scores)[D::kScoreRegisters], float (&alpha)[2],
                                        bool full) {
    u32 bits[D::kPayloadWords];
    if constexpr (kMasked) load_bits(bits, full);
    i32 first_key = 0;
    if constexpr (D::kNeedsKeys)
      first_key = key_token<D>(params_, *reinterpret_cast<const i32*>(
                                            shared_ + D::kKeyPositionOffset + 8 * key_.stage));
    release(barriers_.key_empty(key_.stage));
    key_.next();
    score_rows_.modify(scores, params_, first_key);
    if constexpr (kMasked) apply_bits(scores, bits);
    return softmax_step(scores, state_, alpha, score_unit<D>(params_));
  }

  /// Waits for the next item's record and Q; false at the end of the queue. With Q in registers the
  /// stage is released here, else by release_query() after the item's last QK.
  __device__ __forceinline__ bool next_item(WorkRecord& record, QueryOperand<D>& query) {
    ptx::wait(barriers_.query_full(query_.stage), query_.parity);
    const unsigned char* item = shared_ + D::kRecordOffset + D::kItemBytes * query_.stage;
    record = *reinterpret_cast<const WorkRecord*>(item);
    if (record.num_partial < 0) return false;
    if constexpr (D::kVarlen) sequence_ = *reinterpret_cast<const Sequence*>(item + 32);
    query.load(base_ + D::kQueryOffset +
               (query_.stage * D::kWarpgroups + warpgroup_) * D::kQueryBytes);
    if constexpr (D::kQueryInRegisters) release_query();
    return true;
  }

  /// Of the record that next_item() gave last.
  __device__ __forceinline__ Sequence sequence() const {
    if constexpr (D::kVarlen)
      return sequence_;
    else
      return {0, params_.seq_q, 0, params_.seq_kv};
  }

  __device__ __forceinline__ void release_query() {
    release(barriers_.query_empty(query_.stage));
    query_.next();
  }

  /// Once the item's last PV is done.
  __device__ __forceinline__ void store(const OutputRows<D>& rows, i32 part,
                                        float (&out)[D::kOutRegisters]) {
    ptx::pin(out);
    release(barriers_.value_empty(value_.stage));
    value_.next();
    const float scale_log2 = score_unit<D>(params_);
    if (D::kMerge || part < 0) {
      rows.store(OwnAccumulators<D>{out}, state_, scale_log2);
    } else if (store_part<D>(params_, part, warpgroup_, out, state_)) {
      const JoinedParts<D> joined(params_, part, warpgroup_, scale_log2, &state_);
      rows.store(joined, state_, scale_log2);
    }
  }

  /// Without an item its result is meaningless and unused: a branch around the matrix instructions
  /// would make the assembler serialise them all.
  __device__ __forceinline__ void issue_first_scores(const QueryOperand<D>& query,
                                                     float (&scores)[D::kScoreRegisters],
                                                     bool has_item) {
    if (has_item) {
      ptx::wait(barriers_.key_full(key_.stage), key_.parity);
      turns_.wait();
    }
    issue_scores<D>(scores, query.operand, key_descriptor());
    ptx::wgmma_commit();
    if (has_item) turns_.pass();
  }

  /// The first tile, whose QK is in flight: nothing to overlap its softmax with yet.
  __device__ __forceinline__ void first_tile(const WorkRecord& record,
                                             float (&scores)[D::kScoreRegisters],
                                             u32 (&weights)[D::kScoreRegisters / 2]) {
    score_rows_ = ScoreRows<D>(params_, record, sequence(), warpgroup_);
    ptx::wgmma_wait<0>();
    ptx::pin(scores);
    state_ = {{-ptx::infinity(), -ptx::infinity()}, {0.0f, 0.0f}};
    has_output_ = false;
    float alpha[2];  // no output yet: nothing to rescale
    if (D::kScoreMod)
      weigh<true>(scores, alpha, record.num_partial == 0);
    else if (record.num_partial > 0)
      weigh<true>(scores, alpha, false);
    else
      weigh<false>(scores, alpha, true);
    pack_weights(scores, weights);
  }

  /// A later tile: its QK and the previous tile's PV are in flight together.
  template <bool kMasked>
  __device__ __forceinline__ void next_tile(const QueryOperand<D>& query,
                                            float (&scores)[D::kScoreRegisters],
                                            float (&out)[D::kOutRegisters],
                                            u32 (&weights)[D::kScoreRegisters / 2], bool full) {
    float alpha[2] = {1.0f, 1.0f};
    ptx::wait(barriers_.key_full(key_.stage), key_.parity);
    turns_.wait();
    ptx::pin(out);
    ptx::wgmma_fence();
    issue_scores<D>(scores, query.operand, key_descriptor());
    ptx::wgmma_commit();
    ptx::wait(barriers_.value_full(value_.stage), value_.parity);
    issue_output<D>(out, weights, value_descriptor(), has_output_);
    has_output_ = true;
    ptx::wgmma_commit();
    turns_.pass();
    ptx::wgmma_wait<1>();
    ptx::pin(scores);
    const bool rescale = weigh<kMasked>(scores, alpha, full);
    ptx::wgmma_wait<0>();
    ptx::pin(out);
#pragma unroll
    for (int i = 0; i < D::kScoreRegisters / 2; ++i) asm volatile("" ::"r"(weights[i]));
    release(barriers_.value_empty(value_.stage));
    value_.next();
    if (rescale) {
#pragma unroll
      for (int i = 0; i < D::kOutRegisters; ++i) out[i] *= alpha[(i >> 1) & 1];
    }
    pack_weights(scores, weights);
  }

  __device__ __forceinline__ void later_tiles(const WorkRecord& record,
                                              const QueryOperand<D>& query,
                                              float (&scores)[D::kScoreRegisters],
                                              float (&out)[D::kOutRegisters],
                                              u32 (&weights)[D::kScoreRegisters / 2]) {
    if constexpr (D::kScoreMod) {
      // The caller's function may be long: it is compiled into one loop, not two.
      for (int i = 1; i < record.num_partial + record.num_full; ++i)
        next_tile<true>(query, scores, out, weights, i >= record.num_partial);
      return;
    }
    for (int i = 1; i < record.num_partial; ++i)
      next_tile<true>(query, scores, out, weights, false);
    for (int i = record.num_partial > 0 ? 0 : 1; i < record.num_full; ++i)
      next_tile<false>(query, scores, out, weights, true);
  }

  __device__ __forceinline__ void issue_last_output(float (&out)[D::kOutRegisters],
                                                    const u32 (&weights)[D::kScoreRegisters / 2]) {
    ptx::wait(barriers_.value_full(value_.stage), value_.parity);
    ptx::pin(out);
    ptx::wgmma_fence();
    issue_output<D>(out, weights, value_descriptor(), has_output_);
    ptx::wgmma_commit();
  }

  const AttentionParams& params_;
  unsigned char* shared_;
  const u32 base_;
  const Barriers<D> barriers_;
  const Turns<D> turns_;
  const int warpgroup_;
  Ring<D::kQueryStages> query_;
  Ring<D::kStages> key_, value_;
  SoftmaxState state_;
  bool has_output_ = false;  // the item's first PV overwrites the output registers, others add
  Sequence sequence_;  // with Config::kVarlen
  ScoreRows<D> score_rows_;
};

}  // namespace stof
