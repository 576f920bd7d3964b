#pragma once
// A query tile whose key tiles several blocks share ("split-KV"): every block stores what it has
// summed, and the last one to arrive joins the parts in their order, so that the result does not
// depend on who was last.

#include "attention/records.cuh"
#include "attention/softmax.cuh"

namespace stof {

/// Floats of a part, one warpgroup: [output register and four of softmax state][thread].
template <class D>
constexpr int kPartFloats = (D::kOutRegisters + 4) * 128;

/// The thread's column of part `slot`.
template <class D>
__device__ __forceinline__ float* part_of_thread(const AttentionParams& params, i32 slot,
                                                 int warpgroup) {
  return params.workspace + (static_cast<i64>(slot) * D::kWarpgroups + warpgroup) * kPartFloats<D> +
         (threadIdx.x & 127);
}

/// Stores this block's part; true in the warp that arrives last and has to join. Warps count by
/// themselves: what a warp joins, the same warp of the other blocks has written.
template <class D>
__device__ __forceinline__ bool store_part(const AttentionParams& params, i32 slot, int warpgroup,
                                           const float (&out)[D::kOutRegisters],
                                           const SoftmaxState& state) {
  float* part = part_of_thread<D>(params, slot, warpgroup);
#pragma unroll
  for (int i = 0; i < D::kOutRegisters; ++i) part[128 * i] = out[i];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    part[128 * (D::kOutRegisters + r)] = state.m[r];
    part[128 * (D::kOutRegisters + 2 + r)] = state.l[r];
  }
  __threadfence();
  __syncwarp();
  const SplitPart split = params.parts[slot];
  u32 arrived = 0;
  if ((threadIdx.x & 31) == 0) {
    u32* count = params.arrivals + split.first * (4 * D::kWarpgroups) + 4 * warpgroup +
                 ((threadIdx.x & 127) >> 5);
    arrived = atomicAdd(count, 1u) + 1;
    if (arrived == static_cast<u32>(split.count)) *count = 0;  // ready for the next launch
  }
  arrived = __shfl_sync(~0u, arrived, 0);
  __threadfence();
  return arrived == static_cast<u32>(split.count);
}

/// The accumulators of all parts together, read from where store_part() put them.
template <class D>
class JoinedParts {
 public:
  __device__ __forceinline__ JoinedParts(const AttentionParams& params, i32 slot, int warpgroup,
                                         float scale_log2, SoftmaxState* state)
      : scale_log2_(scale_log2) {
    const SplitPart split = params.parts[slot];
    parts_ = part_of_thread<D>(params, split.first, warpgroup);
    count_ = split.count;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float m = -ptx::infinity(), l = 0.0f;
      for (int p = 0; p < count_; ++p) m = fmaxf(m, load(p, D::kOutRegisters + r));
      top_[r] = m == -ptx::infinity() ? 0.0f : m;
      for (int p = 0; p < count_; ++p) l += load(p, D::kOutRegisters + 2 + r) * weight(p, r);
      state->m[r] = m;
      state->l[r] = l;
    }
  }

  /// Accumulators first .. first + kCount - 1; first is a multiple of 4.
  template <int kCount>
  __device__ __forceinline__ void get(int first, float (&chunk)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) chunk[i] = 0.0f;
    for (int p = 0; p < count_; ++p) {
      const float weights[2] = {weight(p, 0), weight(p, 1)};
#pragma unroll
      for (int i = 0; i < kCount; ++i) chunk[i] += weights[(i >> 1) & 1] * load(p, first + i);
    }
  }

 private:
  __device__ __forceinline__ float load(int part, int index) const {
    return __ldcg(parts_ + static_cast<i64>(part) * D::kWarpgroups * kPartFloats<D> + 128 * index);
  }
  __device__ __forceinline__ float weight(int part, int r) const {
    return ptx::exp2((load(part, D::kOutRegisters + r) - top_[r]) * scale_log2_);
  }

  const float* parts_;
  int count_;
  float top_[2];
  const float scale_log2_;
};

}  // namespace stof
