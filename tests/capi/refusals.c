/* Every kind of mistake, and what its message says. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "check.h"
#include "operands.h"
#include "steps.h"

void wrong_masks_are_refused(void) {
  stof_mask* mask = NULL;
  CHECK_FAILS(stof_mask_parse("causal & windw(2, 0)", NULL, &mask), STOF_INVALID_ARGUMENT, "^");
  CHECK_FAILS(stof_mask_parse(NULL, NULL, &mask), STOF_INVALID_ARGUMENT,
              "text: expected a pointer");
  CHECK_FAILS(stof_mask_parse("causal", NULL, NULL), STOF_INVALID_ARGUMENT,
              "mask: expected a pointer, got null");
  CHECK_FAILS(stof_mask_parse("dense(\"a.npy\")", NULL, &mask), STOF_INVALID_ARGUMENT, "file");
  CHECK_FAILS(stof_mask_parse("dense(\"a.npy\")", "/nowhere", &mask), STOF_NOT_FOUND, "a.npy");
  CHECK_FAILS(stof_mask_from_json("{", &mask), STOF_CORRUPT, "JSON");
  CHECK_FAILS(stof_mask_and(NULL, NULL, &mask), STOF_INVALID_ARGUMENT, "a: expected a pointer");
  CHECK_FAILS(stof_mask_not(NULL, &mask), STOF_INVALID_ARGUMENT, "a: expected a pointer");
  CHECK(mask == NULL);

  char* text = NULL;
  int32_t seen = -1;
  mask = parse("per_head([causal, all])");
  CHECK_FAILS(stof_mask_visible(mask, 0, 2, 0, 0, &seen), STOF_INVALID_ARGUMENT,
              "head: expected 0 to 1, got 2");
  CHECK_FAILS(stof_mask_visible(mask, -1, 0, 0, 0, &seen), STOF_INVALID_ARGUMENT,
              "batch: expected");
  CHECK_FAILS(stof_mask_visible(mask, 0, 0, 0, 0, NULL), STOF_INVALID_ARGUMENT,
              "visible: expected");
  int64_t key = -1, count = -1;
  CHECK_FAILS(stof_mask_visible_keys(mask, 0, 2, 0, 4, 1, &key, &count), STOF_INVALID_ARGUMENT,
              "head: expected 0 to 1, got 2");
  CHECK_FAILS(stof_mask_visible_keys(mask, 0, 0, 0, -4, 1, &key, &count), STOF_INVALID_ARGUMENT,
              "seq_kv: expected 0 to");
  CHECK_FAILS(stof_mask_visible_keys(mask, 0, 0, 0, 4, -1, &key, &count), STOF_INVALID_ARGUMENT,
              "capacity: expected at least 0");
  CHECK_FAILS(stof_mask_visible_keys(mask, 0, 0, 0, 4, 1, NULL, &count), STOF_INVALID_ARGUMENT,
              "keys: expected a pointer");
  CHECK(key == -1 && count == -1);
  CHECK_FAILS(stof_mask_to_text(NULL, &text), STOF_INVALID_ARGUMENT, "mask: expected a pointer");
  CHECK_FAILS(stof_mask_to_json(mask, NULL), STOF_INVALID_ARGUMENT, "json: expected a pointer");
  CHECK_FAILS(stof_mask_fingerprint(mask, NULL), STOF_INVALID_ARGUMENT, "hex: expected a pointer");
  stof_score_shape shape = {0};
  CHECK_FAILS(stof_mask_stats(mask, &shape, &text), STOF_INVALID_ARGUMENT, "shape.struct_size");
  CHECK_FAILS(stof_mask_stats(mask, NULL, &text), STOF_INVALID_ARGUMENT,
              "shape: expected a pointer");
  shape.struct_size = sizeof shape;
  shape.batch = 1, shape.num_heads = 2, shape.seq_q = shape.seq_kv = 4;
  shape.alignment = 7;
  CHECK_FAILS(stof_mask_stats(mask, &shape, &text), STOF_INVALID_ARGUMENT, "shape.alignment");
  shape.alignment = STOF_TOP_LEFT;
  stof_draw_options options = {0};
  options.struct_size = sizeof options;
  options.head = 2;
  CHECK_FAILS(stof_mask_draw_text(mask, &shape, &options, &text), STOF_INVALID_ARGUMENT,
              "options.head: expected 0 to 1, got 2");
  options.head = 0, options.max_cells = -1;
  CHECK_FAILS(stof_mask_draw_text(mask, &shape, &options, &text), STOF_INVALID_ARGUMENT,
              "options.max_cells");
  CHECK_FAILS(stof_mask_bind(mask, &shape, NULL), STOF_INVALID_ARGUMENT,
              "bound: expected a pointer");
  shape.num_heads = 3;
  CHECK_FAILS(stof_mask_draw_text(mask, &shape, NULL, &text), STOF_INVALID_ARGUMENT, "per_head");
  stof_mask_release(mask);
  mask = parse("random_blocks(block=2, count=1, seed=1)");
  CHECK_FAILS(stof_mask_visible(mask, 0, 0, 0, 0, &seen), STOF_INVALID_ARGUMENT,
              "call stof_mask_bind() first");
  stof_mask_release(mask);
  CHECK(text == NULL && seen == -1);
}

void wrong_problems_are_refused(void) {
  stof_plan* plan = NULL;
  stof_mask* mask = parse("causal");
  const stof_attention_problem good = make_problem();
  stof_attention_problem p = good;
  CHECK_FAILS(stof_plan_attention(NULL, mask, NULL, &plan), STOF_INVALID_ARGUMENT,
              "problem: expected a pointer");
  CHECK_FAILS(stof_plan_attention(&p, NULL, NULL, &plan), STOF_INVALID_ARGUMENT,
              "mask: expected a pointer");
  CHECK_FAILS(stof_plan_attention(&p, mask, NULL, NULL), STOF_INVALID_ARGUMENT,
              "plan: expected a pointer");
#define CHECK_PROBLEM(field, value, words)                                                 \
  do {                                                                                     \
    p = good;                                                                              \
    p.field = (value);                                                                     \
    CHECK_FAILS(stof_plan_attention(&p, mask, NULL, &plan), STOF_INVALID_ARGUMENT, words); \
  } while (0)
  CHECK_PROBLEM(struct_size, 0, "problem.struct_size: expected");
  CHECK_PROBLEM(struct_size, offsetof(stof_attention_problem, score_mod) - 8,
                "problem.struct_size: expected");
  CHECK_PROBLEM(struct_size, sizeof p + 8, "update the library");
  CHECK_PROBLEM(dtype, 99, "problem.dtype: expected 0");
  CHECK_PROBLEM(dtype, STOF_INT8, "dtype: expected float32, float16 or bfloat16, got int8");
  CHECK_PROBLEM(batch, 0, "batch: expected 1 to");
  CHECK_PROBLEM(num_heads_kv, 3, "num_heads_kv: expected a divisor");
  CHECK_PROBLEM(alignment, 2, "problem.alignment: expected 0 (STOF_TOP_LEFT)");
  CHECK_PROBLEM(scale, 1, "set has_scale to 1");
  CHECK_PROBLEM(has_scale, 2, "problem.has_scale: expected 0 or 1, got 2");
  CHECK_PROBLEM(bias, -1, "problem.bias: expected 0 or 1, got -1");
  CHECK_PROBLEM(softcap, -1, "softcap");
  CHECK_PROBLEM(position_max_distance, 64, "problem.position_buckets");
  CHECK_PROBLEM(reserved, 1, "problem.reserved");
  CHECK_PROBLEM(score_mod, "score + rel[q]", "attention problem score_mod: ");
  CHECK_PROBLEM(score_mod, "", "problem.score_mod: expected an expression, or null for none");
  CHECK_PROBLEM(num_score_tables, 17, "problem.num_score_tables: expected 0 to 16, got 17");
  CHECK_PROBLEM(num_score_tables, 1, "problem.score_tables: expected an array");
  const int64_t extents[] = {4};
  stof_score_table table = {0};
  CHECK_PROBLEM(score_tables, &table, "problem.score_tables: expected null");
#define CHECK_TABLE(words)                                                               \
  do {                                                                                   \
    p = good;                                                                            \
    p.score_mod = "score";                                                               \
    p.num_score_tables = 1, p.score_tables = &table;                                     \
    CHECK_FAILS(stof_plan_attention(&p, mask, NULL, &plan), STOF_INVALID_ARGUMENT, words); \
  } while (0)
  CHECK_TABLE("problem.score_tables[0].struct_size: expected");
  table.struct_size = sizeof table;
  CHECK_TABLE("problem.score_tables[0].name: expected a name, got null");
  table.name = "rel";
  table.rank = 1;
  CHECK_TABLE("problem.score_tables[0].shape: expected 1 extents, got null");
  table.rank = 9, table.shape = extents;
  CHECK_TABLE("problem.score_tables[0].rank: expected 0 to 8, got 9");
  table.rank = 1, table.dtype = STOF_INT8;
  CHECK_TABLE("rel");
  table.dtype = STOF_FLOAT32, table.name = "score";
  CHECK_TABLE("score");

  stof_target target = {0};
  target.struct_size = sizeof target;
  target.alignment = 16;
  p = good;
  CHECK_FAILS(stof_plan_attention(&p, mask, &target, &plan), STOF_INVALID_ARGUMENT,
              "set device to STOF_GPU");
  target.device = 5;
  CHECK_FAILS(stof_plan_attention(&p, mask, &target, &plan), STOF_INVALID_ARGUMENT,
              "target.device: expected 0 (STOF_CPU) or 1 (STOF_GPU), got 5");
  /* No machine has this one: what is missing is the driver or the GPU. */
  target.device = STOF_GPU, target.ordinal = 4096;
  p.dtype = STOF_FLOAT16;
  p.head_dim_v = DIM_QK; /* a multiple of 8, as the GPU kernels take */
  CHECK_FAILS(stof_plan_attention(&p, mask, &target, &plan), STOF_NOT_FOUND, "planning");
  const int64_t cu_seqlens[] = {0, 4};
  p.batch = p.seq_q = p.seq_kv = 0;
  CHECK_FAILS(stof_plan_varlen_attention(&p, mask, 1, cu_seqlens, cu_seqlens, &target, &plan),
              STOF_NOT_FOUND, "planning");
  CHECK(plan == NULL);
  stof_mask_release(mask);
}

