/* Masks that are expressions. */

#include "check.h"
#include "steps.h"

void predicates_are_masks(void) {
  const int64_t extent = 4, stride = 2;
  const int32_t doc[] = {0, -1, 0, -1, 1, -1, 1, -1}; /* every other one is read */
  stof_tensor table = {0};
  table.struct_size = sizeof table;
  table.dtype = STOF_INT32;
  table.data = (void*)doc;
  table.rank = 1;
  table.shape = &extent;
  table.strides = &stride;
  const stof_tensor* tables[] = {&table};
  const char* names[] = {"doc"};
  stof_mask* mask = NULL;
  CHECK_OK(stof_mask_predicate("(doc[q] == doc[k]) & (q >= k)", 1, names, tables, &mask));
  for (int row = 0; row < 4; ++row)
    for (int key = 0; key < 4; ++key) {
      int32_t seen = -1;
      CHECK_OK(stof_mask_visible(mask, 0, 0, row, key, &seen));
      CHECK(seen == (row / 2 == key / 2 && row >= key));
    }
  stof_mask_release(mask);
  CHECK_OK(stof_mask_predicate("k < 2 + h", 0, NULL, NULL, &mask)); /* a pattern for each head */
  int32_t seen = -1;
  CHECK_OK(stof_mask_visible(mask, 0, 3, 0, 4, &seen));
  CHECK(seen == 1);
  stof_mask_release(mask);
  mask = NULL;
  CHECK_FAILS(stof_mask_predicate("q - kk <= 4", 0, NULL, NULL, &mask), STOF_INVALID_ARGUMENT,
              "column 5: unknown name \"kk\"");
  CHECK_FAILS(stof_mask_predicate("q < k", 1, NULL, tables, &mask), STOF_INVALID_ARGUMENT,
              "names, tables: expected 1 of each, got null");
  names[0] = NULL;
  CHECK_FAILS(stof_mask_predicate("q < k", 1, names, tables, &mask), STOF_INVALID_ARGUMENT,
              "names[0]");
  names[0] = "doc";
  table.dtype = STOF_FLOAT32;
  CHECK_FAILS(stof_mask_predicate("q < k", 1, names, tables, &mask), STOF_INVALID_ARGUMENT,
              "table doc: expected bool, int32 or int64, got float32");
  CHECK_FAILS(stof_mask_predicate("q < k", -1, NULL, NULL, &mask), STOF_INVALID_ARGUMENT,
              "num_tables");
  CHECK(mask == NULL);
}
