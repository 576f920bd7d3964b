#ifndef STOF_MODELS_H
#define STOF_MODELS_H
/* The C interface: models from their folders and files. C99 and later; the rules of stof.h hold.
 *
 * Threads. A model is immutable: any number of threads may call it at once, as long as none
 * releases it. A callback runs on the thread that made the call.
 *
 * Ending a call. Between the passes of a model (a token of a text that is generated, a chunk of its
 * prompt, a batch) calls look at the thread's stof_set_cancel_flag(), and at what a callback
 * returned; they then return STOF_CANCELLED.
 *
 * Texts are UTF-8: num_bytes[i] bytes at texts[i], or up to a NUL where num_bytes is null. */

#include "stof/stof.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stof_model stof_model;

enum {                   /* what a model is, and the functions below that take it */
       STOF_ENCODER = 0, /* embeds texts */
       STOF_GENERATOR = 1,
       STOF_IMAGE_CLASSIFIER = 2,
       STOF_SEQ2SEQ_GENERATOR = 3 /* turns texts into texts */
};

enum {
  STOF_AUTO = 2
}; /* a device beside STOF_CPU and STOF_GPU: a GPU where all that a model needs
    * is there, else the CPU */
enum { STOF_TUNING_CACHED = 0, STOF_TUNING_OFF = 1 };

typedef struct stof_load_options {
  uint32_t struct_size;
  int32_t device;    /* STOF_CPU, STOF_GPU or STOF_AUTO */
  int32_t has_dtype; /* 0: float32 on the CPU; on a GPU float16, of generators bfloat16 */
  int32_t dtype;     /* what is computed in; 0 where has_dtype is */
  int32_t tuning;    /* whether what `stof tune` found for the model on this machine is used */
  int32_t reserved;
} stof_load_options;

/* Of a Hugging Face folder (config.json, model.safetensors or a sharded index, the tokenizer's or
 * image processor's files) or a .gguf file; docs/models.md says what is read. Options may be null.
 * Fails naming file, field or tensor, what was expected and got. */
stof_status stof_model_load(const char* path, const stof_load_options* options, stof_model** model);
/* Also ends what the model keeps on a GPU. */
void stof_model_release(stof_model* model);
stof_status stof_model_kind(const stof_model* model, int32_t* kind);
/* JSON: {"kind", "description", "place" ("CPU, float32"), "place_note" (why STOF_AUTO did not take
 * the GPU that is there, or ""), "num_layers", "num_heads"} and, of an encoder, "hidden_size" and
 * "max_tokens", of a generator "vocab_size" and "max_positions", of an image classifier
 * "image_height", "image_width" and "labels", by id, of a seq2seq generator "num_decoder_layers"
 * ("num_layers" are the encoder's), "hidden_size", "vocab_size" and "tasks", a list of what
 * stof_model_task() gives. */
stof_status stof_model_to_json(const stof_model* model, char** json);

/* JSON of the tokens of a model that reads texts: {"ids", "tokens" (as the vocabulary spells them),
 * "truncated"}, with what the tokenizer puts around every text. num_bytes < 0: up to a NUL.
 * max_tokens cuts an encoder's (0: the model's own limit) and is 0 for generators, whose texts are
 * not cut. */
stof_status stof_model_tokenize(const stof_model* model, const char* text, int64_t num_bytes,
                                int64_t max_tokens, char** json);

/* --- encoders ------------------------------------------------------------------------------ */

enum { STOF_NORMALIZE_AS_STATED = 0, STOF_NORMALIZE = 1, STOF_NORMALIZE_NOT = 2 };

