/* What the C files of the shim share. Not installed.
 *
 * The shim is C because three things cannot be done in Go: notice a fork before the Go runtime is entered,
 * keep an error per C thread, and give the exports the const-correct names of redox.h.
 */
#ifndef REDOX_SHIM_H
#define REDOX_SHIM_H

#include "redox.h"

/* 1 in a process that was forked after the library was loaded: no Go code may run there. Costs a load. */
int redox_shim_forked(void);

/* Keeps copies of this thread's failure, in words and as JSON. Neither needs a terminating NUL. */
void redox_shim_fail(const char *words, size_t words_len, const char *json, size_t json_len);

/* Records the failure of a call in a forked child and returns REDOX_EFORK. */
redox_status redox_shim_fail_forked(void);

#endif
