#pragma once
// A consumer warpgroup: 64 query rows, QK of the next tile in flight while this one's softmax runs.
//
// Needs wgmma_scores (Q and K from shared memory) and wgmma_output (P from registers), emitted for
// the Config's shapes by src/codegen/wgmma.cc.

#include "attention/epilogue.cuh"
#include "attention/records.cuh"
#include "attention/sm90_blockwise/config.cuh"
#include "ptx/barrier.cuh"
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

template <class D>
__device__ __forceinline__ void issue_output(float (&out)[D::kOutRegisters],
                                             const u32 (&weights)[D::kScoreRegisters / 2],
                                             ptx::Descriptor value) {
#pragma unroll
  for (int step = 0; step < D::kStepsPv; ++step)
    wgmma_output(out, weights[4 * step], weights[4 * step + 1], weights[4 * step + 2],
                 weights[4 * step + 3], ptx::encode(ptx::advance(value, step * 16 * 128)));
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

  __device__ __forceinline__ void run() {
    turns_.begin();
    for (;;) {
      ptx::wait(barriers_.query_full(query_.stage), query_.parity);
      const WorkRecord record =
          *reinterpret_cast<const WorkRecord*>(shared_ + D::kRecordOffset + 32 * query_.stage);
      if (record.num_partial < 0) return;
      one_item(record);
    }
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

  __device__ __forceinline__ void load_bits(u32 (&bits)[D::kPayloadWords]) const {
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

  /// Softmax of the scores of the current K stage; releases the stage (its payload is read here).
  template <bool kMasked>
  __device__ __forceinline__ bool weigh(float (&scores)[D::kScoreRegisters], float (&alpha)[2]) {
    u32 bits[D::kPayloadWords];
    if constexpr (kMasked) load_bits(bits);
    release(barriers_.key_empty(key_.stage));
    key_.next();
    float scale_log2 = params_.scale_log2;
    if constexpr (D::kSoftcap) {
      const float inner = params_.scale / params_.softcap;
#pragma unroll
      for (int i = 0; i < D::kScoreRegisters; ++i) scores[i] = ptx::tanh(scores[i] * inner);
      scale_log2 = softcap_log2();
    }
    if constexpr (kMasked) apply_bits(scores, bits);
    return softmax_step(scores, state_, alpha, scale_log2);
  }

  __device__ __forceinline__ float softcap_log2() const {
    constexpr float kLog2e = 1.44269504088896f;
    return params_.softcap * kLog2e;
  }

  /// The first tile of an item: nothing to overlap with yet.
  template <bool kMasked>
  __device__ __forceinline__ void first_tile(ptx::Descriptor query,
                                             u32 (&weights)[D::kScoreRegisters / 2]) {
    float scores[D::kScoreRegisters], alpha[2];
    ptx::wait(barriers_.key_full(key_.stage), key_.parity);
    turns_.wait();
    ptx::wgmma_fence();
    issue_scores<D>(scores, query, key_descriptor());
    ptx::wgmma_commit();
    turns_.pass();
    ptx::wgmma_wait<0>();
    ptx::pin(scores);
    weigh<kMasked>(scores, alpha);  // the output is still zero: nothing to rescale
    pack_weights(scores, weights);
  }

  /// A later tile: its QK and the previous tile's PV are in flight together.
  template <bool kMasked>
  __device__ __forceinline__ void next_tile(ptx::Descriptor query, float (&out)[D::kOutRegisters],
                                            u32 (&weights)[D::kScoreRegisters / 2]) {
    float scores[D::kScoreRegisters], alpha[2] = {1.0f, 1.0f};
    ptx::wait(barriers_.key_full(key_.stage), key_.parity);
    turns_.wait();
    ptx::pin(out);
    ptx::wgmma_fence();
    issue_scores<D>(scores, query, key_descriptor());
    ptx::wgmma_commit();
    ptx::wait(barriers_.value_full(value_.stage), value_.parity);
    issue_output<D>(out, weights, value_descriptor());
    ptx::wgmma_commit();
    turns_.pass();
    ptx::wgmma_wait<1>();
    ptx::pin(scores);
    const bool rescale = weigh<kMasked>(scores, alpha);
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

  __device__ __forceinline__ void last_output(float (&out)[D::kOutRegisters],
                                              const u32 (&weights)[D::kScoreRegisters / 2],
                                              OutputRows<D>& rows) {
    ptx::wait(barriers_.value_full(value_.stage), value_.parity);
    ptx::pin(out);
    ptx::wgmma_fence();
    issue_output<D>(out, weights, value_descriptor());
    ptx::wgmma_commit();
    rows.fetch();
    ptx::wgmma_wait<0>();
    ptx::pin(out);
    release(barriers_.value_empty(value_.stage));
    value_.next();
  }

  __device__ __forceinline__ void one_item(const WorkRecord& record) {
    float out[D::kOutRegisters];
#pragma unroll
    for (int i = 0; i < D::kOutRegisters; ++i) out[i] = 0.0f;
    state_ = {{-ptx::infinity(), -ptx::infinity()}, {0.0f, 0.0f}};

    const int total = record.num_partial + record.num_full;
    u32 weights[D::kScoreRegisters / 2];
    if (total > 0) {
      const ptx::Descriptor query = ptx::make_descriptor(
          base_ + D::kQueryOffset +
              (query_.stage * D::kWarpgroups + warpgroup_) * D::kQueryBytes,
          16);
      if (record.num_partial > 0)
        first_tile<true>(query, weights);
      else
        first_tile<false>(query, weights);
      for (int i = 1; i < record.num_partial; ++i) next_tile<true>(query, out, weights);
      for (int i = record.num_partial > 0 ? 0 : 1; i < record.num_full; ++i)
        next_tile<false>(query, out, weights);
    }
    release(barriers_.query_empty(query_.stage));
    OutputRows<D> rows(params_, record, warpgroup_);
    if (total > 0)
      last_output(out, weights, rows);
    else
      rows.fetch();
    query_.next();
    rows.store(out, state_, D::kSoftcap ? softcap_log2() : params_.scale_log2);
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
};

}  // namespace stof
