/* This thread's last failure.
 *
 * It lives on the C side because Go knows no C threads. A Go export runs on the thread that called it and hands
 * its failure over before it returns. Only pointers are thread-local: a library that is loaded late has little
 * static TLS to spend.
 */
#include "shim.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static __thread struct {
  char *words, *json; /* malloc'ed, freed when the thread ends */
  int failed;         /* there was a failure; if a text is NULL, there was no memory for it */
} last;

static pthread_key_t key; /* only for its destructor */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void forget(void *unused) {
  (void)unused;
  free(last.words);
  free(last.json);
  last.words = last.json = NULL;
}

static void make_key(void) { pthread_key_create(&key, forget); }

static char *copy(const char *text, size_t len) {
  char *c = malloc(len + 1);
  if (c != NULL) {
    memcpy(c, text, len);
    c[len] = '\0';
  }
  return c;
}

void redox_shim_fail(const char *words, size_t words_len, const char *json, size_t json_len) {
  pthread_once(&once, make_key);
  pthread_setspecific(key, &key); /* any value but NULL makes the destructor run */
  forget(NULL);
  last.words = copy(words, words_len);
  last.json = copy(json, json_len);
  last.failed = 1;
}

#define FORKED                                                                                                         \
  "redox was loaded before this process was forked and cannot be used in it: load it in the child, or start the "     \
  "child by spawn"

redox_status redox_shim_fail_forked(void) {
  static const char json[] = "{\"status\":-13,\"message\":\"" FORKED "\"}";
  redox_shim_fail(FORKED, sizeof FORKED - 1, json, sizeof json - 1);
  return REDOX_EFORK;
}

/* Copies text with its NUL if it fits; returns what it needs. */
static size_t give(const char *text, char *buf, size_t cap) {
  size_t need = strlen(text) + 1;
  if (buf != NULL && cap >= need) {
    memcpy(buf, text, need);
  }
  return need;
}

#define NO_MEMORY "out of memory while keeping the error"

size_t redox_last_error(char *buf, size_t cap) {
  return give(last.words != NULL ? last.words : last.failed ? NO_MEMORY : "", buf, cap);
}

size_t redox_last_error_json(char *buf, size_t cap) {
  static const char lost[] = "{\"status\":-15,\"message\":\"" NO_MEMORY "\"}";
  return give(last.json != NULL ? last.json : last.failed ? lost : "{}", buf, cap);
}

const char *redox_strerror(redox_status status) {
  switch (status) {
  case REDOX_OK:
    return "no error";
  case REDOX_END_OF_EPOCH:
    return "end of the epoch";
  case REDOX_EINVAL:
    return "an argument or option is wrong";
  case REDOX_EBADF:
    return "the handle is stale, closed or unknown";
  case REDOX_ERANGE:
    return "a buffer is too small";
  case REDOX_ENOTDATASET:
    return "no data set there";
  case REDOX_EFORMAT:
    return "not a data set of this format";
  case REDOX_ECORRUPT:
    return "the data is corrupt";
  case REDOX_EIO:
    return "storage failed";
  case REDOX_EMEMORY:
    return "the memory limit is too small";
  case REDOX_ESTATE:
    return "the state does not fit";
  case REDOX_EPEER:
    return "a peer is lost or refused us";
  case REDOX_ETIMEDOUT:
    return "nothing came in time";
  case REDOX_ECANCELED:
    return "canceled";
  case REDOX_EFORK:
    return "called in a process forked after loading";
  case REDOX_EVERSION:
    return "the caller was compiled for another version";
  case REDOX_EINTERNAL:
    return "a bug in redox";
  }
  return "unknown status";
}
