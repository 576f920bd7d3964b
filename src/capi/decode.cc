// Decoding of stof/stof.h.

#include <nlohmann/json.hpp>

#include "capi/convert.h"
#include "capi/guard.h"
#include "capi/mask.h"
#include "capi/sized.h"
#include "capi/target.h"
#include "stof/cuda_decode.h"

struct stof_decode_plan {
  stof::cuda::DecodePlan plan;
};

namespace stof::capi {
namespace {

void check_absent(bool has, double value, const char* flag, const char* field) {
  STOF_CHECK(has || value == 0, kInvalidArgument,
             "problem.{}: expected 0 because {} is 0, got {}; set {} to 1", field, flag, value,
             flag);
}

cuda::DecodeProblem decode_problem_of(const stof_decode_problem* problem) {
  const stof_decode_problem given = read_sized(problem, "problem");
  STOF_CHECK(given.reserved == 0, kInvalidArgument, "problem.reserved: expected 0, got {}",
             given.reserved);
  cuda::DecodeProblem result;
  result.batch = given.batch;
  result.num_heads_q = given.num_heads_q;
  result.num_heads_kv = given.num_heads_kv;
  result.seq_q = given.seq_q;
  result.max_seq_kv = given.max_seq_kv;
  result.head_dim_qk = given.head_dim_qk;
  result.head_dim_v = given.head_dim_v;
  result.dtype = dtype_of(given.dtype, "problem");
  result.lengths = flag_of(given.lengths, "problem.lengths");
  result.page_size = given.page_size;
  const bool has_left = flag_of(given.has_window_left, "problem.has_window_left");
  check_absent(has_left, static_cast<double>(given.window_left), "has_window_left", "window_left");
  if (has_left) result.window_left = given.window_left;
  result.window_right = given.window_right;
  if (flag_of(given.no_causal, "problem.no_causal")) {
    STOF_CHECK(given.window_right == 0, kInvalidArgument,
               "problem.window_right: expected 0 because no_causal is 1, got {}",
               given.window_right);
    result.window_right.reset();
  }
  result.sink_tokens = given.sink_tokens;
  const bool has_scale = flag_of(given.has_scale, "problem.has_scale");
  check_absent(has_scale, given.scale, "has_scale", "scale");
  if (has_scale) result.scale = given.scale;
  result.softcap = given.softcap;
  result.alibi = flag_of(given.alibi, "problem.alibi");
  result.sink = flag_of(given.sink, "problem.sink");
  result.return_lse = flag_of(given.return_lse, "problem.return_lse");
  return result;
}

cuda::DecodeTensors decode_tensors_of(const stof_decode_tensors* tensors) {
  const stof_decode_tensors given = read_sized(tensors, "tensors");
  STOF_CHECK(given.reserved == 0, kInvalidArgument, "tensors.reserved: expected 0, got {}",
             given.reserved);
  return {optional_of(given.q, "q"),
          optional_of(given.k, "k"),
          optional_of(given.v, "v"),
          output_of(given.out, "out"),
          output_of(given.lse, "lse"),
          optional_of(given.lengths, "lengths"),
          optional_of(given.page_table, "page_table"),
          optional_of(given.alibi_slopes, "alibi_slopes"),
          optional_of(given.sink, "sink"),
          /*position_bias=*/{}};
}

}  // namespace
}  // namespace stof::capi

using namespace stof::capi;

extern "C" {

stof_status stof_plan_decode(const stof_decode_problem* problem, const stof_mask* mask,
                             const stof_target* target, stof_decode_plan** plan) {
  return guard([&] {
    stof_decode_plan*& out = required(plan, "plan");
    const stof::cuda::DecodeProblem described = decode_problem_of(problem);
    const GpuTarget gpu = gpu_target_of(target);
    STOF_CHECK(gpu.kernel.empty() && gpu.alignment == kDefaultAlignment, kUnsupported,
               "target: expected kernel null and alignment 0 or {} for decoding, got \"{}\" and {}",
               kDefaultAlignment, gpu.kernel, gpu.alignment);
    out = new stof_decode_plan{
        mask == nullptr ? stof::cuda::DecodePlan::build(described, gpu.ordinal)
                        : stof::cuda::DecodePlan::build(described, mask->mask, gpu.ordinal)};
  });
}

void stof_decode_plan_release(stof_decode_plan* plan) { delete plan; }

stof_status stof_decode_plan_to_json(const stof_decode_plan* plan, char** json) {
  return make_text(json, "json", [&] {
    const stof::cuda::DecodePlan& planned = required(plan, "plan").plan;
    const stof::cuda::DecodeFacts& facts = planned.facts();
    return nlohmann::ordered_json{{"problem", planned.problem().describe()},
                                  {"kernel", facts.kernel},
                                  {"blocks", facts.blocks},
                                  {"workspace_bytes", facts.workspace_bytes},
                                  {"device_bytes", facts.device_bytes},
                                  {"build_ms", facts.build_ms}}
        .dump();
  });
}

stof_status stof_decode_plan_run(const stof_decode_plan* plan, const stof_decode_tensors* tensors,
                                 void* stream) {
  return guard([&] { required(plan, "plan").plan.run(decode_tensors_of(tensors), stream); });
}

}  // extern "C"
