/* Plans that only a GPU runs: what is refused before one is looked for. */

#include <stdint.h>

#include "check.h"
#include "operands.h"
#include "steps.h"

/* No machine has this one: what is missing is the driver or the GPU. */
static stof_target missing_gpu(void) {
  stof_target target = {0};
  target.struct_size = sizeof target;
  target.device = STOF_GPU;
  target.ordinal = 4096;
  return target;
}

void wrong_block_lists_are_refused(void) {
  const stof_target target = missing_gpu();
  stof_attention_problem problem = make_problem();
  problem.dtype = STOF_BFLOAT16;
  problem.head_dim_v = DIM_QK;
  stof_block_list_shape good = {0};
  good.struct_size = sizeof good;
  stof_block_list_plan* plan = NULL;
  CHECK_FAILS(stof_plan_block_lists(&problem, &good, NULL, &plan), STOF_UNSUPPORTED,
              "set device to STOF_GPU");
  CHECK_FAILS(stof_plan_block_lists(&problem, &good, &target, &plan), STOF_NOT_FOUND, "");
  CHECK_FAILS(stof_plan_block_lists(&problem, NULL, &target, &plan), STOF_INVALID_ARGUMENT,
              "shape: expected a pointer");
  CHECK_FAILS(stof_plan_block_lists(&problem, &good, &target, NULL), STOF_INVALID_ARGUMENT,
              "plan: expected a pointer");
  stof_block_list_shape s;
#define CHECK_LIST_SHAPE(field, value, words)                                              \
  do {                                                                                     \
    s = good;                                                                              \
    s.field = (value);                                                                     \
    CHECK_FAILS(stof_plan_block_lists(&problem, &s, &target, &plan), STOF_INVALID_ARGUMENT, \
                words);                                                                    \
  } while (0)
  CHECK_LIST_SHAPE(struct_size, 0, "shape.struct_size");
  CHECK_LIST_SHAPE(per_kv_head, 2, "shape.per_kv_head: expected 0 or 1, got 2");
  CHECK_LIST_SHAPE(expected_share, 1.5, "expected_share");
  CHECK_LIST_SHAPE(num_key_block_sizes, 1, "shape.key_block_sizes: expected a pointer");
  CHECK_LIST_SHAPE(num_key_block_sizes, -1, "shape.num_key_block_sizes");
  const int64_t sizes[] = {5};
  CHECK_LIST_SHAPE(key_block_sizes, sizes, "shape.num_key_block_sizes");

  s = good;
  s.block_q = 63;
  CHECK_FAILS(stof_plan_block_lists(&problem, &s, &target, &plan), STOF_UNSUPPORTED,
              "block_q: the GPU kernels take multiples of 64, got 63");

  stof_tensor tensor = {0};
  char* json = NULL;
  CHECK_FAILS(stof_block_list_plan_update(NULL, &tensor, &tensor, NULL), STOF_INVALID_ARGUMENT,
              "plan: expected a pointer");
  CHECK_FAILS(stof_block_list_plan_run(NULL, NULL, NULL), STOF_INVALID_ARGUMENT, "plan: expected");
  CHECK_FAILS(stof_block_list_plan_check(NULL, NULL), STOF_INVALID_ARGUMENT, "plan: expected");
  CHECK_FAILS(stof_block_list_plan_to_json(NULL, &json), STOF_INVALID_ARGUMENT, "plan: expected");
  stof_block_list_plan_release(NULL);
  CHECK(plan == NULL && json == NULL);
}

void wrong_decoding_is_refused(void) {
  stof_target target = missing_gpu();
  stof_decode_problem good = {0};
  good.struct_size = sizeof good;
  good.dtype = STOF_FLOAT16;
  good.batch = good.num_heads_kv = good.seq_q = 1;
  good.num_heads_q = 4;
  good.max_seq_kv = 100;
  good.head_dim_qk = good.head_dim_v = 64;
  stof_decode_plan* plan = NULL;
  CHECK_FAILS(stof_plan_decode(&good, NULL, NULL, &plan), STOF_UNSUPPORTED,
              "set device to STOF_GPU");
  CHECK_FAILS(stof_plan_decode(&good, NULL, &target, &plan), STOF_NOT_FOUND, "");
  CHECK_FAILS(stof_plan_decode(NULL, NULL, &target, &plan), STOF_INVALID_ARGUMENT,
              "problem: expected a pointer");
  stof_decode_problem p;
#define CHECK_DECODE(field, value, words)                                               \
  do {                                                                                  \
    p = good;                                                                           \
    p.field = (value);                                                                  \
    CHECK_FAILS(stof_plan_decode(&p, NULL, &target, &plan), STOF_INVALID_ARGUMENT, words); \
  } while (0)
  CHECK_DECODE(struct_size, 8, "problem.struct_size");
  CHECK_DECODE(reserved, 1, "problem.reserved");
  CHECK_DECODE(dtype, 77, "problem.dtype");
  CHECK_DECODE(num_heads_kv, 3, "num_heads_kv");
  CHECK_DECODE(window_left, 5, "set has_window_left to 1");
  CHECK_DECODE(has_window_left, 3, "problem.has_window_left");
  CHECK_DECODE(no_causal, 3, "problem.no_causal");
  CHECK_DECODE(scale, 0.5f, "set has_scale to 1");
  p = good;
  p.no_causal = 1, p.window_right = 2;
  CHECK_FAILS(stof_plan_decode(&p, NULL, &target, &plan), STOF_INVALID_ARGUMENT,
              "problem.window_right: expected 0 because no_causal is 1");
  target.alignment = 8;
  CHECK_FAILS(stof_plan_decode(&good, NULL, &target, &plan), STOF_UNSUPPORTED,
              "alignment 0 or 16");

  char* json = NULL;
  CHECK_FAILS(stof_decode_plan_run(NULL, NULL, NULL), STOF_INVALID_ARGUMENT, "plan: expected");
  CHECK_FAILS(stof_decode_plan_to_json(NULL, &json), STOF_INVALID_ARGUMENT, "plan: expected");
  stof_decode_plan_release(NULL);
  CHECK(plan == NULL && json == NULL);
}
