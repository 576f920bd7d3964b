#ifndef STOF_TESTS_CAPI_STEPS_H
#define STOF_TESTS_CAPI_STEPS_H
/* What the C program does, one after the other. */

void masks_are_right(void);
void predicates_are_masks(void);
void arrays_of_masks_are_right(void);
void pictures_are_png(void);
void attention_is_right(void);
void score_modifications_are_right(void);
void packed_sequences_are_right(void);
void plans_say_what_they_are(void);
void wrong_masks_are_refused(void);
void wrong_models_are_refused(void);
void wrong_problems_are_refused(void);
void wrong_tensors_are_refused(void);
void wrong_block_lists_are_refused(void);
void wrong_decoding_is_refused(void);

#endif