typedef struct stof_encode_options {
  uint32_t struct_size;
  int32_t num_threads;   /* CPU; 0: all cores that OpenMP gives */
  const stof_mask* mask; /* joined by & with the model's own; null: none. Lengths are those of each
                          * text in tokens */
  const char* mask_set;  /* in place of mask, JSON of masks that layers and heads have of their own
                          * (docs/masks.md), which name no files; null: none */
  int64_t max_tokens;    /* longer texts are cut; 0: the model's own limit */
  int64_t batch;         /* texts of a pass, packed without padding; 0: 32 */
  int32_t normalize;     /* whether embeddings get the length 1; 0: as the model's files say */
  int32_t reserved;
  /* Null, or called after each batch with `context`, the texts done and those in all; other than 0
   * ends the call. */
  int32_t (*on_progress)(void* context, int64_t done, int64_t total);
  void* context;
} stof_encode_options;

/* Writes a vector a text, pooled as the model's files say: float32 [num_texts, hidden_size] in host
 * memory, row-major. Options may be null, here and below. */
stof_status stof_model_embed(const stof_model* model, int64_t num_texts, const char* const* texts,
                             const int64_t* num_bytes, const stof_encode_options* options,
                             const stof_tensor* embeddings);
/* Writes the last hidden state of every token, those of all texts one below the other: float32
 * [tokens of all texts, hidden_size]; stof_model_tokenize() says how many a text has. */
stof_status stof_model_encode_tokens(const stof_model* model, int64_t num_texts,
                                     const char* const* texts, const int64_t* num_bytes,
                                     const stof_encode_options* options, const stof_tensor* states);
/* What may stand for the mask tokens ("[MASK]", "<mask>") of each text, the `count` likeliest (0:
 * 5). JSON, a list a text: [{"position" (among the tokens), "candidates": [{"id", "token" (as the
 * vocabulary spells it), "text" (as it stands in a text), "probability"}]}]. A text without a mask
 * token is refused. */
stof_status stof_model_fill_mask(const stof_model* model, int64_t num_texts,
                                 const char* const* texts, const int64_t* num_bytes, int64_t count,
                                 const stof_encode_options* options, char** json);

/* --- generators ---------------------------------------------------------------------------- */

typedef struct stof_generate_options {
  uint32_t struct_size;
  int32_t num_threads;   /* CPU; 0: all cores that OpenMP gives */
  const stof_mask* mask; /* joined by & with the model's own; null: none. In positions of prompt and
                          * answer together */
  const char* mask_set;  /* as of stof_encode_options */
  int64_t max_tokens;    /* at most so many are written; 0: 256 */
  double temperature;    /* 0: the likeliest token, always */
  int64_t top_k;         /* only the k likeliest tokens; 0: all */
  double top_p;          /* only the likeliest that make up this probability; 0: all */
  uint64_t seed;         /* of the random choices */
  int64_t num_stop;      /* a text ends before the first of these */
  const char* const* stop;
  int64_t prefill_chunk; /* tokens of a generator's prompt that are read at once; 0: 512 */
  /* Null, or called with `context` and each piece of the text as soon as it is certain; together
   * they are the whole. Other than 0 ends the call. Of one prompt only. */
  int32_t (*on_text)(void* context, const char* piece, int64_t num_bytes);
  void* context;
} stof_generate_options;

/* Continues each prompt, several side by side. JSON, a text a prompt: [{"text" (without the prompt,
 * special tokens and the stop string), "ids" (all that were chosen), "stopped_by": "end token",
 * "stop string", "token limit" or "no further positions", "prompt_tokens", "prefill_seconds",
 * "decode_seconds" (of all together)}]. */
stof_status stof_model_generate(const stof_model* model, int64_t num_prompts,
                                const char* const* prompts, const int64_t* num_bytes,
                                const stof_generate_options* options, char** json);
/* What the model expects after each of the tokens: float32 [num_ids, vocab_size] in host memory,
 * row-major. Of the options mask, prefill_chunk and num_threads play a part, others are their
 * default. */
stof_status stof_model_logits(const stof_model* model, int64_t num_ids, const int32_t* ids,
                              const stof_generate_options* options, const stof_tensor* logits);
