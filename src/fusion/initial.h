#pragma once
// The scheme a search starts from, and what runs untuned: the segments that occur most and save
// most memory traffic, within rules that hold on every machine seen so far.

#include <cstdint>
#include <vector>

#include "fusion/segment.h"

namespace stof::fusion {

/// What is fused without having been measured. A norm behind a product is not: it needs whole rows
/// in one cluster, and whether that pays is the search's to find.
struct InitialRules {
  /// Two products are one segment up to as many rows: beyond, their weights are read too often.
  /// 0, never: for machines without a kernel for chains.
  std::int64_t chain_rows = 0;
  /// Up to as many rows a product takes the norm in front of it, and a cache's store behind it:
  /// where kernels that stream weights run it, which have both. 0, never.
  std::int64_t streamed_rows = 0;
};

/// A legal segment of at least two operators that the graph has `count` times, by segment_hash.
struct FrequentSegment {
  Fingerprint hash;
  OperatorId first = kNoId, last = kNoId;  ///< where it is first
  int count = 0;
  std::int64_t saved_bytes = 0;  ///< of one: what is made inside is neither written nor read
};

/// Within layers; those that save most over the whole graph first, equal ones in their order.
std::vector<FrequentSegment> frequent_segments(const Graph& graph, const Limits& limits = {});

/// Takes frequent segments that the rules allow and that overlap none taken before; what is left
/// stays alone. Where two save as much, the one with fewer products wins: a bare product can be a
/// library's. Throws InvalidArgument for a graph without layers, or whose layers differ in length.
Scheme initial_scheme(const Graph& graph, const Limits& limits = {},
                      const InitialRules& rules = {});

}  // namespace stof::fusion
