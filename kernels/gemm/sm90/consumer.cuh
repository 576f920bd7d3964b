#pragma once
// A warpgroup that multiplies: kSlabs x 64 rows of a tile, all of its columns.
//
// Needs wgmma_product (x and W from shared memory), emitted for the Config's width by
// src/codegen/wgmma.cc.

#include "gemm/sm90/epilogue.cuh"
#include "gemm/sm90/row_norm.cuh"
#include "ptx/cluster.cuh"
#include "ptx/shared.cuh"
#include "ptx/wgmma.cuh"

namespace stof {

/// Named barriers that let the two warpgroups of a ping-pong multiply in turn, so that one's epilogue
/// runs beside the other's products.
template <class D>
struct GemmTurns {
  int group;
  __device__ __forceinline__ void begin() const {
    if (D::kPingPong && group == 1) pass();
  }
  __device__ __forceinline__ void wait() const {
    if constexpr (D::kPingPong) ptx::sync_some(1 + group, 256);
  }
  __device__ __forceinline__ void pass() const {
    if constexpr (D::kPingPong) asm volatile("bar.arrive %0, %1;" ::"r"(2 - group), "n"(256) : "memory");
  }
};

template <class D>
class GemmConsumer {
 public:
  __device__ GemmConsumer(const GemmParams& params, const GemmMaps& maps, unsigned char* shared,
                          int group)
      : params_(params),
        shared_(shared),
        base_(ptx::shared_address(shared)),
        barriers_{base_ + D::kBarrierOffset},
        group_(group),
        warp_(__shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0)),
        turns_{group},
        epilogue_(params, maps, shared, warp_),
        norm_(params, shared, warp_) {}

  __device__ __forceinline__ void run() {
    turns_.begin();
    // Every block waits: the kernel after the next may then rely on this one's predecessor.
    ptx::wait_for_previous_kernel();
    TileWalk<D> walk(params_);
    constexpr int kTurn = D::kPingPong ? 2 : 1;
    i32 local = D::kPingPong ? group_ : 0;
    walk.index += local * walk.stride;
    for (; walk.index < walk.end; walk.index += kTurn * walk.stride, local += kTurn) {
      const TilePlace tile = walk.place(params_);
      const int first_slab = D::kCooperative ? group_ * D::kSlabs : 0;
      epilogue_.begin(tile, tile.m * D::kTileM + 64 * first_slab + 16 * (warp_ & 3),
                      static_cast<u32>(local / kTurn));
      float accumulators[D::kSlabs][D::kAccumulators];
      multiply(accumulators, local, walk.k_blocks, first_slab);
      if constexpr (D::kPartners > 1)
        if (!gather(accumulators[0])) return;
      const int slot = local % D::kBiasSlots;
      if constexpr (D::kVectors > 0)
        ptx::wait(barriers_.bias_full(slot), D::kNorm ? 0 : local / D::kBiasSlots & 1);
#pragma unroll
      for (int slab = 0; slab < D::kSlabs; ++slab) {
        epilogue_.finish(accumulators[slab], slab, slot);
        if constexpr (D::kNorm) norm_.measure(accumulators[slab], slab);
      }
      if constexpr (D::kNorm) {
        norm_.exchange(static_cast<u32>(local / kTurn));
#pragma unroll
        for (int slab = 0; slab < D::kSlabs; ++slab)
          epilogue_.store_normal(accumulators[slab], slab, norm_);
      } else if constexpr (D::kVectors > 0) {
        release(barriers_.bias_empty(slot));
      }
    }
    // Shared memory stays until the copy engine has read it.
    if ((threadIdx.x & 31) == 0) ptx::wait_stores_read<0>();
  }

 private:
  __device__ __forceinline__ void release(u32 barrier) const {
    __syncwarp();
    if ((threadIdx.x & 31) == 0) ptx::arrive(barrier);
  }

