#include "model/place_choice.h"

#include "core/check.h"
#include "core/optional_libraries.h"
#include "stof/gpu_info.h"

namespace stof::model {

std::string place_by(const LoadOptions& options, const std::string& what, DType gpu_dtype,
                     const std::function<void(DType)>& on_gpu,
                     const std::function<void()>& on_cpu) {
  const bool wants_float32 = options.dtype == DType::kFloat32;
  const DType dtype = options.dtype.value_or(gpu_dtype);
  // A 16-bit type is only to be had on a GPU, so asking for one leaves no choice.
  const bool gpu_only =
      options.place == Place::kCuda ||
      (options.place == Place::kAuto && options.dtype.has_value() && !wants_float32);
  if (gpu_only) {
    on_gpu(dtype);
    return {};
  }
  STOF_CHECK(!options.dtype || wants_float32, kUnsupported,
             "dtype: on the CPU {} compute in float32, got {}", what, to_string(*options.dtype));
  std::string note;
  if (options.place == Place::kAuto && !wants_float32 && !gpu_info().devices.empty()) {
    try {
      on_gpu(dtype);
      return {};
    } catch (const Error& error) {
      // What is wrong with the checkpoint itself is said on the CPU, below.
      note = error.what();
    }
  }
  open_onednn();  // what is missing is said here, not by the first call
  on_cpu();
  return note;
}

}  // namespace stof::model
