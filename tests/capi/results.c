/* Results, compared with values computed here. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "check.h"
#include "operands.h"
#include "steps.h"

static int close_to(double got, double expected) {
  return isinf(expected) ? got == expected : fabs(got - expected) <= 2e-5 * (1 + fabs(expected));
}

/* Attention as its definition reads, in double. `sees` says what a (query, key) pair is. */
static void check_result(const stof_attention_problem* p, int (*sees)(int i, int j)) {
  const int offset = p->alignment == STOF_BOTTOM_RIGHT ? SEQ_KV - SEQ_Q : 0;
  const double scale = p->has_scale ? p->scale : 1 / sqrt((double)DIM_QK);
  int bad = 0;
  for (int row = 0; row < LSE_SIZE; ++row) {
    const int b = row / (HEADS_Q * SEQ_Q), h = row / SEQ_Q % HEADS_Q, i = row % SEQ_Q;
    const int kv = b * HEADS_KV + h / (HEADS_Q / HEADS_KV);
    double weights = 0, sums[DIM_V] = {0};
    for (int j = 0; j < SEQ_KV; ++j) {
      if (!sees(i, j)) continue;
      double logit = 0;
      for (int d = 0; d < DIM_QK; ++d)
        logit += (double)q[((b * SEQ_Q + i) * HEADS_Q + h) * DIM_QK + d] *
                 k[(kv * SEQ_KV + j) * DIM_QK + d];
      logit *= scale;
      if (p->softcap > 0) logit = p->softcap * tanh(logit / p->softcap);
      if (p->alibi) logit += (double)slopes[h] * (j - i - offset);
      if (p->bias) logit += bias[i * SEQ_KV + j];
      /* Two buckets for keys before the query: at its own position, and further away. */
      if (p->position_buckets > 0) logit += position_table[(j < i + offset) * HEADS_Q + h];
      if (p->num_score_tables > 0)
        logit = j == 1 ? -INFINITY : logit * slopes[h] + (b + i + offset - j) % 2;
      weights += exp(logit);
      for (int d = 0; d < DIM_V; ++d) sums[d] += exp(logit) * v[(kv * SEQ_KV + j) * DIM_V + d];
    }
    const int empty = weights == 0;
    if (p->sink && !empty) weights += exp((double)sink[h]);
    for (int d = 0; d < DIM_V; ++d)
      bad += !close_to(out[row * DIM_V + d], empty ? 0 : sums[d] / weights);
    if (p->return_lse) bad += !close_to(lse[row], empty ? -INFINITY : log(weights));
  }
  if (bad > 0) printf("%d values are wrong\n", bad);
  CHECK(bad == 0);
}

static int sees_window(int i, int j) { return j <= i && j >= i - 2 && i != 3; }
static int sees_causal_bottom_right(int i, int j) { return j <= i + SEQ_KV - SEQ_Q; }

static void run_and_check(const stof_attention_problem* problem, const char* text,
                          int (*sees)(int, int), int num_threads) {
  stof_mask* mask = parse(text);
  stof_plan* plan = NULL;
  CHECK_OK(stof_plan_attention(problem, mask, NULL, &plan));
  stof_mask_release(mask); /* the plan has what it needs */
  operands o;
  make_operands(&o, problem);
  stof_run_options options = {0};
  options.struct_size = sizeof options;
  options.num_threads = num_threads;
  poison();
  CHECK_OK(stof_plan_run(plan, &o.all, num_threads == 0 ? NULL : &options));
  check_result(problem, sees);
  stof_plan_release(plan);
}