  /// The products of one block of K.
  __device__ __forceinline__ void issue(float (&accumulators)[D::kSlabs][D::kAccumulators], int stage,
                                        int first_slab, bool accumulate) const {
    // Warpgroups that share a tile's sum take every other half of a block.
    constexpr int kSteps = D::kSplitGroups ? 4 / D::kGroups : 4;  // of 16 columns
    const int first_step = D::kSplitGroups ? group_ * kSteps : 0;
    const ptx::Descriptor x = ptx::make_descriptor(
        base_ + D::kXOffset + stage * D::kXBytes + first_slab * 64 * 128 + 32 * first_step, 16);
    const ptx::Descriptor w =
        ptx::make_descriptor(base_ + D::kWOffset + stage * D::kWBytes + 32 * first_step, 16);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int slab = 0; slab < D::kSlabs; ++slab)
        wgmma_product(accumulators[slab], ptx::encode(ptx::advance(x, slab * 64 * 128 + 32 * step)),
                      ptx::encode(ptx::advance(w, 32 * step)), accumulate || step > 0);
    ptx::wgmma_commit();
  }

  __device__ __forceinline__ void multiply(float (&accumulators)[D::kSlabs][D::kAccumulators],
                                           i32 local, i32 k_blocks, int first_slab) const {
    GemmRing<D> ring(static_cast<u32>(local) * static_cast<u32>(k_blocks));
    // First the turn: then the other group has seen every earlier round of the ring full. A wait by
    // parity that is two rounds ahead would return at once.
    turns_.wait();
    ptx::wait(barriers_.full(ring.stage), ring.parity);
#pragma unroll
    for (int slab = 0; slab < D::kSlabs; ++slab) ptx::pin(accumulators[slab]);
    issue(accumulators, ring.stage, first_slab, false);
    int previous = ring.stage;
    ring.next();
    for (i32 block = 1; block < k_blocks; ++block) {
      ptx::wait(barriers_.full(ring.stage), ring.parity);
      issue(accumulators, ring.stage, first_slab, true);
      ptx::wgmma_wait<1>();
      release(barriers_.empty(previous));
      previous = ring.stage;
      ring.next();
    }
    turns_.pass();
    ptx::wgmma_wait<0>();
#pragma unroll
    for (int slab = 0; slab < D::kSlabs; ++slab) ptx::pin(accumulators[slab]);
    release(barriers_.empty(previous));
  }

  /// Every partner sends each warp's part of the sum to the partner that finishes those rows. False:
  /// others finish this warp's.
  __device__ __forceinline__ bool gather(float (&accumulators)[D::kAccumulators]) const {
    constexpr int kGroups = D::kSplitGroups ? D::kGroups : 1;
    const int row_warp = warp_ & 3, group = D::kSplitGroups ? group_ : 0;
    const int owner = row_warp / D::kOwnWarps;
    int self = group;
    if constexpr (D::kClusterK > 1) {
      self += static_cast<int>(ptx::cluster_rank()) * kGroups;
      ptx::cluster_wait();  // the others' barriers are ready
    }
    if (owner != self) {
      send(accumulators, owner / kGroups, area(owner % kGroups, self < owner ? self : self - 1),
           owner % kGroups);
      return false;
    }
    if constexpr (D::kClusterK > 1)
      ptx::wait(barriers_.receive(warp_), 0);
    else
      ptx::sync_some(1 + row_warp, 64);
#pragma unroll
    for (int source = 0; source < D::kPartners - 1; ++source) {
      const float4* part = reinterpret_cast<const float4*>(shared_ + area(group, source));
#pragma unroll
      for (int i = 0; i < D::kAccumulators / 4; ++i) {
        const float4 values = part[i * 32];
        accumulators[4 * i] += values.x, accumulators[4 * i + 1] += values.y;
        accumulators[4 * i + 2] += values.z, accumulators[4 * i + 3] += values.w;
      }
    }
    return true;
  }

  /// Where a block receives, for this warp's rows and its warpgroup `group`, what partner number
  /// `source` (itself left out) sends: offset of this lane's first four values.
  __device__ __forceinline__ int area(int group, int source) const {
    const int own = group * D::kOwnWarps + (warp_ & 3) % D::kOwnWarps;
    return D::kReceiveOffset + (own * (D::kPartners - 1) + source) * D::kReceiveBytes +
           (static_cast<int>(threadIdx.x) & 31) * 16;
  }

  /// To another block the stores themselves complete the barrier of the warp that waits; in the same
  /// block the two warps meet.
  __device__ __forceinline__ void send(const float (&accumulators)[D::kAccumulators], int block,
                                       int offset, int group) const {
    constexpr int kPieces = D::kAccumulators / 4;
    if constexpr (D::kClusterK > 1) {
      const u32 address = ptx::address_in_block(base_ + offset, block);
      const u32 barrier =
          ptx::address_in_block(barriers_.receive(group * 4 + (warp_ & 3)), block);
#pragma unroll
      for (int i = 0; i < kPieces; ++i)
        ptx::store_async(address + i * 512, accumulators[4 * i], accumulators[4 * i + 1],
                         accumulators[4 * i + 2], accumulators[4 * i + 3], barrier);
    } else {
      float4* part = reinterpret_cast<float4*>(shared_ + offset);
#pragma unroll
      for (int i = 0; i < kPieces; ++i)
        part[i * 32] = make_float4(accumulators[4 * i], accumulators[4 * i + 1],
                                   accumulators[4 * i + 2], accumulators[4 * i + 3]);
      ptx::sync_some(1 + (warp_ & 3), 64);
    }
  }

  const GemmParams& params_;
  unsigned char* shared_;
  const u32 base_;
  const GemmBarriers<D> barriers_;
  const int group_, warp_;
  const GemmTurns<D> turns_;
  GemmEpilogue<D> epilogue_;
  RowNorm<D> norm_;  // with Config::kNorm
};

}  // namespace stof
