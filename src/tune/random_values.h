#pragma once
// Contents for the values of a graph that is measured or checked: random normal, of the size that
// trained models have, so that neither zeros nor overflow flatter a kernel.

#include <cstdint>

#include "graph/graph.h"
#include "stof/tensor.h"
#include "tune/device.h"

namespace stof::tune {

/// Contents of an input, a weight or an activation, of its dtype and shape. Matrices of products
/// are divided by the square root of their width; gammas are about 1; table rows are drawn from the
/// table, offsets are the batch's. The same for the same seed.
Tensor random_value(const graph::Graph& graph, graph::ValueId id, const BatchShape& batch,
                    std::uint64_t seed);

}  // namespace stof::tune
