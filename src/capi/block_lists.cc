// Block lists of stof/stof.h.

#include "capi/convert.h"
#include "capi/guard.h"
#include "capi/sized.h"
#include "capi/target.h"
#include "stof/cuda_block_lists.h"

struct stof_block_list_plan {
  stof::cuda::BlockListPlan plan;
};

namespace stof::capi {
namespace {

cuda::BlockListShape list_shape_of(const stof_block_list_shape* shape) {
  const stof_block_list_shape given = read_sized(shape, "shape");
  cuda::BlockListShape result;
  result.per_kv_head = flag_of(given.per_kv_head, "shape.per_kv_head");
  if (given.block_q != 0) result.block_q = given.block_q;
  if (given.block_kv != 0) result.block_kv = given.block_kv;
  if (given.expected_share != 0) result.expected_share = given.expected_share;
  result.max_blocks = given.max_blocks;
  STOF_CHECK(given.num_key_block_sizes >= 0, kInvalidArgument,
             "shape.num_key_block_sizes: expected at least 0, got {}", given.num_key_block_sizes);
  if (given.num_key_block_sizes > 0)
    result.key_block_sizes.assign(&required(given.key_block_sizes, "shape.key_block_sizes"),
                                  given.key_block_sizes + given.num_key_block_sizes);
  else
    STOF_CHECK(given.key_block_sizes == nullptr, kInvalidArgument,
               "shape.num_key_block_sizes: expected the number of key_block_sizes, got 0");
  return result;
}

}  // namespace
}  // namespace stof::capi

using namespace stof::capi;

extern "C" {

stof_status stof_plan_block_lists(const stof_attention_problem* problem,
                                  const stof_block_list_shape* shape, const stof_target* target,
                                  stof_block_list_plan** plan) {
  return guard([&] {
    stof_block_list_plan*& out = required(plan, "plan");
    const stof::AttentionProblem described = problem_of(problem);
    const stof::cuda::BlockListShape lists = list_shape_of(shape);
    const GpuTarget gpu = gpu_target_of(target);
    out = new stof_block_list_plan{
        stof::cuda::BlockListPlan::build(described, lists, gpu.kernel, gpu.ordinal, gpu.alignment)};
  });
}

void stof_block_list_plan_release(stof_block_list_plan* plan) { delete plan; }

stof_status stof_block_list_plan_to_json(const stof_block_list_plan* plan, char** json) {
  return make_text(json, "json", [&] {
    const stof::cuda::BlockListPlan& planned = required(plan, "plan").plan;
    return facts_json(planned.problem().describe(), planned.facts());
  });
}

stof_status stof_block_list_plan_update(const stof_block_list_plan* plan, const stof_tensor* counts,
                                        const stof_tensor* ids, void* stream) {
  return guard([&] {
    required(plan, "plan")
        .plan.update({tensor_of(counts, "counts"), tensor_of(ids, "ids")}, stream);
  });
}

stof_status stof_block_list_plan_run(const stof_block_list_plan* plan,
                                     const stof_attention_tensors* tensors, void* stream) {
  return guard([&] { required(plan, "plan").plan.run(tensors_of(tensors), stream); });
}

stof_status stof_block_list_plan_check(const stof_block_list_plan* plan, void* stream) {
  return guard([&] { required(plan, "plan").plan.check(stream); });
}

}  // extern "C"
