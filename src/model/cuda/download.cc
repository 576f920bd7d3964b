#include "model/cuda/download.h"

#include <cmath>
#include <utility>

#include "backend/cuda/driver.h"
#include "core/check.h"

namespace stof::model {

Tensor download_float32(const exec::CudaResult& result, std::int64_t columns) {
  Tensor stored(result.dtype, {result.rows, result.columns});
  const cuda::Driver& driver = cuda::Driver::instance();
  driver.check(
      driver.cuMemcpyDtoHAsync(stored.data(), result.address, stored.bytes(), result.stream),
      "downloading a result");
  driver.check(driver.cuStreamSynchronize(result.stream), "running the model");
  TensorView known = std::as_const(stored).view();
  known.shape[1] = columns;
  Tensor wide = Tensor::converted(known, DType::kFloat32);
  const float* const values = wide.as<float>().data();
  const std::int64_t count = wide.size();
  int overflowed = 0;
#pragma omp simd reduction(+ : overflowed)
  for (std::int64_t i = 0; i < count; ++i) overflowed += !(std::abs(values[i]) < INFINITY);
  STOF_CHECK(overflowed == 0, kUnsupported,
             "{}: this model's values overflowed on this text; compute in {}",
             to_string(stored.dtype()),
             stored.dtype() == DType::kFloat16 ? "bfloat16" : "float32, on the CPU");
  return wide;
}

}  // namespace stof::model
