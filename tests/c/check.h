/* What the C tests share: checks that say where they failed, and a small data set. */
#ifndef CHECK_H
#define CHECK_H

#include "redox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* CHECK ends the program if a condition does not hold, with the last failure in words. */
#define CHECK(condition) ((condition) ? (void)0 : check_failed(__FILE__, __LINE__, #condition))

/* EXPECT ends the program unless a call gives this status. */
#define EXPECT(status, call) check_status(__FILE__, __LINE__, #call, (status), (call))

/* TEXT reads the text of a call whose last arguments are (buf, cap, need) into a new string, by asking first. */
#define TEXT(out, call, ...)                                                                                           \
  do {                                                                                                                 \
    size_t text_need = 0;                                                                                              \
    EXPECT(REDOX_ERANGE, call(__VA_ARGS__, NULL, 0, &text_need));                                                      \
    (out) = (char *)malloc(text_need);                                                                                 \
    memset((out), 'x', text_need);                                                                                     \
    EXPECT(REDOX_ERANGE, call(__VA_ARGS__, (out), text_need - 1, &text_need));                                         \
    CHECK((out)[0] == 'x'); /* too small a buffer stays as it is */                                                    \
    EXPECT(REDOX_OK, call(__VA_ARGS__, (out), text_need, &text_need));                                                 \
    CHECK(strlen(out) + 1 == text_need);                                                                               \
  } while (0)

void check_failed(const char *file, int line, const char *what);
void check_status(const char *file, int line, const char *call, redox_status want, redox_status got);

/* Sample i of the data set: `data` has i % 50 bytes of value i, `number` is i, every third `name` is missing. */
enum { SAMPLES = 500, FIELDS = 3, MAX_DATA = 50 };

/* Packs that data set, in stored order, in chunks of a few samples. */
void make_dataset(const char *path);
redox_dataset open_dataset(const char *path);

/* A batch of the data set in memory of its own. */
typedef struct {
  redox_batch batch;
  redox_field fields[FIELDS];
} buffers;

/* Room for `samples`; `data_cap` bytes for `data`. Valid until buffers_free. */
void buffers_init(buffers *b, uint32_t samples, uint64_t data_cap);
void buffers_free(buffers *b);

/* Checks every sample of a filled batch against its number; counts them in seen[SAMPLES] if that is not NULL. */
void check_batch(const redox_batch *batch, int *seen);

#endif