/* The same plan of an array as of the expression that made it. */
static void run_dense_and_check(void) {
  stof_attention_problem problem = make_problem();
  unsigned char visible[SEQ_Q][SEQ_KV];
  for (int i = 0; i < SEQ_Q; ++i)
    for (int j = 0; j < SEQ_KV; ++j) visible[i][j] = (unsigned char)sees_window(i, j);
  const int64_t shape[] = {SEQ_Q, SEQ_KV};
  stof_tensor array = {0};
  array.struct_size = sizeof array;
  array.dtype = STOF_BOOL;
  array.data = visible;
  array.rank = 2;
  array.shape = shape;
  stof_plan* plan = NULL;
  CHECK_FAILS(stof_plan_dense_attention(&problem, &array, NULL, &problem, &plan),
              STOF_INVALID_ARGUMENT, "stream: expected null");
  array.dtype = STOF_FLOAT32;
  CHECK_FAILS(stof_plan_dense_attention(&problem, &array, NULL, NULL, &plan),
              STOF_INVALID_ARGUMENT, "float32");
  array.dtype = STOF_BOOL;
  CHECK(plan == NULL);
  CHECK_OK(stof_plan_dense_attention(&problem, &array, NULL, NULL, &plan));
  memset(visible, 0, sizeof visible); /* the plan has what it needs */
  operands o;
  make_operands(&o, &problem);
  poison();
  CHECK_OK(stof_plan_run(plan, &o.all, NULL));
  check_result(&problem, sees_window);
  stof_plan_release(plan);
}

void attention_is_right(void) {
  run_dense_and_check();

  stof_attention_problem problem = make_problem();
  /* Query 3 sees nothing. */
  const char* window = "window(2, 0) & ~(global(rows=4) & ~global(rows=3))";
  run_and_check(&problem, window, sees_window, 0);
  problem.return_lse = 1;
  problem.sink = 1;
  run_and_check(&problem, window, sees_window, 1);
  problem.alignment = STOF_BOTTOM_RIGHT;
  problem.alibi = 1;
  problem.bias = 1;
  problem.softcap = 1.5f;
  problem.has_scale = 1;
  problem.scale = 0.7f;
  run_and_check(&problem, "causal", sees_causal_bottom_right, 2);
  problem.bias = 0;
  problem.position_buckets = problem.position_max_distance = 2;
  run_and_check(&problem, "causal", sees_causal_bottom_right, 2);
}

/* The slopes as a table of a score modification; then of a caller who knows none of that. */
void score_modifications_are_right(void) {
  const int64_t heads[] = {HEADS_Q};
  stof_score_table table = {0};
  table.struct_size = sizeof table;
  table.dtype = STOF_FLOAT32;
  table.name = "gain";
  table.rank = 1;
  table.shape = heads;
  stof_attention_problem problem = make_problem();
  problem.return_lse = 1;
  problem.alignment = STOF_BOTTOM_RIGHT;
  problem.score_mod = "where(k == 1, -inf, score * gain[h] + (b + q - k) % 2)";
  problem.num_score_tables = 1;
  problem.score_tables = &table;
  run_and_check(&problem, "causal", sees_causal_bottom_right, 1);

  stof_mask* mask = parse("causal");
  stof_plan* plan = NULL;
  char* text = NULL;
  CHECK_OK(stof_plan_attention(&problem, mask, NULL, &plan));
  CHECK_OK(stof_plan_to_json(plan, &text));
  CHECK(contains(text, "\"score_mod\":") && contains(text, "\"gain\""));
  stof_text_release(text);
  operands o;
  make_operands(&o, &problem);
  stof_attention_tensors older = o.all;
  older.struct_size = offsetof(stof_attention_tensors, num_score_tables);
  CHECK_FAILS(stof_plan_run(plan, &older, NULL), STOF_INVALID_ARGUMENT,
              "score_tables: expected 1 as the plan's problem declares, got 0");
  stof_plan_release(plan);
  problem.struct_size = offsetof(stof_attention_problem, score_mod);
  CHECK_OK(stof_plan_attention(&problem, mask, NULL, &plan));
  CHECK_OK(stof_plan_run(plan, &older, NULL));
  stof_plan_release(plan);
  stof_mask_release(mask);
}