void wrong_tensors_are_refused(void) {
  stof_attention_problem problem = make_problem();
  stof_mask* mask = parse("causal");
  stof_plan* plan = NULL;
  CHECK_OK(stof_plan_attention(&problem, mask, NULL, &plan));
  operands o;
#define CHECK_TENSORS(change, words)                                              \
  do {                                                                            \
    make_operands(&o, &problem);                                                  \
    change;                                                                       \
    CHECK_FAILS(stof_plan_run(plan, &o.all, NULL), STOF_INVALID_ARGUMENT, words); \
  } while (0)
  poison();
  CHECK_TENSORS(o.all.struct_size = 4, "tensors.struct_size");
  CHECK_TENSORS(o.all.reserved = 4, "tensors.reserved");
  CHECK_TENSORS(o.all.k = NULL, "k: expected float32[2, 2, 9, 8], got no tensor");
  CHECK_TENSORS(o.all.lse = &o.lse, "return_lse");
  CHECK_TENSORS(o.v.struct_size = 1000, "v.struct_size: expected at most");
  CHECK_TENSORS(o.v.dtype = STOF_FLOAT16, "v: expected dtype float32, got float16");
  CHECK_TENSORS(o.v.dtype = -1, "v.dtype");
  CHECK_TENSORS(o.q.data = NULL, "q.data: expected an address");
  CHECK_TENSORS(o.q.rank = 9, "q.rank: expected 0 to 8, got 9");
  CHECK_TENSORS(o.q.rank = 3, "q: expected rank 4");
  CHECK_TENSORS(o.q.shape = NULL, "q.shape: expected 4 extents, got null");
  CHECK_TENSORS(o.q_shape[2] = -1, "q.shape: expected extents of at least 0");
  CHECK_TENSORS(o.q_shape[2] = 4, "q: expected shape");
  CHECK_TENSORS(o.q_strides[3] = 2, "q: expected a last stride of 1, got 2");
  CHECK_TENSORS(o.out.data = q, "out: expected memory apart from q");
  make_operands(&o, &problem);
  CHECK_FAILS(stof_plan_run(NULL, &o.all, NULL), STOF_INVALID_ARGUMENT, "plan: expected a pointer");
  CHECK_FAILS(stof_plan_run(plan, NULL, NULL), STOF_INVALID_ARGUMENT,
              "tensors: expected a pointer");
  stof_run_options options = {0};
  CHECK_FAILS(stof_plan_run(plan, &o.all, &options), STOF_INVALID_ARGUMENT, "options.struct_size");
  options.struct_size = sizeof options;
  options.num_threads = -1;
  CHECK_FAILS(stof_plan_run(plan, &o.all, &options), STOF_INVALID_ARGUMENT, "options.num_threads");
  options.num_threads = 0;
  options.stream = &o;
  CHECK_FAILS(stof_plan_run(plan, &o.all, &options), STOF_INVALID_ARGUMENT, "options.stream");
  for (int i = 0; i < OUT_SIZE; ++i) CHECK(isnan(out[i])); /* nothing ran */
  stof_plan_release(plan);
  stof_mask_release(mask);
}
