/* A C program that uses all of stof/stof.h. */

#include <stdlib.h>

#include "check.h"
#include "operands.h"
#include "steps.h"

int num_failed = 0;

int main(void) {
  CHECK(strcmp(stof_last_error(), "") == 0);
  CHECK(strcmp(stof_version(), EXPECTED_VERSION) == 0);
  CHECK(strcmp(stof_status_name(STOF_OK), "OK") == 0);
  CHECK(strcmp(stof_status_name(STOF_INTERNAL), "Internal") == 0);
  CHECK(strcmp(stof_status_name(99), "Unknown") == 0);
  stof_mask_release(NULL);
  stof_plan_release(NULL);
  stof_text_release(NULL);
  fill_inputs();

  masks_are_right();
  predicates_are_masks();
  arrays_of_masks_are_right();
  pictures_are_png();
  attention_is_right();
  score_modifications_are_right();
  packed_sequences_are_right();
  plans_say_what_they_are();
  wrong_masks_are_refused();
  wrong_models_are_refused();
  wrong_problems_are_refused();
  wrong_tensors_are_refused();
  wrong_block_lists_are_refused();
  wrong_decoding_is_refused();
  printf("%d checks failed\n", num_failed);
  return num_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
