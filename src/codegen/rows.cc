#include "codegen/rows.h"

#include <fmt/core.h>

#include <bit>

#include "core/check.h"

namespace stof::codegen {
namespace {

struct Template {
  const char* name;
  const char* header;
  const char* params;
  const char* call;    ///< with the configuration or element as template argument
  const char* member;  ///< further lines of Config
};

Template template_of(RowOperator op) {
  switch (op) {
    case RowOperator::kEmbeddingNorm:
      return {"embedding_norm", "norm/embedding_norm.cuh", "EmbeddingParams",
              "embedding_norm<stof::Config>", ""};
    case RowOperator::kResidualNorm:
      return {"residual_norm", "norm/residual_norm.cuh", "ResidualParams",
              "residual_norm<stof::Config>", ""};
    case RowOperator::kGeluErf:
      return {"gelu_erf", "elementwise/gelu.cuh", "GeluParams", "gelu_erf<stof::Config::Element>",
              ""};
    case RowOperator::kPoolMean:
      return {"pool_mean", "elementwise/pooling.cuh", "PoolingParams", "pooling<stof::Config>",
              "  static constexpr Pooling kPooling = Pooling::kMean;\n"};
    case RowOperator::kPoolCls:
      return {"pool_cls", "elementwise/pooling.cuh", "PoolingParams", "pooling<stof::Config>",
              "  static constexpr Pooling kPooling = Pooling::kCls;\n"};
    case RowOperator::kPoolMax:
      return {"pool_max", "elementwise/pooling.cuh", "PoolingParams", "pooling<stof::Config>",
              "  static constexpr Pooling kPooling = Pooling::kMax;\n"};
  }
  throw_error(ErrorCode::kInternal, "row operator {} has no template", static_cast<int>(op));
}

bool is_norm(RowOperator op) {
  return op == RowOperator::kEmbeddingNorm || op == RowOperator::kResidualNorm;
}

constexpr int kPacksPerThread = 4;  // 32 values in registers: no spill, few steps

}  // namespace

int RowConfig::warps() const {
  if (!is_norm(op)) return 8;
  const int packs = width / 8, per_warp = 32 * kPacksPerThread;
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>((packs + per_warp - 1) / per_warp)));
}

int RowConfig::rows_per_block() const { return is_norm(op) && warps() == 1 ? 4 : 1; }

int RowConfig::threads() const { return 32 * warps() * rows_per_block(); }

std::string RowConfig::name() const {
  const std::string base =
      fmt::format("{}_{}", template_of(op).name, element == DType::kBFloat16 ? "bf16" : "fp16");
  return op == RowOperator::kGeluErf ? base : fmt::format("{}_{}", base, width);
}

void RowConfig::validate() const {
  STOF_CHECK(element == DType::kFloat16 || element == DType::kBFloat16, kUnsupported,
             "element type: the GPU row kernels take float16 and bfloat16, got {}",
             to_string(element));
  STOF_CHECK(width >= 8 && width <= kMaxWidth && width % 8 == 0, kUnsupported,
             "row width: the GPU row kernels take multiples of 8 from 8 to {}, got {}; use the CPU",
             kMaxWidth, width);
}

std::string emit_rows(const RowConfig& config) {
  config.validate();
  const Template parts = template_of(config.op);
  return fmt::format(
      R"(// {name}
#include "{header}"
namespace stof {{
struct Config {{
  using Element = ptx::{element};
  static constexpr int kWidth = {width}, kWarps = {warps}, kRows = {rows};
{member}}};
}}
extern "C" __global__ void __launch_bounds__({threads})
rows(const __grid_constant__ stof::{params} params) {{
  stof::{call}(params);
}}
)",
      fmt::arg("name", config.name()), fmt::arg("header", parts.header),
      fmt::arg("element", config.element == DType::kBFloat16 ? "BFloat16" : "Float16"),
      // The width plays no part in GELU: one kernel for all.
      fmt::arg("width", config.op == RowOperator::kGeluErf ? 8 : config.width),
      fmt::arg("warps", config.warps()), fmt::arg("rows", config.rows_per_block()),
      fmt::arg("member", parts.member), fmt::arg("threads", config.threads()),
      fmt::arg("params", parts.params), fmt::arg("call", parts.call));
}

}  // namespace stof::codegen
