#include "codegen/wgmma.h"

#include <fmt/core.h>

#include "core/check.h"

namespace stof::codegen {
namespace {

const char* ptx_type(DType element) {
  switch (element) {
    case DType::kBFloat16:
      return "bf16";
    case DType::kFloat16:
      return "f16";
    default:
      throw_error(ErrorCode::kUnsupported, "wgmma: expected bfloat16 or float16, got {}",
                  to_string(element));
  }
}

void check_width(int n) {
  STOF_CHECK(n >= 8 && n <= 256 && n % 8 == 0, kInternal,
             "wgmma: expected a width of 8..256 in steps of 8, got {}", n);
}

/// "%0, %1, ..., %{count-1}"
std::string operand_list(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += fmt::format("{}%{}", i == 0 ? "" : ", ", i);
  return text;
}

std::string accumulator_constraints(const char* name, int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += fmt::format("{}\"+f\"({}[{}])", i == 0 ? "" : ", ", name, i);
  return text;
}

}  // namespace

std::string emit_wgmma_scores(DType element, int n, bool query_in_registers) {
  check_width(n);
  const int registers = n / 2;
  // After the accumulators come Q (a descriptor or four registers), K and the predicate.
  const int query_operands = query_in_registers ? 4 : 1;
  const std::string query = query_in_registers
                                ? fmt::format("{{%{}, %{}, %{}, %{}}}", registers, registers + 1,
                                              registers + 2, registers + 3)
                                : fmt::format("%{}", registers);
  return fmt::format(
      R"(__device__ __forceinline__ void wgmma_scores(float (&scores)[{r}], {parameters}, u64 key, bool accumulate) {{
  asm volatile(
      "{{\n.reg .pred add;\nsetp.ne.b32 add, %{flag}, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{t}.{t} {{{list}}}, {q}, %{k}, add, 1, 1{transposes};\n}}\n"
      : {out} : {operands}, "l"(key), "r"(static_cast<i32>(accumulate)));
}}
)",
      fmt::arg("r", registers), fmt::arg("n", n), fmt::arg("t", ptx_type(element)),
      fmt::arg("list", operand_list(registers)), fmt::arg("q", query),
      fmt::arg("k", registers + query_operands), fmt::arg("flag", registers + query_operands + 1),
      fmt::arg("parameters", query_in_registers ? "u32 q0, u32 q1, u32 q2, u32 q3" : "u64 query"),
      fmt::arg("operands",
               query_in_registers ? R"("r"(q0), "r"(q1), "r"(q2), "r"(q3))" : R"("l"(query))"),
      fmt::arg("transposes", query_in_registers ? ", 0" : ", 0, 0"),
      fmt::arg("out", accumulator_constraints("scores", registers)));
}

std::string emit_wgmma_output(DType element, int n) {
  check_width(n);
  const int registers = n / 2;
  return fmt::format(
      R"(__device__ __forceinline__ void wgmma_output(float (&out)[{r}], u32 p0, u32 p1, u32 p2, u32 p3, u64 value, bool accumulate) {{
  asm volatile(
      "{{\n.reg .pred add;\nsetp.ne.b32 add, %{flag}, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{t}.{t} {{{list}}}, {{%{a}, %{b}, %{c}, %{d}}}, %{v}, add, 1, 1, 1;\n}}\n"
      : {out} : "r"(p0), "r"(p1), "r"(p2), "r"(p3), "l"(value), "r"(static_cast<i32>(accumulate)));
}}
)",
      fmt::arg("r", registers), fmt::arg("n", n), fmt::arg("t", ptx_type(element)),
      fmt::arg("list", operand_list(registers)), fmt::arg("a", registers),
      fmt::arg("b", registers + 1), fmt::arg("c", registers + 2), fmt::arg("d", registers + 3),
      fmt::arg("v", registers + 4), fmt::arg("flag", registers + 5),
      fmt::arg("out", accumulator_constraints("out", registers)));
}

std::string emit_wgmma_product(DType element, int n) {
  check_width(n);
  const int registers = n / 2;
  return fmt::format(
      R"(__device__ __forceinline__ void wgmma_product(float (&out)[{r}], u64 a, u64 b, bool accumulate) {{
  asm volatile(
      "{{\n.reg .pred add;\nsetp.ne.b32 add, %{flag}, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{t}.{t} {{{list}}}, %{a}, %{b}, add, 1, 1, 0, 0;\n}}\n"
      : {out} : "l"(a), "l"(b), "r"(static_cast<i32>(accumulate)));
}}
)",
      fmt::arg("r", registers), fmt::arg("n", n), fmt::arg("t", ptx_type(element)),
      fmt::arg("list", operand_list(registers)), fmt::arg("a", registers),
      fmt::arg("b", registers + 1), fmt::arg("flag", registers + 2),
      fmt::arg("out", accumulator_constraints("out", registers)));
}

}  // namespace stof::codegen
