#pragma once
// Dense products on the GPU by cuBLASLt, opened at run time. The only place that knows it.

#include <cstdint>
#include <map>
#include <memory>
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

/// y[rows, out] = epilogue(x[rows, in] W[out, in]^T), row-major elements, float32 accumulation.
struct GemmShape {
  DType element = DType::kFloat16;
  std::int64_t rows = 0, in = 0, out = 0;
  Epilogue epilogue = Epilogue::kNone;
  bool residual = false;  ///< adds elements [rows, out] that run() is given, before the epilogue

  /// "float16 [512, 384] x [1536, 384]^T + bias"
  std::string describe() const;
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
  /// `residual`: exactly with GemmShape::residual.
  void run(CUdeviceptr x, CUdeviceptr weight, CUdeviceptr y, CUdeviceptr workspace, CUstream stream,
           CUdeviceptr residual = 0) const;

 private:
  friend class GemmPlanner;
  struct Impl;
  explicit Gemm(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Chooses algorithms by cuBLASLt's heuristics, once a shape. Not safe from several threads.
class GemmPlanner {
 public:
  /// Throws NotFound without cuBLASLt, saying what to install. `device` must be in use.
  explicit GemmPlanner(const Device& device);

  /// `bias`: elements [out] in device memory; 0 exactly with Epilogue::kNone. Throws Unsupported
  /// naming the shape where no algorithm fits.
  Gemm plan(const GemmShape& shape, CUdeviceptr bias);

  /// The same with each of up to `most` algorithms, those first that the heuristics expect most of.
  std::vector<Gemm> plans(const GemmShape& shape, CUdeviceptr bias, int most) const;

  /// What every run() of this planner's products needs.
  static constexpr std::size_t kWorkspaceBytes = 32u << 20;  // NVIDIA's advice for Hopper

  /// "cuBLASLt 13.1 (/usr/local/cuda/lib64/libcublasLt.so.13)"
  std::string describe() const;

 private:
  friend class Gemm;
  struct Choice;
  std::vector<std::shared_ptr<const Choice>> choices(const GemmShape& shape, CUdeviceptr bias,
                                                     int most) const;
  std::shared_ptr<const CublasLt> library_;
  std::map<std::string, std::shared_ptr<const Choice>> choices_;  ///< by GemmShape::describe()
};

}  // namespace stof::cuda
