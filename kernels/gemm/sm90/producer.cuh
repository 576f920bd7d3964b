#pragma once
// The producer thread: feeds x, W and bias by TMA.

#include "gemm/sm90/config.cuh"
#include "ptx/copy.cuh"
#include "ptx/grid.cuh"

namespace stof {

/// The matrices as the copy engine sees them: {columns, rows}.
struct GemmMaps {
  const ptx::TensorMap* x;         // boxes of 64 columns, kTileM rows
  const ptx::TensorMap* w;         // boxes of 64 columns, kTileN rows (with a gate half as many)
  const ptx::TensorMap* y;         // boxes of kChunk columns, 16 rows; {kStoreDim, rows, heads} with heads
  const ptx::TensorMap* residual;  // likewise
};

template <class D>
class GemmProducer {
 public:
  __device__ GemmProducer(const GemmParams& params, const GemmMaps& maps, u32 shared)
      : params_(params), maps_(maps), shared_(shared), barriers_{shared + D::kBarrierOffset} {}

  /// Weights of the first stages are under way before the previous kernel has ended; what that kernel
  /// may have written is not.
  __device__ __forceinline__ void run() {
    TileWalk<D> walk(params_);
    i32 early = 0;
    if (walk.index < walk.end) {
      const TilePlace first = walk.place(params_);
      early = min(walk.k_blocks, D::kStages);
      for (i32 block = 0; block < early; ++block) load_w(block, walk.k_begin + block, first);
      load_bias(0, first);
    }
    ptx::wait_for_previous_kernel();
    GemmRing<D> ring(0);
    for (i32 local = 0; walk.index < walk.end; ++local, walk.index += walk.stride) {
      const TilePlace tile = walk.place(params_);
      for (i32 block = 0; block < walk.k_blocks; ++block) {
        if (local > 0 || block >= early) {
          ptx::wait(barriers_.empty(ring.stage), ring.parity ^ 1);
          load_w(ring.stage, walk.k_begin + block, tile);
        }
        ptx::load_matrix_box(shared_ + D::kXOffset + ring.stage * D::kXBytes, maps_.x,
                             barriers_.full(ring.stage), (walk.k_begin + block) * D::kBlockK,
                             tile.m * D::kTileM);
        ring.next();
      }
      // Last, lest it wait for an earlier tile's epilogue while stages are free.
      if (local > 0 && !D::kNorm) load_bias(local, tile);
    }
  }

 private:
  /// With a gate a tile has as many rows of W from its first half, the gates, as from its second.
  static constexpr int kParts = D::kGate ? 2 : 1;
  static constexpr int kPartRows = D::kTileN / kParts;

  /// Announces the stage's bytes, x's too.
  __device__ __forceinline__ void load_w(int stage, i32 block, TilePlace tile) {
    ptx::arrive_expect_bytes(barriers_.full(stage), D::kXBytes + D::kWBytes);
#pragma unroll
    for (int part = 0; part < kParts; ++part)
      ptx::load_matrix_box(shared_ + D::kWOffset + stage * D::kWBytes + part * kPartRows * 128,
                           maps_.w, barriers_.full(stage), block * D::kBlockK,
                           part * (params_.columns / kParts) + tile.n * kPartRows);
  }

  /// Bias, gamma and beta of the tile's columns.
  __device__ __forceinline__ void load_bias(i32 local, TilePlace tile) {
    if constexpr (D::kVectors > 0) {
      constexpr int kBiasWidth = D::kBiasWidth, kNormWidth = D::kNormWidth;
      const int slot = local % D::kBiasSlots;
      const u32 full = barriers_.bias_full(slot);
      ptx::wait(barriers_.bias_empty(slot), (local / D::kBiasSlots & 1) ^ 1);
      const i32 columns = params_.columns / kParts, column = tile.n * kPartRows;
      const i32 count = min(kPartRows, columns - column);
      ptx::arrive_expect_bytes(
          full, count * kParts * ((D::kBias ? kBiasWidth : 0) + D::kNormVectors * kNormWidth));
      const u32 to = shared_ + D::kBiasOffset + slot * D::kBiasBytes;
      const auto load = [&](const void* vector, int offset, int width) {
#pragma unroll
        for (int part = 0; part < kParts; ++part)
          ptx::load_bytes(
              to + offset + part * kPartRows * width,
              static_cast<const char*>(vector) + static_cast<i64>(part * columns + column) * width,
              count * width, full);
      };
      if constexpr (D::kBias) load(params_.bias, 0, kBiasWidth);
      if constexpr (D::kNorm) load(params_.gamma, D::kGammaOffset, kNormWidth);
      if constexpr (D::kNorm && D::kCenter) load(params_.beta, D::kBetaOffset, kNormWidth);
    }
  }

  const GemmParams& params_;
  const GemmMaps& maps_;
  const u32 shared_;
  const GemmBarriers<D> barriers_;
};

}  // namespace stof
