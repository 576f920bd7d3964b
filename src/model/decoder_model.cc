#include "model/decoder_model.h"

#include "core/check.h"

namespace stof::model {

void DecoderGraphOptions::validate(const std::string& what, std::int64_t rows, DType dtype) const {
  STOF_CHECK(rows >= 1, kInvalidArgument, "{}: rows: expected at least 1, got {}", what, rows);
  STOF_CHECK(dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16,
             kInvalidArgument, "{}: dtype: expected float32, float16 or bfloat16, got {}", what,
             to_string(dtype));
  STOF_CHECK(cache_size >= 0, kInvalidArgument, "{}: cache_size: expected at least 0, got {}", what,
             cache_size);
  STOF_CHECK(head_rows >= 0, kInvalidArgument, "{}: head_rows: expected at least 0, got {}", what,
             head_rows);
  STOF_CHECK(cache_size > 0 || !reads_cache, kInvalidArgument,
             "{}: reads_cache: expected a cache_size above 0 with it, got 0", what);
}

}  // namespace stof::model
