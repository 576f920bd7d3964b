#pragma once
// Bound values as the runners read them.

#include <cstdint>

#include "backend/cpu/segments/segments.h"

namespace stof::cpu {

/// A float32 matrix or vector; stride 0 repeats one row.
struct Matrix {
  float* data = nullptr;
  std::int64_t rows = 0, columns = 0, stride = 0;

  float* row(std::int64_t i) const { return data + i * stride; }
};

/// The value's address; of a view, the base's and the first column. Throws InvalidArgument naming a
/// value without one.
void* address_of(const graph::Graph& graph, const SegmentBindings& bindings, graph::ValueId id);

/// A float32 value of rank 1 (one row for all) or 2; a matrix of one row is repeated as well.
Matrix matrix_of(const graph::Graph& graph, const SegmentBindings& bindings, graph::ValueId id);

/// Whether rows lie one behind the other, as oneDNN is told.
bool is_dense(const graph::Graph& graph, graph::ValueId id);

// One for each family; see segments.h.
std::unique_ptr<SegmentRunner> make_product(const graph::Graph&, const fusion::Segment&,
                                            const fusion::Choice&, const SegmentBindings&);
std::unique_ptr<SegmentRunner> make_rows(const graph::Graph&, const fusion::Segment&,
                                         const fusion::Choice&, const SegmentBindings&);
std::unique_ptr<SegmentRunner> make_attention(const graph::Graph&, const fusion::Segment&,
                                              const SegmentBindings&);

/// Whether the family can run the segment at all.
bool product_fits(const graph::Graph& graph, const fusion::Segment& segment);
bool rows_fit(const graph::Graph& graph, const fusion::Segment& segment);

}  // namespace stof::cpu
