#ifndef STOF_STOF_H
#define STOF_STOF_H
/* The C interface: masks, and attention under them on the CPU or an NVIDIA GPU. C99 and later.
 *
 * Calls. A function that can fail returns a stof_status, STOF_OK or what kind of thing went wrong;
 * stof_last_error() then says it in words. Results are written through the last pointer, and only
 * where the status is STOF_OK. No exception leaves a function. Required pointers that are null are
 * STOF_INVALID_ARGUMENT.
 *
 * Structs. Fill them with zeros, then set struct_size to sizeof the struct. Zero is the default of
 * every field that has one. A library newer than the caller's header gives the fields that the
 * caller does not know their defaults; an older one refuses the larger struct. Flags are 0 or 1;
 * reserved fields are 0. Anything else is refused, never ignored.
 *
 * Handles and texts. Each belongs to the caller and is released by its one function, which takes
 * null as well. What a handle was made from may be released before it.
 *
 * Threads. All functions may be called from several threads at once. Masks and plans are immutable:
 * any number of threads may use one, as long as none releases it; a plan for a GPU only on one
 * stream at a time. The last error is each thread's own. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- status -------------------------------------------------------------------------------- */

typedef int32_t stof_status;
enum {
  STOF_OK = 0,
  STOF_INVALID_ARGUMENT = 1, /* the caller passed something that can never work */
  STOF_UNSUPPORTED = 2,      /* legal, but no kernel here can honour it */
  STOF_NOT_FOUND = 3,        /* a file, GPU or driver that does not exist */
  STOF_CORRUPT = 4,          /* text or a file that is not what it claims to be */
  STOF_OUT_OF_MEMORY = 5,
  STOF_IO = 6,        /* the operating system refused a read or write */
  STOF_CUDA = 7,      /* a GPU driver call failed */
  STOF_JIT = 8,       /* run-time compilation failed */
  STOF_INTERNAL = 9,  /* a bug in stof */
  STOF_CANCELLED = 10 /* the caller asked for the call's end: stof_set_cancel_flag() */
};

/* "0.1.0" */
const char* stof_version(void);
/* "OK", "InvalidArgument", ...; "Unknown" for other numbers. */
const char* stof_status_name(stof_status status);
/* What the last failed call of this thread expected, got, and what to do; "" before the first.
 * Successful calls leave it. Valid until the thread's next failing call. */
const char* stof_last_error(void);
/* What long calls of this thread, such as planning, look at while they run: another thread, or a
 * signal handler, ends them by setting *flag to other than 0, and they return STOF_CANCELLED soon.
 * Compiling a kernel is not interrupted. Null, the default: nothing. The flag must outlive the
 * calls. */
void stof_set_cancel_flag(const int32_t* flag);
/* Frees a text that a function of this header returned. */
void stof_text_release(char* text);
/* Frees bytes that a function of this header returned. */
void stof_bytes_release(unsigned char* bytes);
/* JSON: the driver, GPUs, run-time compiler and matrix library of this machine, "" for what is
 * missing; "problem" says why no plan for a GPU can be made, or is "". */
stof_status stof_gpu_info(char** json);

/* --- tensors ------------------------------------------------------------------------------- */

enum { /* element types */
       STOF_FLOAT32 = 0,
       STOF_FLOAT16 = 1,
       STOF_BFLOAT16 = 2,
       STOF_FLOAT64 = 3,
       STOF_FLOAT8_E4M3 = 4,
       STOF_FLOAT8_E5M2 = 5,
       STOF_BOOL = 6, /* one byte, 0 or 1 */
       STOF_UINT8 = 7,
       STOF_INT8 = 8,
       STOF_UINT16 = 9,
       STOF_INT16 = 10,
       STOF_UINT32 = 11,
       STOF_INT32 = 12,
       STOF_UINT64 = 13,
       STOF_INT64 = 14
};

