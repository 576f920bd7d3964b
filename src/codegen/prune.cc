#include "codegen/prune.h"

#include <fmt/core.h>

#include "core/check.h"

namespace stof::codegen {
namespace {

std::string emit(const BlockPruneConfig& config, const char* entry, int threads) {
  config.validate();
  return fmt::format(
      R"(// {name}
#include "prune/{entry}.cuh"
namespace stof {{
struct Config {{
  using Element = ptx::{element};
  static constexpr int kHeadDim = {dim};
  static constexpr bool kMaxPooling = {max};
}};
static_assert(prune::kPoolThreads == {pool} && prune::kChooseThreads == {choose} && prune::kChooseRows == {rows},
              "host and device disagree on pruning kernels");
}}
extern "C" __global__ void __launch_bounds__({threads})
{entry}(const __grid_constant__ stof::prune::BlockParams params) {{
  stof::prune::{entry}<stof::Config>(params);
}}
)",
      fmt::arg("name", config.name(entry)), fmt::arg("entry", entry),
      fmt::arg("element", config.element == DType::kBFloat16 ? "BFloat16" : "Float16"),
      fmt::arg("dim", config.head_dim), fmt::arg("max", config.max_pooling ? "true" : "false"),
      fmt::arg("pool", BlockPruneConfig::kPoolThreads),
      fmt::arg("choose", BlockPruneConfig::kChooseThreads),
      fmt::arg("rows", BlockPruneConfig::kChooseRows), fmt::arg("threads", threads));
}

}  // namespace

std::string BlockPruneConfig::name(const char* what) const {
  return fmt::format("prune_{}_{}_{}_{}_{}", what, element == DType::kBFloat16 ? "bf16" : "fp16",
                     head_dim, max_pooling ? "max" : "mean", key_blocks);
}

void BlockPruneConfig::validate() const {
  STOF_CHECK(element == DType::kFloat16 || element == DType::kBFloat16, kUnsupported,
             "dtype: pruning on a GPU takes float16 and bfloat16, got {}", to_string(element));
  STOF_CHECK(head_dim >= 8 && head_dim <= 256 && head_dim % 8 == 0, kUnsupported,
             "head_dim_qk: pruning on a GPU takes multiples of 8 up to 256, got {}", head_dim);
}

std::string emit_pool_blocks(const BlockPruneConfig& config) {
  return emit(config, "pool_blocks", BlockPruneConfig::kPoolThreads);
}

std::string emit_choose_blocks(const BlockPruneConfig& config) {
  return emit(config, "choose_blocks", BlockPruneConfig::kChooseThreads);
}

}  // namespace stof::codegen