/* Two packed sequences of zero queries: each row is the mean of the values that it sees. */
void packed_sequences_are_right(void) {
  enum { ROWS = 5, DIM = 8 };
  static float zeros[ROWS * DIM], values[ROWS * DIM], result[ROWS * DIM];
  for (int i = 0; i < ROWS * DIM; ++i) values[i] = (float)(i / DIM), result[i] = NAN;
  const int64_t cu_seqlens[] = {0, 2, 5};
  stof_attention_problem problem = {0};
  problem.struct_size = sizeof problem;
  problem.num_heads_q = problem.num_heads_kv = 1;
  problem.head_dim_qk = problem.head_dim_v = DIM;
  stof_mask* mask = parse("causal");
  stof_plan* plan = NULL;
  CHECK_OK(stof_plan_varlen_attention(&problem, mask, 2, cu_seqlens, cu_seqlens, NULL, &plan));
  const int64_t shape[] = {ROWS, 1, DIM};
  const stof_tensor in = tensor_of(zeros, 3, shape), value = tensor_of(values, 3, shape);
  const stof_tensor to = tensor_of(result, 3, shape);
  stof_attention_tensors tensors = {0};
  tensors.struct_size = sizeof tensors;
  tensors.q = tensors.k = &in;
  tensors.v = &value;
  tensors.out = &to;
  CHECK_OK(stof_plan_run(plan, &tensors, NULL));
  const float expected[ROWS] = {0, 0.5f, 2, 2.5f, 3};
  for (int i = 0; i < ROWS * DIM; ++i) CHECK(fabsf(result[i] - expected[i / DIM]) < 1e-6f);

  char* text = NULL;
  CHECK_OK(stof_plan_describe(plan, &text));
  CHECK(contains(text, "sequences"));
  stof_text_release(text);
  stof_plan_release(plan);

  plan = NULL;
  CHECK_FAILS(stof_plan_varlen_attention(&problem, mask, 0, cu_seqlens, cu_seqlens, NULL, &plan),
              STOF_INVALID_ARGUMENT, "num_sequences: expected 1 to");
  CHECK_FAILS(stof_plan_varlen_attention(&problem, mask, 2, NULL, cu_seqlens, NULL, &plan),
              STOF_INVALID_ARGUMENT, "cu_seqlens_q: expected a pointer");
  const int64_t falling[] = {0, 3, 2};
  CHECK_FAILS(stof_plan_varlen_attention(&problem, mask, 2, cu_seqlens, falling, NULL, &plan),
              STOF_INVALID_ARGUMENT, "cu_seqlens_kv");
  problem.seq_q = 3;
  CHECK_FAILS(stof_plan_varlen_attention(&problem, mask, 2, cu_seqlens, cu_seqlens, NULL, &plan),
              STOF_INVALID_ARGUMENT, "the cumulative lengths give them");
  problem.seq_q = 0;
  problem.dtype = STOF_BFLOAT16;
  CHECK_OK(stof_explain_varlen_attention(&problem, mask, 2, cu_seqlens, cu_seqlens, NULL, &text));
  CHECK(contains(text, "\"kernel\"") && contains(text, "causal"));
  stof_text_release(text);
  CHECK(plan == NULL);
  stof_mask_release(mask);
}