/* A view of memory that the caller owns. */
typedef struct stof_tensor {
  uint32_t struct_size;
  int32_t dtype;
  void* data;             /* only written to where the tensor is an output */
  int64_t rank;           /* 0 to 8 */
  const int64_t* shape;   /* rank extents */
  const int64_t* strides; /* rank strides in elements, 0 and negative ones too; null: row-major */
} stof_tensor;

/* --- masks --------------------------------------------------------------------------------- */

/* Which (query, key) pairs are visible: an immutable expression. */
typedef struct stof_mask stof_mask;

enum {                    /* where query 0 stands when there are more keys than queries, or fewer */
       STOF_TOP_LEFT = 0, /* at key 0 */
       STOF_BOTTOM_RIGHT = 1 /* so that the last query meets the last key */
};

/* Extents of the scores that a mask is applied to. */
typedef struct stof_score_shape {
  uint32_t struct_size;
  int32_t alignment;
  int64_t batch;
  int64_t num_heads;
  int64_t seq_q;
  int64_t seq_kv;
} stof_score_shape;

/* "causal & (window(256,0) | global(cols=64))": every primitive, operator and preset of
 * docs/masks.md. The files it names are read relative to base_dir; null or "" refuses them, for
 * text from strangers. */
stof_status stof_mask_parse(const char* text, const char* base_dir, stof_mask** mask);
/* Inverse of stof_mask_to_json(). */
stof_status stof_mask_from_json(const char* json, stof_mask** mask);
/* From booleans (true is visible) [seq_q, seq_kv] or [batch|1, num_heads|1, seq_q|1, seq_kv] in
 * host memory, any strides; copied as bits. */
stof_status stof_mask_dense(const stof_tensor* visible, stof_mask** mask);
/* Where a boolean expression in b, h, q, k and tables holds, such as "doc[q] == doc[k]"; see
 * docs/masks.md. names[i] is what the text calls tables[i]: bool, int32 or int64 in host memory,
 * any shape and strides; copied. Both may be null where there are no tables. */
stof_status stof_mask_predicate(const char* text, int64_t num_tables, const char* const* names,
                                const stof_tensor* const* tables, stof_mask** mask);
stof_status stof_mask_and(const stof_mask* a, const stof_mask* b, stof_mask** mask);
stof_status stof_mask_or(const stof_mask* a, const stof_mask* b, stof_mask** mask);
stof_status stof_mask_not(const stof_mask* a, stof_mask** mask);
/* Resolves what depends on the lengths and checks every array against the shape. Planning does it
 * by itself. */
stof_status stof_mask_bind(const stof_mask* mask, const stof_score_shape* shape, stof_mask** bound);
void stof_mask_release(stof_mask* mask);

/* *visible = 1 if query q of (batch, head) sees key k, else 0. A mask with parts that depend on the
 * lengths must be bound first. */
stof_status stof_mask_visible(const stof_mask* mask, int64_t batch, int64_t head, int64_t q,
                              int64_t k, int32_t* visible);
/* The keys below seq_kv that query q sees, ascending: their number, and the first `capacity` of
 * them. keys may be null where capacity is 0. Bound as for stof_mask_visible(). */
stof_status stof_mask_visible_keys(const stof_mask* mask, int64_t batch, int64_t head, int64_t q,
                                   int64_t seq_kv, int64_t capacity, int64_t* keys,
                                   int64_t* num_keys);
/* Writes all pairs as booleans into host memory [batch, num_heads, seq_q, seq_kv], any strides. */
stof_status stof_mask_to_dense(const stof_mask* mask, const stof_score_shape* shape,
                               const stof_tensor* visible);
/* Canonical text, read back by stof_mask_parse(). */
stof_status stof_mask_to_text(const stof_mask* mask, char** text);
/* Canonical JSON, read back by stof_mask_from_json(). */
stof_status stof_mask_to_json(const stof_mask* mask, char** json);
/* The canonical text with long lists shortened, for logs. */
stof_status stof_mask_describe(const stof_mask* mask, char** text);
/* 32 hexadecimal digits, equal for equal canonical forms in every process and on every machine, and
 * a closing NUL: 33 bytes. */
