#ifndef STOF_TESTS_CAPI_CHECK_H
#define STOF_TESTS_CAPI_CHECK_H
/* What the C program checks with. */

#include <stdio.h>
#include <string.h>

#include "stof/stof.h"

extern int num_failed;

#define CHECK(condition)                                                   \
  do {                                                                     \
    if (!(condition)) {                                                    \
      printf("%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
      ++num_failed;                                                        \
    }                                                                      \
  } while (0)

#define CHECK_OK(call)                                                                 \
  do {                                                                                 \
    const stof_status got_ = (call);                                                   \
    if (got_ != STOF_OK) {                                                             \
      printf("%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #call, stof_status_name(got_), \
             stof_last_error());                                                       \
      ++num_failed;                                                                    \
    }                                                                                  \
  } while (0)

/* The call must fail with `status`, and its message must contain `words`. */
#define CHECK_FAILS(call, status, words)                                                    \
  do {                                                                                      \
    const stof_status got_ = (call);                                                        \
    if (got_ != (status) || strstr(stof_last_error(), (words)) == NULL) {                   \
      printf("%s:%d: %s: expected %s with \"%s\", got %s: %s\n", __FILE__, __LINE__, #call, \
             stof_status_name(status), (words), stof_status_name(got_), stof_last_error()); \
      ++num_failed;                                                                         \
    }                                                                                       \
  } while (0)

#endif
