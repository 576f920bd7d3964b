#include "codegen/plan.h"

#include <fmt/core.h>

namespace stof::codegen {
namespace {

std::string emit(const char* entry, const char* header, int threads, int shared_bytes,
                 const char* host_threads, const char* host_shared) {
  return fmt::format(R"(#include "plan/{header}.cuh"
static_assert(stof::lists::{host_threads} == {threads} && stof::lists::{host_shared} == {shared} &&
              stof::lists::kMaxOrderGroup == {group}, "host and device disagree on plan kernels");
extern "C" __global__ void __launch_bounds__({threads})
{entry}(const __grid_constant__ stof::lists::ListParams params) {{
  stof::lists::{entry}(params);
}}
)",
                     fmt::arg("header", header), fmt::arg("entry", entry),
                     fmt::arg("threads", threads), fmt::arg("shared", shared_bytes),
                     fmt::arg("host_threads", host_threads), fmt::arg("host_shared", host_shared),
                     fmt::arg("group", kMaxOrderGroup));
}

std::string emit_dense(const char* entry) {
  return fmt::format(R"(#include "plan/dense_mask.cuh"
static_assert(stof::dense::kDenseThreads == {threads}, "host and device disagree on plan kernels");
extern "C" __global__ void __launch_bounds__({threads})
{entry}(const __grid_constant__ stof::dense::DenseParams params) {{
  stof::dense::{entry}(params);
}}
)",
                     fmt::arg("threads", kDenseThreads), fmt::arg("entry", entry));
}

}  // namespace

std::string emit_list_blocks() {
  return emit("list_blocks", "block_lists", kListThreads, kListSharedBytes, "kListThreads",
              "kListSharedBytes");
}

std::string emit_order_records() {
  return emit("order_records", "record_order", kOrderThreads, kOrderSharedBytes, "kOrderThreads",
              "kOrderSharedBytes");
}

std::string emit_classify_groups() { return emit_dense("classify_groups"); }
std::string emit_fill_payloads() { return emit_dense("fill_payloads"); }

}  // namespace stof::codegen