stof_status stof_mask_fingerprint(const stof_mask* mask, char hex[33]);
/* JSON: visible pairs, density, tiles full, partial and empty at 8 to 128 tokens, and more. */
stof_status stof_mask_stats(const stof_mask* mask, const stof_score_shape* shape, char** json);

typedef struct stof_draw_options {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t batch;
  int64_t head;
  int64_t max_cells; /* longest side in characters, 1 to 4096; 0: 64 */
} stof_draw_options;

/* A line per row of cells: '#' all visible, '+' some, '.' none. Where a side is longer than
 * max_cells, a cell is a square of tokens. Options may be null. */
stof_status stof_mask_draw_text(const stof_mask* mask, const stof_score_shape* shape,
                                const stof_draw_options* options, char** text);

enum { STOF_DRAW_PAIRS = 0, STOF_DRAW_TILES = 1 };

typedef struct stof_png_options {
  uint32_t struct_size;
  int32_t kind; /* pairs: dark where visible, averaged where there are more than pixels; tiles:
                 * the 64x64 tiles as full, partial (the denser, the darker) and empty */
  int64_t batch;
  int64_t head;
  /* The part to draw, half-open; an end of 0 is the end of the sequence. */
  int64_t q_begin, q_end, k_begin, k_end;
  int64_t max_pixels; /* longest side of the matrix without title and ticks, 64 to 4096; 0: 448 */
  const char* title;  /* ASCII; null: none */
} stof_png_options;

/* The bytes of a PNG file, queries downwards, keys to the right. Options may be null. */
stof_status stof_mask_draw_png(const stof_mask* mask, const stof_score_shape* shape,
                               const stof_png_options* options, unsigned char** png,
                               size_t* num_bytes);

/* --- attention ----------------------------------------------------------------------------- */

/* A table that a score modification may read as name[i, j, ...]. */
typedef struct stof_score_table {
  uint32_t struct_size;
  int32_t dtype;        /* STOF_BOOL, STOF_INT32, STOF_INT64, STOF_FLOAT32, STOF_FLOAT16 or
                         * STOF_BFLOAT16 */
  const char* name;     /* letters, digits and _, not a word of the language */
  int64_t rank;         /* 0 to 8; of rank 0, read as the bare name */
  const int64_t* shape; /* rank extents */
} stof_score_table;

/* Everything about a call except addresses and strides. An option here is part of the plan: tensors
 * that do not match are refused when it is run. */
typedef struct stof_attention_problem {
  uint32_t struct_size;
  int32_t dtype;        /* of q, k, v, out: STOF_FLOAT32, STOF_FLOAT16 or STOF_BFLOAT16 */
  int64_t batch;        /* at least 1 */
  int64_t num_heads_q;  /* at least 1 */
  int64_t num_heads_kv; /* divides num_heads_q */
  int64_t seq_q;
  int64_t seq_kv;
  int64_t head_dim_qk;
  int64_t head_dim_v;
  int32_t alignment; /* STOF_TOP_LEFT or STOF_BOTTOM_RIGHT */
  int32_t has_scale; /* 0: the scale is 1/sqrt(head_dim_qk), and the field below must be 0 */
  float scale;
  float softcap; /* > 0: logits = softcap * tanh(logits / softcap) */
  int32_t alibi; /* adds slope[h] * (k - q - offset), offset = seq_kv - seq_q if bottom right */
  int32_t bias;  /* adds a bias tensor; -inf hides, a finite value never does */
  int32_t sink;  /* a learned logit per head joins the softmax's denominator */
  int32_t return_lse; /* the log-sum-exp of each row's logits is wanted too */
  /* A learned bias per head for buckets of distances (T5); not together with bias. */
  int64_t position_buckets;       /* 0: none */
  int64_t position_max_distance;  /* with buckets: from here on distances share the last one */
  int32_t position_bidirectional; /* with buckets: half of them for keys after the query */
  int32_t reserved;
  /* A function of each score, "score + rel[q - k + 100]", in the language of docs/masks.md; applied
   * after all of the above and before the mask. -inf hides the key. Null: none. */
  const char* score_mod;
  int64_t num_score_tables;             /* at most 16 */
  const stof_score_table* score_tables; /* num_score_tables, all of one struct_size */
} stof_attention_problem;

