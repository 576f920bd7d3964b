#pragma once
// Masks seen through a reordering of tokens, and masks cut into parts.
//
// Sorting tokens by their residue modulo r turns a dilated or strided pattern into dense blocks:
// position p of the new order is token (p mod (S/r)) * r + p / (S/r).

#include <cstdint>
#include <vector>

#include "stof/mask.h"

namespace stof::mask {

/// Strides that occur in the expression's dilated() and strided() parts and divide both lengths,
/// ascending; each is worth trying as `permuted()`'s argument. Not those of a strided() whose local
/// band is as wide: see split_strided().
std::vector<std::int64_t> permutation_candidates(const Mask& bound, const ScoreShape& shape);

/// The bound mask in residue order of stride `step`, which divides seq_q and seq_kv.
Mask permuted(const Mask& bound, const ScoreShape& shape, std::int64_t step);

/// A strided mask as two disjoint parts whose union it is: the local band, and the far diagonals
/// (dense blocks once permuted by the stride). Empty where the expression is not of that form.
/// Attention over the parts is merged by LSE.
struct MaskPart {
  Mask mask;
  std::int64_t step = 1;  ///< the permutation that suits it
};
std::vector<MaskPart> split_strided(const Mask& bound);

}  // namespace stof::mask
