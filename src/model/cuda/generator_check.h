#pragma once
// What generators on a GPU do not take.

#include "graph/graph.h"

namespace stof::model {

/// Throws Unsupported naming a dtype, or a matrix that the kernels do not read.
void check_generator(const graph::Graph& graph, DType dtype);

}  // namespace stof::model
