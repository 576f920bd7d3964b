#include "codegen/pooling.h"

#include <fmt/core.h>

#include "core/check.h"

namespace stof::codegen {
namespace {

struct Names {
  const char* code;
  const char* text;
};

Names names_of(PoolingKind kind) {
  switch (kind) {
    case PoolingKind::kMean:
      return {"kMean", "mean"};
    case PoolingKind::kCls:
      return {"kCls", "cls"};
    case PoolingKind::kMax:
      return {"kMax", "max"};
  }
  throw_error(ErrorCode::kInternal, "pooling {} has no kernel", static_cast<int>(kind));
}

}  // namespace

std::string PoolingConfig::name() const {
  return fmt::format("pool_{}_{}_{}", names_of(kind).text,
                     element == DType::kBFloat16 ? "bf16" : "fp16", width);
}

void PoolingConfig::validate() const {
  STOF_CHECK(element == DType::kFloat16 || element == DType::kBFloat16, kUnsupported,
             "element type: GPU pooling takes float16 and bfloat16, got {}", to_string(element));
  STOF_CHECK(width >= 8 && width % 8 == 0, kUnsupported,
             "row width: GPU pooling takes multiples of 8, got {}; use the CPU", width);
}

std::string emit_pooling(const PoolingConfig& config) {
  config.validate();
  return fmt::format(
      R"(// {name}
#include "elementwise/pooling.cuh"
namespace stof {{
struct Config {{
  using Element = ptx::{element};
  static constexpr int kWidth = {width};
  static constexpr Pooling kPooling = Pooling::{kind};
}};
}}
extern "C" __global__ void __launch_bounds__({threads})
pool(const __grid_constant__ stof::PoolingParams params) {{
  stof::pooling<stof::Config>(params);
}}
)",
      fmt::arg("name", config.name()),
      fmt::arg("element", config.element == DType::kBFloat16 ? "BFloat16" : "Float16"),
      fmt::arg("width", config.width), fmt::arg("kind", names_of(config.kind).code),
      fmt::arg("threads", PoolingConfig::kThreads));
}

}  // namespace stof::codegen
