#pragma once
// Online softmax on wgmma accumulators (Milakov & Gimelshein 2018, arXiv 1805.02867).
//
// A thread holds two rows of a 64-row tile: registers with (i & 2) == 0 belong to row lane/4 of its
// warp, the others to row lane/4 + 8. The four lanes of a quad share the two rows.

#include "ptx/math.cuh"

namespace stof {

/// Running state of the thread's two rows. `m` is in score units (before scaling); a row that has
/// seen nothing has m = -inf and l = 0.
struct SoftmaxState {
  float m[2];
  float l[2];  // this thread's part of the sum
};

__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

/// Hides what the payload's bits do not show.
template <int kRegisters, int kWords>
__device__ __forceinline__ void apply_bits(float (&scores)[kRegisters], const u32 (&bits)[kWords]) {
#pragma unroll
  for (int i = 0; i < kRegisters; ++i)
    scores[i] = (bits[i / 32] >> (i % 32)) & 1 ? scores[i] : -ptx::infinity();
}

/// Scores become weights exp2((score - m) * scale_log2). Returns true when the output so far must
/// be multiplied by alpha: the reference m only moves when a row's maximum grew by more than 2^8,
/// which float32 sums and 16-bit weights take without loss.
template <int kRegisters>
__device__ __forceinline__ bool softmax_step(float (&scores)[kRegisters], SoftmaxState& state,
                                             float (&alpha)[2], float scale_log2) {
  constexpr float kLazyLimit = 8.0f;
  float top[2] = {scores[0], scores[2]};
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) top[(i >> 1) & 1] = fmaxf(top[(i >> 1) & 1], scores[i]);

  // A quad's lanes decide together; the vote over thread maxima is cheaper than two shuffles and
  // errs only on the side of looking closer. -inf - -inf is NaN, which never asks for a rescale.
  const bool grew = (top[0] - state.m[0]) * scale_log2 > kLazyLimit ||
                    (top[1] - state.m[1]) * scale_log2 > kLazyLimit;
  const bool rescale = __any_sync(~0u, grew);
  if (rescale) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float m_new = fmaxf(state.m[r], quad_max(top[r]));
      const float safe = m_new == -ptx::infinity() ? 0.0f : m_new;
      alpha[r] = ptx::exp2((state.m[r] - safe) * scale_log2);
      state.m[r] = m_new;
      state.l[r] *= alpha[r];
    }
  }
  float offset[2];
#pragma unroll
  for (int r = 0; r < 2; ++r)
    offset[r] = state.m[r] == -ptx::infinity() ? 0.0f : state.m[r] * scale_log2;
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) {
    scores[i] = ptx::exp2(scores[i] * scale_log2 - offset[(i >> 1) & 1]);
    state.l[(i >> 1) & 1] += scores[i];
  }
  return rescale;
}

}  // namespace stof
