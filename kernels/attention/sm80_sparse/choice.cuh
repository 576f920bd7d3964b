#pragma once
// Two of four neighbouring keys, those of the largest scores: src/mask/dynamic/nm.cc's choice with
// N = 2 and M = 4, made on a thread's accumulators. The kept ones become the left operand of a 2:4
// sparse product, with the metadata that says which they are.
//
// Keys lie in shared memory as loader.cuh's neighbour order has them, so that in each 16 keys the
// quad's lane t holds keys 4t .. 4t + 3 of its two rows.

#include "ptx/math.cuh"
#include "ptx/thread.cuh"

namespace stof {

struct KeptPair {
  float first, second;
  u32 places;  // of the two in the group: first | second << 2, ascending
};

/// The larger score first, the lower key where they are equal. One comparison inside each half of
/// the group, then each half's second against the other's first. A comparison with NaN is false:
/// of a group that holds one, two are kept, the NaN perhaps among them; see README.md.
__device__ __forceinline__ KeptPair keep_two(float a, float b, float c, float d) {
  const bool a_first = a >= b, c_first = c >= d;
  const float most_ab = a_first ? a : b, least_ab = a_first ? b : a;
  const float most_cd = c_first ? c : d, least_cd = c_first ? d : c;
  const bool both_ab = least_ab >= most_cd, both_cd = least_cd > most_ab;
  const u32 one_each = (a_first ? 0u : 1u) + (c_first ? 8u : 12u);
  return {both_ab   ? a
          : both_cd ? c
                    : most_ab,
          both_ab   ? b
          : both_cd ? d
                    : most_cd,
          both_ab   ? 4u
          : both_cd ? 14u
                    : one_each};
}

/// Each of four (kWords = 4) or two words or-ed over the quad: lane t gets word t, of two words lane
/// t gets word t % 2.
template <int kWords>
__device__ __forceinline__ u32 scatter_over_quad(const u32 (&words)[kWords]) {
  const u32 lane = ptx::thread_index();
  const bool odd = lane & 1, upper = lane & 2;
  if constexpr (kWords == 4) {
    const u32 first = (upper ? words[2] : words[0]) |
                      __shfl_xor_sync(~0u, upper ? words[0] : words[2], 2);
    const u32 second = (upper ? words[3] : words[1]) |
                       __shfl_xor_sync(~0u, upper ? words[1] : words[3], 2);
    return (odd ? second : first) | __shfl_xor_sync(~0u, odd ? first : second, 1);
  } else {
    static_assert(kWords == 2);
    const u32 mine =
        (odd ? words[1] : words[0]) | __shfl_xor_sync(~0u, odd ? words[0] : words[1], 1);
    return mine | __shfl_xor_sync(~0u, mine, 2);
  }
}

/// Metadata words of a tile with kRegisters scores a thread: one for each 64 keys, of which the last
/// may be 32.
template <int kRegisters>
constexpr int kPlaceWords = (kRegisters / 16 + 1) / 2;

/// kept: of each 16 keys two of the upper row, then two of the lower one. places: what
/// ptx::multiply_sparse() takes, of 64 keys with selector 0 for the first 32 and 1 for the others.
template <int kRegisters>
__device__ __forceinline__ void keep_two_of_four(const float (&scores)[kRegisters],
                                                 float (&kept)[kRegisters / 2],
                                                 u32 (&places)[kPlaceWords<kRegisters>]) {
  static_assert(kRegisters % 16 == 0, "a sparse product takes 32 keys");
  constexpr int kGroups = kRegisters / 8;  // of 16 keys
  u32 words[kGroups];
  const u32 shift = 4 * (ptx::thread_index() & 3);
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    const int i = 8 * group;
    const KeptPair upper = keep_two(scores[i], scores[i + 1], scores[i + 4], scores[i + 5]);
    const KeptPair lower = keep_two(scores[i + 2], scores[i + 3], scores[i + 6], scores[i + 7]);
    kept[i / 2] = upper.first;
    kept[i / 2 + 1] = upper.second;
    kept[i / 2 + 2] = lower.first;
    kept[i / 2 + 3] = lower.second;
    words[group] = (upper.places | lower.places << 16) << shift;
  }
#pragma unroll
  for (int w = 0; w < kPlaceWords<kRegisters>; ++w) {
    if (4 * w + 4 <= kGroups)
      places[w] = scatter_over_quad<4>(
          {words[4 * w], words[4 * w + 1], words[4 * w + 2], words[4 * w + 3]});
    else
      places[w] = scatter_over_quad<2>({words[4 * w], words[4 * w + 1]});
  }
}

/// The payload's bits of this thread's keys, made of those the host laid out for natural order:
/// `even` and `odd` are the words of the quad's lanes 2 (t % 2) and 2 (t % 2) + 1.
__device__ __forceinline__ u32 neighbour_bits(u32 even, u32 odd, u32 lane) {
  const u32 shift = lane & 2 ? 4 : 0;
  constexpr u32 kLowNibbles = 0x0f0f0f0fu;
  return (even >> shift & kLowNibbles) | (odd >> shift & kLowNibbles) << 4;
}

}  // namespace stof
