#pragma once
// What each operator takes and makes: the one place that knows.

#include <vector>

#include "graph/graph.h"

namespace stof::graph {

/// Shape of the operator's output. `stated` is the shape asked for, read by kReshape alone. Throws
/// InvalidArgument naming operator and value where inputs or attributes do not fit.
Dims infer_shape(const std::vector<Value>& values, const Operator& op, const Dims& stated);

/// Type of the output: the first operand's, the table's of an embedding, float32 of sums.
DType infer_dtype(const std::vector<Value>& values, const Operator& op);

}  // namespace stof::graph
