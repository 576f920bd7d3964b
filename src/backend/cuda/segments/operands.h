#pragma once
// Bound values as the runners read them, and the families of runners.

#include <cstdint>
#include <string>

#include "backend/cuda/segments/segments.h"
#include "jit/compile.h"

namespace stof::cuda {

/// A matrix or vector; stride 0 repeats one row.
struct Matrix {
  CUdeviceptr data = 0;
  std::int64_t rows = 0, columns = 0;
  std::int64_t stride = 0;  ///< from row to row, in elements
};

/// Throws InvalidArgument naming a value without address.
Matrix matrix_of(const graph::Graph& graph, const SegmentBindings& bindings, graph::ValueId id);

/// Rows lie one behind the other, in memory of their own.
bool is_dense(const graph::Graph& graph, graph::ValueId id);

/// Throws Unsupported naming segment and choice.
[[noreturn]] void refuse(const graph::Graph& graph, const fusion::Segment& segment,
                         const fusion::Choice& choice, const std::string& why);

/// A family of kernels.
struct RunnerFamily {
  const char* name;
  std::vector<fusion::Choice> (*candidates)(const graph::Graph&, const fusion::Segment&,
                                            const Device&);
  std::unique_ptr<SegmentRunner> (*make)(const graph::Graph&, const fusion::Segment&,
                                         const fusion::Choice&, const SegmentBindings&,
                                         const Device&);
  /// What make() compiles; null: nothing.
  jit::CubinRequest (*kernel)(const graph::Graph&, const fusion::Segment&, const fusion::Choice&,
                              const Device&) = nullptr;
};

extern const RunnerFamily kSm90GemmRunners, kSm80GemmRunners, kSkinnyGemmRunners, kCublasLtRunners,
    kRowRunners, kAttentionRunners;

}  // namespace stof::cuda