/* The text of tokens, special ones left out, with a NUL behind its bytes; what is not UTF-8 becomes
 * U+FFFD. num_bytes may be null. */
stof_status stof_model_detokenize(const stof_model* model, int64_t num_ids, const int32_t* ids,
                                  char** text, int64_t* num_bytes);

/* --- seq2seq generators -------------------------------------------------------------------- */

/* T5 and its kin. stof_model_generate() turns each of its prompts, texts behind a task's prefix,
 * into another; masks are over the tokens of the text that is read, and prefill_chunk is 0.
 * stof_model_detokenize() takes them too. */

/* What stands in front of a text that is to be translated from `source` to `target` (English names
 * of languages, or codes: "en", "de", "fr", "ro" and those that the model's tasks name), or, both
 * null, to be summarised; both are UTF-8 and read before the call returns. JSON: {"name", "prefix",
 * "max_tokens" (at most so many are written, as the model's files say; 0: they don't)}. Fails where
 * the model has no such task, and with one null. */
stof_status stof_model_task(const stof_model* model, const char* source, const char* target,
                            char** json);
/* The encoder's last hidden states: float32 [num_ids, hidden_size] in host memory, row-major. Of
 * the options masks and num_threads play a part. Fails for no ids, an id outside of the vocabulary,
 * more of them than the model takes, and states of another shape. */
stof_status stof_model_encode_ids(const stof_model* model, int64_t num_ids, const int32_t* ids,
                                  const stof_generate_options* options, const stof_tensor* states);
/* Logits of the decoder's first token for the text `ids`, and of the one after each of `written`:
 * float32 [num_written + 1, vocab_size] in host memory, row-major. Options and errors as above. */
stof_status stof_model_seq2seq_logits(const stof_model* model, int64_t num_ids, const int32_t* ids,
                                      int64_t num_written, const int32_t* written,
                                      const stof_generate_options* options,
                                      const stof_tensor* logits);

/* --- conversations of generators ----------------------------------------------------------- */

/* A turn of a conversation. */
typedef struct stof_chat_message {
  uint32_t struct_size;
  uint32_t reserved;
  const char* role; /* "system", "user" or "assistant" */
  const char* content;
} stof_chat_message;

/* The prompt by which an instruct model answers the last of the messages, all of one struct_size.
 */
stof_status stof_model_chat_prompt(const stof_model* model, int64_t num_messages,
                                   const stof_chat_message* messages, char** prompt);

/* --- image classifiers --------------------------------------------------------------------- */

typedef struct stof_classify_options {
  uint32_t struct_size;
  int32_t num_threads;   /* 0: all cores that OpenMP gives */
  const stof_mask* mask; /* null: none. Token 0 is the class token, the patches follow row by row */
  const char* mask_set;  /* as of stof_encode_options */
  int64_t count;         /* labels of an image, likeliest first; 0: 5 */
  int64_t batch;         /* images of a pass; 0: 8 */
  /* As of stof_encode_options, in images. */
  int32_t (*on_progress)(void* context, int64_t done, int64_t total);
  void* context;
} stof_classify_options;

/* Of PNG and JPEG files. JSON, a list an image: [{"id", "label", "probability" (among all
 * labels)}]. */
stof_status stof_model_classify_files(const stof_model* model, int64_t num_files,
                                      const char* const* paths,
                                      const stof_classify_options* options, char** json);
/* The same of float32 [images, 3, image_height, image_width], as stof_model_pixels() makes them. */
stof_status stof_model_classify(const stof_model* model, const stof_tensor* pixels,
                                const stof_classify_options* options, char** json);
/* What the model reads of an image, uint8 [height, width, 3] (red, green, blue; any strides),
 * resized and normalised: float32 [3, image_height, image_width], row-major. */
stof_status stof_model_pixels(const stof_model* model, const stof_tensor* image,
                              const stof_tensor* pixels);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* STOF_MODELS_H */
