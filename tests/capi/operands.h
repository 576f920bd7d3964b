#ifndef STOF_TESTS_CAPI_OPERANDS_H
#define STOF_TESTS_CAPI_OPERANDS_H
/* A small problem and its operands. */

#include <stdint.h>

#include "stof/stof.h"

enum { BATCH = 2, HEADS_Q = 4, HEADS_KV = 2, SEQ_Q = 5, SEQ_KV = 9, DIM_QK = 8, DIM_V = 6 };
enum { Q_SIZE = BATCH * HEADS_Q * SEQ_Q * DIM_QK, OUT_SIZE = BATCH * HEADS_Q * SEQ_Q * DIM_V };
enum { K_SIZE = BATCH * HEADS_KV * SEQ_KV * DIM_QK, V_SIZE = BATCH * HEADS_KV * SEQ_KV * DIM_V };
enum { LSE_SIZE = BATCH * HEADS_Q * SEQ_Q };

extern float q[Q_SIZE], k[K_SIZE], v[V_SIZE], out[OUT_SIZE], lse[LSE_SIZE];
extern float slopes[HEADS_Q], bias[SEQ_Q * SEQ_KV], sink[HEADS_Q], position_table[2 * HEADS_Q];

/* The operands of one run; the members of `all` point at the tensors beside it. */
typedef struct {
  int64_t q_shape[4], k_shape[4], v_shape[4], out_shape[4], lse_shape[3], heads[1], bias_shape[2],
      table_shape[2];
  int64_t q_strides[4];
  stof_tensor q, k, v, out, lse, slopes, bias, sink, position_bias;
  const stof_tensor* score_tables[1];
  stof_attention_tensors all;
} operands;

void fill_inputs(void);
/* NaN in all of out and lse. */
void poison(void);
/* Whether the text is there and contains the words. */
int contains(const char* text, const char* words);
stof_mask* parse(const char* text);
/* Row-major float32. */
stof_tensor tensor_of(float* data, int64_t rank, const int64_t* shape);
stof_attention_problem make_problem(void);
void make_operands(operands* o, const stof_attention_problem* p);

#endif
