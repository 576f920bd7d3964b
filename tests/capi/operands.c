#include "operands.h"

#include <math.h>
#include <string.h>

#include "check.h"

float q[Q_SIZE], k[K_SIZE], v[V_SIZE], out[OUT_SIZE], lse[LSE_SIZE];
float slopes[HEADS_Q], bias[SEQ_Q * SEQ_KV], sink[HEADS_Q], position_table[2 * HEADS_Q];

static uint64_t state = 1;

static float random_value(void) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (float)((double)(state >> 40) / 8388608.0 - 1.0);
}

static void fill(float* values, int count) {
  for (int i = 0; i < count; ++i) values[i] = random_value();
}

int contains(const char* text, const char* words) {
  return text != NULL && strstr(text, words) != NULL;
}

stof_mask* parse(const char* text) {
  stof_mask* mask = NULL;
  CHECK_OK(stof_mask_parse(text, NULL, &mask));
  return mask;
}

stof_tensor tensor_of(float* data, int64_t rank, const int64_t* shape) {
  stof_tensor tensor = {0};
  tensor.struct_size = sizeof tensor;
  tensor.dtype = STOF_FLOAT32;
  tensor.data = data;
  tensor.rank = rank;
  tensor.shape = shape;
  return tensor;
}

stof_attention_problem make_problem(void) {
  stof_attention_problem problem = {0};
  problem.struct_size = sizeof problem;
  problem.batch = BATCH;
  problem.num_heads_q = HEADS_Q;
  problem.num_heads_kv = HEADS_KV;
  problem.seq_q = SEQ_Q;
  problem.seq_kv = SEQ_KV;
  problem.head_dim_qk = DIM_QK;
  problem.head_dim_v = DIM_V;
  return problem;
}

static void set_shape(int64_t* to, int64_t a, int64_t b, int64_t c, int64_t d) {
  to[0] = a, to[1] = b, to[2] = c, to[3] = d;
}

void make_operands(operands* o, const stof_attention_problem* p) {
  memset(o, 0, sizeof *o);
  set_shape(o->q_shape, BATCH, HEADS_Q, SEQ_Q, DIM_QK);
  set_shape(o->k_shape, BATCH, HEADS_KV, SEQ_KV, DIM_QK);
  set_shape(o->v_shape, BATCH, HEADS_KV, SEQ_KV, DIM_V);
  set_shape(o->out_shape, BATCH, HEADS_Q, SEQ_Q, DIM_V);
  /* Queries as most frameworks have them before a transpose: [batch, seq_q, heads, dim]. */
  set_shape(o->q_strides, HEADS_Q * SEQ_Q * DIM_QK, DIM_QK, HEADS_Q * DIM_QK, 1);
  o->lse_shape[0] = BATCH, o->lse_shape[1] = HEADS_Q, o->lse_shape[2] = SEQ_Q;
  o->heads[0] = HEADS_Q;
  o->bias_shape[0] = SEQ_Q, o->bias_shape[1] = SEQ_KV;
  o->q = tensor_of(q, 4, o->q_shape);
  o->q.strides = o->q_strides;
  o->k = tensor_of(k, 4, o->k_shape);
  o->v = tensor_of(v, 4, o->v_shape);
  o->out = tensor_of(out, 4, o->out_shape);
  o->lse = tensor_of(lse, 3, o->lse_shape);
  o->slopes = tensor_of(slopes, 1, o->heads);
  o->bias = tensor_of(bias, 2, o->bias_shape);
  o->sink = tensor_of(sink, 1, o->heads);
  o->table_shape[0] = 2, o->table_shape[1] = HEADS_Q;
  o->position_bias = tensor_of(position_table, 2, o->table_shape);
  o->all.struct_size = sizeof o->all;
  o->all.q = &o->q;
  o->all.k = &o->k;
  o->all.v = &o->v;
  o->all.out = &o->out;
  if (p->return_lse) o->all.lse = &o->lse;
  if (p->alibi) o->all.alibi_slopes = &o->slopes;
  if (p->bias) o->all.bias = &o->bias;
  if (p->sink) o->all.sink = &o->sink;
  o->score_tables[0] = &o->slopes;
  if (p->num_score_tables > 0) o->all.num_score_tables = 1, o->all.score_tables = o->score_tables;
  if (p->position_buckets > 0) o->all.position_bias = &o->position_bias;
}

void poison(void) {
  for (int i = 0; i < OUT_SIZE; ++i) out[i] = NAN;
  for (int i = 0; i < LSE_SIZE; ++i) lse[i] = NAN;
}

void fill_inputs(void) {
  fill(q, Q_SIZE), fill(k, K_SIZE), fill(v, V_SIZE);
  fill(slopes, HEADS_Q), fill(bias, SEQ_Q * SEQ_KV), fill(sink, HEADS_Q);
  fill(position_table, 2 * HEADS_Q);
}