enum { STOF_CPU = 0, STOF_GPU = 1 };

/* Where a plan will run. */
typedef struct stof_target {
  uint32_t struct_size;
  int32_t device;     /* STOF_CPU or STOF_GPU; the fields below are for STOF_GPU and else 0 */
  int32_t ordinal;    /* which GPU */
  int32_t alignment;  /* bytes that divide the addresses of q, k, v, out and all their strides but
                       * the last; below 16 slower kernels run; 0: 16 */
  const char* kernel; /* as stof_explain_attention() names it; null: what the cost model picks */
} stof_target;

/* A problem with its mask planned, on one device. */
typedef struct stof_plan stof_plan;

/* Target null: the CPU. STOF_NOT_FOUND where there is no such GPU. */
stof_status stof_plan_attention(const stof_attention_problem* problem, const stof_mask* mask,
                                const stof_target* target, stof_plan** plan);
/* The same of a boolean tensor (true is visible) [seq_q, seq_kv] or
 * [batch|1, num_heads_q|1, seq_q|1, seq_kv], any strides, in memory of the target's device; it may
 * change or go once the call returns. A GPU reads it on `stream` (see stof_run_options), which the
 * call waits for; for the CPU stream is null. */
stof_status stof_plan_dense_attention(const stof_attention_problem* problem,
                                      const stof_tensor* visible, const stof_target* target,
                                      void* stream, stof_plan** plan);
/* Packed sequences: sequence i owns rows cu_seqlens_q[i] .. cu_seqlens_q[i+1] of q and out,
 * likewise for k and v. Both arrays, in host memory, have num_sequences + 1 entries, ascending from
 * 0; they are copied. The problem's batch, seq_q and seq_kv are taken from them and must be 0. The
 * mask is applied to each sequence with its own lengths. */
stof_status stof_plan_varlen_attention(const stof_attention_problem* problem, const stof_mask* mask,
                                       int64_t num_sequences, const int64_t* cu_seqlens_q,
                                       const int64_t* cu_seqlens_kv, const stof_target* target,
                                       stof_plan** plan);
void stof_plan_release(stof_plan* plan);
/* One line for logs. */
stof_status stof_plan_describe(const stof_plan* plan, char** text);
/* CPU: what the plan holds. GPU: problem, kernel, key tiles, bytes on the device, predicted time.
 */
stof_status stof_plan_to_json(const stof_plan* plan, char** json);

/* The operands, null where the problem has none. Host memory for a CPU plan, device memory for a
 * GPU plan. q, k, v and out have a last stride of 1; out and lse overlap nothing. */
typedef struct stof_attention_tensors {
  uint32_t struct_size;
  uint32_t reserved;
  const stof_tensor* q;   /* [batch, num_heads_q, seq_q, head_dim_qk]; packed sequences:
                           * [rows, num_heads_q, head_dim_qk], likewise below */
  const stof_tensor* k;   /* [batch, num_heads_kv, seq_kv, head_dim_qk] */
  const stof_tensor* v;   /* [batch, num_heads_kv, seq_kv, head_dim_v] */
  const stof_tensor* out; /* [batch, num_heads_q, seq_q, head_dim_v]; every element is written */
  const stof_tensor* lse; /* float32 [batch, num_heads_q, seq_q], packed [num_heads_q, rows];
                           * natural log; contiguous on a GPU */
  const stof_tensor* alibi_slopes; /* float32 [num_heads_q] */
  const stof_tensor* bias;         /* float32, broadcastable to [batch, num_heads_q, seq_q, seq_kv];
                                    * not with packed sequences */
  const stof_tensor* sink;         /* float32 [num_heads_q] */
  const stof_tensor* position_bias; /* float32 [position_buckets, num_heads_q] */
  int64_t num_score_tables;         /* as of the problem */
  /* num_score_tables tensors in the order of the problem's tables, of their types and shapes and
   * any strides. Their values may change between runs. */
  const stof_tensor* const* score_tables;
} stof_attention_tensors;

