#pragma once
// What a segment should take on a device, and what it can't go below.

#include "fusion/cost.h"
#include "tune/device.h"

namespace stof::tune {

struct SegmentEstimate {
  double predicted_us = 0;  ///< by the cost model, with the choice's tile where it has one
  double bound_us = 0;      ///< the roofline: products, steps or bytes, whichever takes longest
};

/// fusion::predict() with attention's share of visible pairs.
SegmentEstimate estimate(const graph::Graph& graph, const fusion::Segment& segment,
                         const fusion::Choice& choice, const fusion::MachineFacts& facts,
                         const BatchShape& batch);

}  // namespace stof::tune
