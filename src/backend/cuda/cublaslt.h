#pragma once
// Dense products on the GPU by cuBLASLt, opened at run time. The only place that knows it.

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/cuda/device.h"
#include "stof/dtype.h"

namespace stof::cuda {

/// What is done to x W^T before it is stored.
enum class Epilogue : std::uint8_t {
  kNone,
  kBias,
  kBiasRelu,
  kBiasGeluTanh,  ///< cuBLASLt's GELU is the tanh form; the erf form is a kernel of ours
};

/// y[rows, out] = epilogue(x[rows, in] W[out, in]^T (+ residual[rows, out])), row-major elements,
/// float32 accumulation, rounded once.
struct GemmShape {
  DType element = DType::kFloat16;
  std::int64_t rows = 0, in = 0, out = 0;
  Epilogue epilogue = Epilogue::kNone;
  bool residual = false;

  /// "float16 [512, 384] x [1536, 384]^T + residual + bias"
  std::string describe() const;
};

/// One of the library's kernels by its own numbers, which mean the same as long as its version is.
struct GemmAlgorithm {
  std::int32_t id = 0, tile = 0, stages = 0, split_k = 1, reduction = 0, swizzle = 0, custom = 0,
               inner = 0, cluster = 0;

  auto operator<=>(const GemmAlgorithm&) const = default;
};

/// Path of the library that would be opened, found without loading its hundreds of megabytes; empty
/// where the usual folders have none (the system's loader may still).
std::string locate_cublaslt();

class CublasLt;

/// A product with its algorithm chosen and its bias bound. Immutable; run() may be called from
/// several threads with workspaces of their own.
class Gemm {
 public:
  ~Gemm();
  Gemm(Gemm&&) noexcept;
  Gemm& operator=(Gemm&&) noexcept;

  /// Asynchronous; neither allocates nor synchronises. Pointers are device memory, 16-byte aligned;
  /// `residual` is 0 exactly where the shape has none, and may be y.
  void run(CUdeviceptr x, CUdeviceptr weight, CUdeviceptr y, CUdeviceptr workspace, CUstream stream,
           CUdeviceptr residual = 0) const;

 private:
  friend class GemmPlanner;
  struct Impl;
  explicit Gemm(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Chooses algorithms by cuBLASLt's heuristics, once a shape. Safe from several threads.
class GemmPlanner {
 public:
  /// That of a device, started when it is first asked for; it lives as long as the process. Throws
  /// NotFound without cuBLASLt, saying what to install. Makes the device current.
  static GemmPlanner& of(const Device& device);

  /// What can compute the shape, in the order of the library's heuristics, which come first; then,
  /// for long sums over few rows, the best of them with the sum split in 2 and 4. None where
  /// nothing can.
  std::vector<GemmAlgorithm> algorithms(const GemmShape& shape);

  /// `bias`: elements [out] in device memory; 0 exactly with Epilogue::kNone. Throws Unsupported
  /// naming the shape where the library does not run it by that algorithm, which may be one of
  /// another shape's algorithms().
  Gemm plan(const GemmShape& shape, const GemmAlgorithm& algorithm, CUdeviceptr bias);

  /// What every run() of this planner's products needs.
  static constexpr std::size_t kWorkspaceBytes = 32u << 20;  // NVIDIA's advice for Hopper

  /// "cuBLASLt 13.1 (/usr/local/cuda/lib64/libcublasLt.so.13)"
  std::string describe() const;

 private:
  friend class Gemm;
  struct Known;
  explicit GemmPlanner(const Device& device);
  std::shared_ptr<const Known> known(const GemmShape& shape);

  std::shared_ptr<const CublasLt> library_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Known>> known_;  ///< by GemmShape::describe()
};

}  // namespace stof::cuda