typedef struct stof_run_options {
  uint32_t struct_size;
  int32_t num_threads; /* CPU only; 0: all cores that OpenMP gives */
  void* stream;        /* GPU only: a CUstream or cudaStream_t; null: the default stream */
} stof_run_options;

/* out = softmax(scale * q k^T, visible keys only) v. A row that sees nothing gives 0 and LSE -inf.
 * Options may be null. On the CPU it returns when done. On a GPU it returns once the work is on the
 * stream; it neither allocates nor synchronises, so that it can be captured in a CUDA graph. */
stof_status stof_plan_run(const stof_plan* plan, const stof_attention_tensors* tensors,
                          const stof_run_options* options);

/* A GPU that need not be here; a field of 0 is the H200's. */
typedef struct stof_gpu_model {
  uint32_t struct_size;
  int32_t compute_capability; /* major * 10 + minor; 0: 90 */
  int32_t num_sms;            /* 0: 132 */
  int32_t alignment;          /* as of stof_target; 0: 16 */
} stof_gpu_model;

/* JSON: {"problem", "mask", "candidates": [{"kernel", "predicted_us", "only_by_name"}],
 * "infeasible": [{"kernel", "reason"}]}, the cost model's pick first; only_by_name says why a
 * kernel runs only when named, or is "". Needs no GPU; model null: an H200. */
stof_status stof_explain_attention(const stof_attention_problem* problem, const stof_mask* mask,
                                   const stof_gpu_model* model, char** json);
stof_status stof_explain_varlen_attention(const stof_attention_problem* problem,
                                          const stof_mask* mask, int64_t num_sequences,
                                          const int64_t* cu_seqlens_q, const int64_t* cu_seqlens_kv,
                                          const stof_gpu_model* model, char** json);

/* --- block lists that a GPU makes ------------------------------------------------------------ */

/* Query block i is rows i * block_q and on, key block j keys j * block_kv and on. */
typedef struct stof_block_list_shape {
  uint32_t struct_size;
  int32_t per_kv_head; /* one list for all query heads of a key/value head */
  int64_t block_q;     /* multiples of 64; 0: 64 */
  int64_t block_kv;
  int64_t max_blocks;    /* most ids of a query block; 0: as many as there are key blocks */
  double expected_share; /* of key blocks in a list, up to 1: for the choice of kernel; 0: 0.25 */
  /* Null, or how many keys of each key block exist, its first ones; copied. */
  const int64_t* key_block_sizes;
  int64_t num_key_block_sizes;
} stof_block_list_shape;

/* An attention problem whose mask is lists of key blocks in device memory, new ones for each call
 * if need be. */
typedef struct stof_block_list_plan stof_block_list_plan;

/* The target must be a GPU. Until the first update nothing is visible. */
stof_status stof_plan_block_lists(const stof_attention_problem* problem,
                                  const stof_block_list_shape* shape, const stof_target* target,
                                  stof_block_list_plan** plan);
void stof_block_list_plan_release(stof_block_list_plan* plan);
/* As stof_plan_to_json() of a GPU plan; tiles are 0. */
stof_status stof_block_list_plan_to_json(const stof_block_list_plan* plan, char** json);
/* Takes the lists as they are when the stream comes to it. counts: int32
 * [batch|1, heads|1, query blocks], ids: int32 [batch|1, heads|1, query blocks, up to max_blocks],
 * of which the first `count` of a row are read, in any order; device memory, any strides. Heads are
 * query heads, or key/value heads with per_kv_head. Neither this nor running allocates, compiles or
 * synchronises: both can be captured in a CUDA graph. Wrong ids are left out, and remembered. */
stof_status stof_block_list_plan_update(const stof_block_list_plan* plan, const stof_tensor* counts,
                                        const stof_tensor* ids, void* stream);