void masks_are_right(void) {
  stof_mask *causal = parse("causal"), *window = parse("window(2, 0)");
  stof_mask *both = NULL, *either = NULL, *hidden = NULL, *again = NULL, *bound = NULL;
  CHECK_OK(stof_mask_and(causal, window, &both));
  CHECK_OK(stof_mask_or(causal, window, &either));
  CHECK_OK(stof_mask_not(both, &hidden));
  stof_mask_release(causal);
  stof_mask_release(window);
  for (int i = 0; i < 6; ++i)
    for (int j = 0; j < 6; ++j) {
      int32_t seen = -1;
      CHECK_OK(stof_mask_visible(both, 0, 0, i, j, &seen));
      CHECK(seen == (j <= i && j >= i - 2));
      CHECK_OK(stof_mask_visible(either, 0, 0, i, j, &seen));
      CHECK(seen == (j <= i));
      CHECK_OK(stof_mask_visible(hidden, 0, 0, i, j, &seen));
      CHECK(seen == !(j <= i && j >= i - 2));
    }

  char *json = NULL, *text = NULL, hex[33], other[33];
  CHECK_OK(stof_mask_to_json(both, &json));
  CHECK_OK(stof_mask_from_json(json, &again));
  CHECK_OK(stof_mask_fingerprint(both, hex));
  CHECK_OK(stof_mask_fingerprint(again, other));
  CHECK(strlen(hex) == 32 && strcmp(hex, other) == 0);
  CHECK_OK(stof_mask_fingerprint(hidden, other));
  CHECK(strcmp(hex, other) != 0);
  stof_text_release(json);
  stof_mask_release(again);
  CHECK_OK(stof_mask_to_text(both, &text));
  CHECK_OK(stof_mask_parse(text, NULL, &again));
  CHECK_OK(stof_mask_fingerprint(again, other));
  CHECK(strcmp(hex, other) == 0);
  stof_text_release(text);
  stof_mask_release(again);
  CHECK_OK(stof_mask_describe(both, &text));
  CHECK(contains(text, "window"));
  stof_text_release(text);

  stof_score_shape shape = {0};
  shape.struct_size = sizeof shape;
  shape.batch = shape.num_heads = 1;
  shape.seq_q = shape.seq_kv = 4;
  CHECK_OK(stof_mask_draw_text(both, &shape, NULL, &text));
  CHECK(strcmp(text, "#...\n##..\n###.\n.###\n") == 0);
  stof_text_release(text);
  stof_draw_options options = {0};
  options.struct_size = sizeof options;
  options.max_cells = 2;
  CHECK_OK(stof_mask_draw_text(both, &shape, &options, &text));
  CHECK(strcmp(text, "+.\n++\n") == 0);
  stof_text_release(text);
  CHECK_OK(stof_mask_stats(both, &shape, &text));
  CHECK(contains(text, "\"visible_pairs\":9"));
  stof_text_release(text);
  int64_t keys[2] = {-1, -1}, num_keys = -1;
  CHECK_OK(stof_mask_visible_keys(both, 0, 0, 3, 4, 2, keys, &num_keys));
  CHECK(num_keys == 3 && keys[0] == 1 && keys[1] == 2);
  CHECK_OK(stof_mask_visible_keys(both, 0, 0, 3, 2, 0, NULL, &num_keys));
  CHECK(num_keys == 1);

  /* A boolean array, and what waits for the lengths. */
  unsigned char visible[] = {1, 0, 0, 1, 1, 0};
  const int64_t extents[] = {2, 3};
  stof_tensor array = {0};
  array.struct_size = sizeof array;
  array.dtype = STOF_BOOL;
  array.data = visible;
  array.rank = 2;
  array.shape = extents;
  stof_mask* dense = NULL;
  CHECK_OK(stof_mask_dense(&array, &dense));
  int32_t seen = -1;
  CHECK_OK(stof_mask_visible(dense, 0, 0, 1, 1, &seen));
  CHECK(seen == 1);
  CHECK_FAILS(stof_mask_bind(dense, &shape, &bound), STOF_INVALID_ARGUMENT, "dense");
  CHECK(bound == NULL);
  shape.seq_q = 2, shape.seq_kv = 3;
  CHECK_OK(stof_mask_bind(dense, &shape, &bound));
  stof_mask_release(bound);
  array.dtype = STOF_FLOAT32;
  CHECK_FAILS(stof_mask_dense(&array, &bound), STOF_INVALID_ARGUMENT, "float32");
  stof_mask_release(dense);
  stof_mask_release(both);
  stof_mask_release(either);
  stof_mask_release(hidden);
}

void arrays_of_masks_are_right(void) {
  enum { SEQ = 67, STRIDE = 2 * SEQ + 1 }; /* more than one word of bits; every second element */
  static unsigned char got[2 * SEQ * STRIDE];
  memset(got, 9, sizeof got);
  stof_mask* mask = parse("per_head([causal, window(1, 3)])");
  stof_score_shape shape = {0};
  shape.struct_size = sizeof shape;
  shape.batch = 1, shape.num_heads = 2, shape.seq_q = shape.seq_kv = SEQ;
  const int64_t extents[] = {1, 2, SEQ, SEQ}, strides[] = {0, SEQ * STRIDE, STRIDE, 2};
  stof_tensor array = {0};
  array.struct_size = sizeof array;
  array.dtype = STOF_BOOL;
  array.data = got;
  array.rank = 4;
  array.shape = extents;
  array.strides = strides;
  CHECK_OK(stof_mask_to_dense(mask, &shape, &array));
  int wrong = 0;
  for (int h = 0; h < 2; ++h)
    for (int i = 0; i < SEQ; ++i)
      for (int j = 0; j < STRIDE; ++j) {
        const int key = j / 2, sees = h == 0 ? key <= i : key >= i - 1 && key <= i + 3;
        wrong += got[(h * SEQ + i) * STRIDE + j] != (j % 2 == 0 && key < SEQ ? sees : 9);
      }
  CHECK(wrong == 0);

  shape.num_heads = 1;
  CHECK_FAILS(stof_mask_to_dense(mask, &shape, &array), STOF_INVALID_ARGUMENT, "per_head");
  shape.num_heads = 2, shape.seq_q = 4;
  CHECK_FAILS(stof_mask_to_dense(mask, &shape, &array), STOF_INVALID_ARGUMENT,
              "visible.shape: expected [1, 2, 4, 67]");
  shape.seq_q = SEQ, array.dtype = STOF_UINT8;
  CHECK_FAILS(stof_mask_to_dense(mask, &shape, &array), STOF_INVALID_ARGUMENT,
              "visible.dtype: expected bool");
  stof_mask_release(mask);
}

