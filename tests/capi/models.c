/* What the functions of models.h refuse without a model, from C. */

#include <stof/models.h>

#include "check.h"
#include "steps.h"

void wrong_models_are_refused(void) {
  stof_model* model = NULL;
  stof_load_options options = {0};
  char* json = NULL;
  int32_t kind = 7;
  const char* texts[1] = {"a"};
  stof_model_release(NULL);
  CHECK_FAILS(stof_model_load(NULL, NULL, &model), STOF_INVALID_ARGUMENT, "path: expected a pointer");
  CHECK_FAILS(stof_model_load("no such folder", NULL, NULL), STOF_INVALID_ARGUMENT, "model: ");
  CHECK_FAILS(stof_model_load("no such folder", NULL, &model), STOF_NOT_FOUND,
              "no such folder: expected the folder of a model");
  CHECK_FAILS(stof_model_load("no such folder", &options, &model), STOF_INVALID_ARGUMENT,
              "options.struct_size: expected 24, got 0");
  options.struct_size = sizeof options;
  options.device = 3;
  CHECK_FAILS(stof_model_load("no such folder", &options, &model), STOF_INVALID_ARGUMENT,
              "options.device: expected 0 (STOF_CPU), 1 (STOF_GPU) or 2 (STOF_AUTO), got 3");
  options.device = STOF_AUTO;
  options.dtype = STOF_FLOAT16;
  CHECK_FAILS(stof_model_load("no such folder", &options, &model), STOF_INVALID_ARGUMENT,
              "options.dtype: expected 0 because has_dtype is 0, got 1");
  options.has_dtype = 2;
  CHECK_FAILS(stof_model_load("no such folder", &options, &model), STOF_INVALID_ARGUMENT,
              "options.has_dtype: expected 0 or 1, got 2");
  options.has_dtype = 1;
  options.tuning = 2;
  CHECK_FAILS(stof_model_load("no such folder", &options, &model), STOF_INVALID_ARGUMENT,
              "options.tuning: expected 0 (STOF_TUNING_CACHED) or 1 (STOF_TUNING_OFF), got 2");
  options.tuning = STOF_TUNING_OFF;
  options.reserved = 1;
  CHECK_FAILS(stof_model_load("no such folder", &options, &model), STOF_INVALID_ARGUMENT,
              "options.reserved: expected 0, got 1");
  CHECK(model == NULL);
  CHECK_FAILS(stof_model_kind(NULL, &kind), STOF_INVALID_ARGUMENT, "model: expected a pointer");
  CHECK(kind == 7);
  CHECK_FAILS(stof_model_to_json(NULL, &json), STOF_INVALID_ARGUMENT, "model: expected a pointer");
  CHECK_FAILS(stof_model_embed(NULL, 1, texts, NULL, NULL, NULL), STOF_INVALID_ARGUMENT, "model: ");
  CHECK_FAILS(stof_model_generate(NULL, 1, texts, NULL, NULL, &json), STOF_INVALID_ARGUMENT,
              "model: ");
  CHECK_FAILS(stof_model_classify_files(NULL, 1, texts, NULL, &json), STOF_INVALID_ARGUMENT,
              "model: ");
  CHECK(json == NULL);
}