/* As stof_plan_run() of a GPU plan, with the lists of the last update. */
stof_status stof_block_list_plan_run(const stof_block_list_plan* plan,
                                     const stof_attention_tensors* tensors, void* stream);
/* Waits for the stream; STOF_INVALID_ARGUMENT names the first wrong entry since the last check. */
stof_status stof_block_list_plan_check(const stof_block_list_plan* plan, void* stream);

/* --- decoding on a GPU ----------------------------------------------------------------------- */

/* A step of decoding against a key/value cache: the seq_q queries of a sequence are its newest
 * tokens, query i at key length - seq_q + i. */
typedef struct stof_decode_problem {
  uint32_t struct_size;
  int32_t dtype; /* of q, k, v, out: STOF_FLOAT16 or STOF_BFLOAT16 */
  int64_t batch;
  int64_t num_heads_q;
  int64_t num_heads_kv; /* divides num_heads_q */
  int64_t seq_q;        /* 1 to 16 */
  int64_t max_seq_kv;   /* most keys of a sequence, the new tokens' included */
  int64_t head_dim_qk;  /* 8 to 256, multiples of 8 */
  int64_t head_dim_v;
  int64_t page_size;    /* rows of a cache page, a multiple of 16 up to 256; 0: contiguous */
  int32_t lengths;      /* 1: a tensor gives each sequence's keys; 0: all have max_seq_kv */
  int32_t no_causal;    /* 1: keys after the query are seen as well, and window_right is 0 */
  int64_t window_right; /* keys seen after the query */
  int32_t has_window_left;
  int32_t has_scale;   /* as of stof_attention_problem */
  int64_t window_left; /* with has_window_left: keys seen before the query */
  int64_t sink_tokens; /* first keys that stay visible whatever the window */
  float scale;
  float softcap;
  int32_t alibi;
  int32_t sink;
  int32_t return_lse;
  int32_t reserved;
} stof_decode_problem;

/* Operands in device memory, null where the problem has none; aligned to 16 bytes, last stride 1.
 * Rows and pages past a sequence's length are not read. */
typedef struct stof_decode_tensors {
  uint32_t struct_size;
  uint32_t reserved;
  const stof_tensor* q;            /* [batch, num_heads_q, seq_q, head_dim_qk] */
  const stof_tensor* k;            /* [batch, num_heads_kv, max_seq_kv, head_dim_qk], paged:
                                    * [pages, num_heads_kv, page_size, head_dim_qk] */
  const stof_tensor* v;            /* likewise with head_dim_v */
  const stof_tensor* out;          /* [batch, num_heads_q, seq_q, head_dim_v] */
  const stof_tensor* lse;          /* float32 [batch, num_heads_q, seq_q], contiguous */
  const stof_tensor* lengths;      /* int32 [batch], read when the kernel runs */
  const stof_tensor* page_table;   /* int32 [batch, pages of a sequence] */
  const stof_tensor* alibi_slopes; /* float32 [num_heads_q] */
  const stof_tensor* sink;         /* float32 [num_heads_q] */
} stof_decode_tensors;

typedef struct stof_decode_plan stof_decode_plan;

/* The target must be a GPU; its alignment is 0 or 16 and its kernel null. With a mask, of the
 * scores [seq_q, max_seq_kv] aligned at the bottom right, there is no window and no_causal is 0;
 * mask null: causal, or as the window says. */
stof_status stof_plan_decode(const stof_decode_problem* problem, const stof_mask* mask,
                             const stof_target* target, stof_decode_plan** plan);
void stof_decode_plan_release(stof_decode_plan* plan);
/* JSON: {"problem", "kernel", "blocks", "workspace_bytes", "device_bytes", "build_ms"}. */
stof_status stof_decode_plan_to_json(const stof_decode_plan* plan, char** json);
/* Neither allocates, compiles nor synchronises: a captured call serves lengths, pages and caches
 * that change in place. A plan works on one stream at a time. */
stof_status stof_decode_plan_run(const stof_decode_plan* plan, const stof_decode_tensors* tensors,
                                 void* stream);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* STOF_STOF_H */