static void check_png(const stof_mask* mask, const stof_score_shape* shape, int32_t kind) {
  static const unsigned char signature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  stof_png_options options = {0};
  options.struct_size = sizeof options;
  options.kind = kind;
  options.title = "causal";
  unsigned char* png = NULL;
  size_t size = 0;
  CHECK_OK(stof_mask_draw_png(mask, shape, kind == 0 ? NULL : &options, &png, &size));
  CHECK(size > 100 && memcmp(png, signature, sizeof signature) == 0);
  CHECK(size > 100 && memcmp(png + size - 8, "IEND", 4) == 0);
  stof_bytes_release(png);
  png = NULL, size = 7;
  options.kind = 2;
  CHECK_FAILS(stof_mask_draw_png(mask, shape, &options, &png, &size), STOF_INVALID_ARGUMENT,
              "options.kind");
  options.kind = kind, options.max_pixels = 3;
  CHECK_FAILS(stof_mask_draw_png(mask, shape, &options, &png, &size), STOF_INVALID_ARGUMENT,
              "max_pixels");
  CHECK(png == NULL && size == 7);
}

void pictures_are_png(void) {
  stof_mask* mask = parse("causal");
  stof_score_shape shape = {0};
  shape.struct_size = sizeof shape;
  shape.batch = shape.num_heads = 1, shape.seq_q = shape.seq_kv = 200;
  check_png(mask, &shape, STOF_DRAW_PAIRS);
  check_png(mask, &shape, STOF_DRAW_TILES);
  stof_mask_release(mask);
  stof_bytes_release(NULL);
}

void plans_say_what_they_are(void) {
  stof_attention_problem problem = make_problem();
  stof_mask* mask = parse("causal");
  stof_plan* plan = NULL;
  char* text = NULL;
  CHECK_OK(stof_gpu_info(&text));
  CHECK(contains(text, "\"problem\""));
  stof_text_release(text);
  text = NULL;
  CHECK_OK(stof_plan_attention(&problem, mask, NULL, &plan));
  CHECK_OK(stof_plan_describe(plan, &text));
  CHECK(contains(text, "float32"));
  stof_text_release(text);
  CHECK_OK(stof_plan_to_json(plan, &text));
  CHECK(contains(text, "{"));
  stof_text_release(text);
  text = NULL;
  CHECK_FAILS(stof_plan_describe(NULL, &text), STOF_INVALID_ARGUMENT, "plan: expected a pointer");
  CHECK_FAILS(stof_plan_to_json(plan, NULL), STOF_INVALID_ARGUMENT, "json: expected a pointer");
  stof_plan_release(plan);

  problem.dtype = STOF_BFLOAT16;
  problem.head_dim_v = DIM_QK; /* a multiple of 8, as the GPU kernels take */
  stof_gpu_model model = {0};
  model.struct_size = sizeof model;
  CHECK_OK(stof_explain_attention(&problem, mask, &model, &text));
  CHECK(contains(text, "\"candidates\":[{\"kernel\""));
  stof_text_release(text);
  text = NULL;
  model.compute_capability = 75;
  CHECK_OK(stof_explain_attention(&problem, mask, &model, &text));
  CHECK(contains(text, "\"candidates\":[]") && contains(text, "\"reason\""));
  stof_text_release(text);
  text = NULL;
  model.num_sms = -1;
  CHECK_FAILS(stof_explain_attention(&problem, mask, &model, &text), STOF_INVALID_ARGUMENT,
              "model.num_sms");
  CHECK_FAILS(stof_explain_attention(&problem, mask, NULL, NULL), STOF_INVALID_ARGUMENT,
              "json: expected a pointer");
  CHECK(text == NULL);
  stof_mask_release(mask);
}
