#pragma once
// out += P V of one warp with two of four weights kept: 2:4 sparse matrix instructions.

#include "attention/sm80_blockwise/products.cuh"
#include "attention/sm80_sparse/choice.cuh"

namespace stof {

/// `kept` and `places` as keep_two_of_four() leaves them, the former now weights.
template <class D>
__device__ __forceinline__ void multiply_output_sparse(
    float (&out)[D::kWarpSlabs][D::kOutRegisters],
    const float (&kept)[D::kWarpSlabs][D::kScoreRegisters / 2],
    const u32 (&places)[D::kWarpSlabs][kPlaceWords<D::kScoreRegisters>], u32 value_row) {
  constexpr int kBlocks = D::kOutColumns / 8;
  constexpr int kPairs = (kBlocks + 1) / 2;    // the last may have its first half only
  constexpr int kSteps = D::kScoreRegisters / 16;  // of 32 keys
  const auto load = [&](u32* words, int step, int pair) {
    const u32 address = fragment_address<D::kTileKv>(value_row, pair) + step * 32 * 128;
    ptx::load_matrices_transposed(words, address);
    ptx::load_matrices_transposed(words + 4, address + 16 * 128);
  };
  u32 values[2][8], weights[D::kWarpSlabs][4];
  load(values[0], 0, 0);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int slab = 0; slab < D::kWarpSlabs; ++slab)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        weights[slab][i] =
            D::Element::pack(kept[slab][8 * step + 2 * i], kept[slab][8 * step + 2 * i + 1]);
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      const int index = step * kPairs + pair;
      if (pair + 1 < kPairs)
        load(values[(index + 1) & 1], step, pair + 1);
      else if (step + 1 < kSteps)
        load(values[(index + 1) & 1], step + 1, 0);
      const u32* value = values[index & 1];
#pragma unroll
      for (int slab = 0; slab < D::kWarpSlabs; ++slab) {
        float* c = out[slab] + 8 * pair;
        const auto multiply = [&](float* columns, const u32* rows) {
          if (step % 2 == 0)
            ptx::multiply_sparse<0>(typename D::Element{}, columns, weights[slab], rows[0], rows[1],
                                    rows[4], rows[5], places[slab][step / 2]);
          else
            ptx::multiply_sparse<1>(typename D::Element{}, columns, weights[slab], rows[0], rows[1],
                                    rows[4], rows[5], places[slab][step / 2]);
        };
        multiply(c, value);
        if (2 * pair + 1 < kBlocks) multiply(c + 4, value + 2);
      }
    }
  }
}

}  // namespace stof
