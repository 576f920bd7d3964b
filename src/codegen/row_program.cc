#include "codegen/row_program.h"

#include <fmt/core.h>

#include <algorithm>

#include "core/bits.h"
#include "core/check.h"

namespace stof::codegen {
namespace {

struct StepNames {
  const char* code;  ///< of the enumerator in the kernel
  const char* text;  ///< in a configuration's name
};

StepNames names_of(RowStep step) {
  switch (step) {
    case RowStep::kAddRow:
      return {"kAddRow", "add"};
    case RowStep::kAddTable:
      return {"kAddTable", "table"};
    case RowStep::kAddVector:
      return {"kAddVector", "vector"};
    case RowStep::kMultiplyRow:
      return {"kMultiplyRow", "multiply"};
    case RowStep::kScale:
      return {"kScale", "scale"};
    case RowStep::kRelu:
      return {"kRelu", "relu"};
    case RowStep::kGeluErf:
      return {"kGeluErf", "geluerf"};
    case RowStep::kGeluTanh:
      return {"kGeluTanh", "gelutanh"};
    case RowStep::kSilu:
      return {"kSilu", "silu"};
    case RowStep::kLayerNorm:
      return {"kLayerNorm", "layernorm"};
    case RowStep::kRmsNorm:
      return {"kRmsNorm", "rmsnorm"};
    case RowStep::kRope:
      return {"kRope", "rope"};
    case RowStep::kStore:
      return {"kStore", "store"};
    case RowStep::kStoreHeads:
      return {"kStoreHeads", "heads"};
    case RowStep::kStoreCache:
      return {"kStoreCache", "cache"};
    case RowStep::kRmsScale:
      return {"kRmsScale", "rmsscale"};
    case RowStep::kStoreSquares:
      return {"kStoreSquares", "squares"};
    case RowStep::kHeadNorm:
      return {"kHeadNorm", "headnorm"};
  }
  throw_error(ErrorCode::kInternal, "row step {} has no name", static_cast<int>(step));
}

int num_operands(RowStep step) {
  switch (step) {
    case RowStep::kRelu:
    case RowStep::kGeluErf:
    case RowStep::kGeluTanh:
    case RowStep::kSilu:
      return 0;
    case RowStep::kAddTable:
    case RowStep::kLayerNorm:
    case RowStep::kRope:
    case RowStep::kStoreCache:
    case RowStep::kHeadNorm:
      return 2;
    default:
      return 1;
  }
}

bool has_norm(const std::vector<RowInstruction>& program) {
  return std::any_of(program.begin(), program.end(), [](const RowInstruction& i) {
    return i.step == RowStep::kLayerNorm || i.step == RowStep::kRmsNorm;
  });
}

/// Whether a step asks how the row is made of heads.
bool has_heads(const std::vector<RowInstruction>& program) {
  return std::any_of(program.begin(), program.end(), [](const RowInstruction& i) {
    return i.step == RowStep::kRope || i.step == RowStep::kStoreHeads ||
           i.step == RowStep::kStoreCache || i.step == RowStep::kHeadNorm;
  });
}

/// Both halves of a head's pairs are in one warp, and heads begin where packs do.
bool heads_fit(const RowHeads& heads, std::int64_t width, int vector) {
  const auto within = [&](int columns) {
    return columns >= 0 && columns <= width && columns % heads.dim == 0;
  };
  return heads.dim >= 2 * vector && heads.dim <= 32 * vector &&
         (heads.dim & (heads.dim - 1)) == 0 && width % heads.dim == 0 && within(heads.rotated) &&
         within(heads.cached) && within(heads.queries);
}

constexpr int kMaxThreads = 1024;

}  // namespace

int RowProgramConfig::values_per_thread() const {
  const std::int64_t packs = width / vector;
  return static_cast<int>(ceil_div(packs, 32 * warps)) * vector;
}

std::string RowProgramConfig::name() const {
  std::string text =
      fmt::format("rows_{}_{}_v{}_w{}_r{}", element == DType::kBFloat16 ? "bf16" : "fp16", width,
                  vector, warps, rows);
  if (has_heads(program)) text += fmt::format("_d{}_{}_{}", heads.dim, heads.rotated, heads.cached);
  if (heads.queries > 0) text += fmt::format("_{}", heads.queries);
  for (const RowInstruction& instruction : program) {
    text += fmt::format("_{}", names_of(instruction.step).text);
    if (num_operands(instruction.step) > 0) text += std::to_string(instruction.operand);
    if (instruction.wide) text += 'w';
  }
  return text;
}

void RowProgramConfig::validate() const {
  STOF_CHECK(element == DType::kFloat16 || element == DType::kBFloat16, kUnsupported,
             "element type: the GPU row kernels take float16 and bfloat16, got {}",
             to_string(element));
  STOF_CHECK(width >= 8 && width % 8 == 0, kUnsupported,
             "row width: the GPU row kernels take multiples of 8, got {}; use the CPU", width);
  STOF_CHECK(vector == 4 || vector == 8, kUnsupported, "vector: expected 4 or 8 elements, got {}",
             vector);
  STOF_CHECK(warps >= 1 && rows >= 1 && threads() <= kMaxThreads && (warps == 1 || rows == 1),
             kUnsupported,
             "geometry: expected one row of up to 32 warps or several rows of one warp in a block "
             "of at most {} threads, got {} rows of {} warps",
             kMaxThreads, rows, warps);
  STOF_CHECK(width <= std::int64_t{kMaxValues} * 32 * warps, kUnsupported,
             "row width: {} warps hold at most {} columns in registers, got {}", warps,
             kMaxValues * 32 * warps, width);
  STOF_CHECK(!has_heads(program) || heads_fit(heads, width, vector), kUnsupported,
             "heads: expected a row of heads of {} to {} columns, a power of two, with whole heads "
             "rotated and cached, got {} columns of heads of {}, {} rotated, cached from {} on, {} "
             "of queries",
             2 * vector, 32 * vector, width, heads.dim, heads.rotated, heads.cached, heads.queries);
  for (const RowInstruction& instruction : program)
    STOF_CHECK(instruction.operand >= 0 &&
                   instruction.operand + num_operands(instruction.step) <= kMaxOperands,
               kUnsupported, "operand {}: a row program reads and writes at most {}",
               instruction.operand, kMaxOperands);
}

std::vector<RowProgramConfig> row_program_configs(DType element, std::int64_t width,
                                                  const std::vector<RowInstruction>& program,
                                                  std::int64_t rows, int num_sms,
                                                  const RowHeads& heads) {
  if ((element != DType::kFloat16 && element != DType::kBFloat16) || width < 8 || width % 8 != 0)
    return {};
  std::vector<RowProgramConfig> configs;
  const auto add = [&](int vector, int warps, int block_rows) {
    const RowProgramConfig config{element, width, program, vector, warps, block_rows, heads};
    if (has_heads(program) && !heads_fit(heads, width, vector)) return;
    if (width > std::int64_t{RowProgramConfig::kMaxValues} * 32 * warps) return;
    if (config.threads() > kMaxThreads) return;
    if (std::find(configs.begin(), configs.end(), config) == configs.end())
      configs.push_back(config);
  };
  const std::int64_t packs = width / 8;
  const auto warps_for = [&](std::int64_t packs_per_thread) {
    return static_cast<int>(std::min<std::int64_t>(32, ceil_div(packs, 32 * packs_per_thread)));
  };
  // Few rows: latency counts, so a thread takes one pack and a row many threads. Many: bandwidth
  // does, and a warp that keeps a row to itself waits for nobody. Without a norm nobody waits.
  const bool few = rows < std::int64_t{8} * num_sms;
  const std::int64_t most = has_norm(program) ? 4 : 2;
  if (few) {
    add(8, warps_for(1), 1);
    add(8, warps_for(2), 1);
    add(8, warps_for(most), 1);
    add(4, warps_for(1), 1);
    add(4, warps_for(most), warps_for(most) == 1 ? 4 : 1);
  } else {
    add(8, warps_for(most), warps_for(most) == 1 ? 4 : 1);
    add(8, warps_for(2), 1);
    add(8, warps_for(1), 1);
    add(8, warps_for(most), warps_for(most) == 1 ? 8 : 1);
    add(4, warps_for(2), 1);
  }
  // Rows too wide for the above.
  for (const int warps : {8, 16, 32})
    if (configs.empty()) add(8, warps, 1);
  return configs;
}

std::string emit_row_program(const RowProgramConfig& config) {
  config.validate();
  std::string instructions;
  for (const RowInstruction& instruction : config.program)
    instructions +=
        fmt::format("        {{RowStep::{}, {}, {}}},\n", names_of(instruction.step).code,
                    instruction.operand, instruction.wide);
  return fmt::format(
      R"(// {name}
#include "norm/row_program.cuh"
namespace stof {{
struct Config {{
  using Element = ptx::{element};
  static constexpr int kWidth = {width}, kVector = {vector}, kWarps = {warps}, kRows = {rows};
  static constexpr RowHeads kHeads = {{{dim}, {rotated}, {cached}, {queries}}};
  static constexpr int kCount = {count};
  static __device__ constexpr RowInstruction instruction(int i) {{
    constexpr RowInstruction all[] = {{
{instructions}    }};
    return all[i];
  }}
}};
}}
extern "C" __global__ void __launch_bounds__({threads})
row_program(const __grid_constant__ stof::RowProgramParams params) {{
  stof::run_row_program<stof::Config>(params);
}}
)",
      fmt::arg("name", config.name()),
      fmt::arg("element", config.element == DType::kBFloat16 ? "BFloat16" : "Float16"),
      fmt::arg("width", config.width), fmt::arg("vector", config.vector),
      fmt::arg("warps", config.warps), fmt::arg("rows", config.rows),
      fmt::arg("dim", config.heads.dim), fmt::arg("rotated", config.heads.rotated),
      fmt::arg("cached", config.heads.cached), fmt::arg("queries", config.heads.queries),
      fmt::arg("count", config.program.size()), fmt::arg("instructions", instructions),
      fmt::arg("threads", config.threads()));
}

}  // namespace stof::codegen
