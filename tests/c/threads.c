/* Many threads on the same handles: each sample once, cancelling and closing under calls, each thread its own error. */
#include "check.h"

#include <pthread.h>

enum { THREADS = 4 };

static redox_loader loader;
static int seen[SAMPLES];
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER; /* guards seen */

/* Takes batches of epoch 0 until it is over. REDOX_ECANCELED: goes on. */
static void *take(void *unused) {
  buffers b;

  (void)unused;
  buffers_init(&b, 8, 8 * MAX_DATA);
  for (;;) {
    redox_status status = redox_next_batch(loader, &b.batch, 1000);
    if (status == REDOX_ECANCELED) {
      continue;
    }
    if (status == REDOX_END_OF_EPOCH || (status == REDOX_OK && b.batch.epoch > 0)) {
      break; /* one thread sees the end; the others are in the next epoch then */
    }
    EXPECT(REDOX_OK, status);
    pthread_mutex_lock(&mu);
    check_batch(&b.batch, seen);
    pthread_mutex_unlock(&mu);
  }
  buffers_free(&b);
  return NULL;
}

/* Threads that share a loader divide an epoch among them, however often somebody cancels. */
static void test_shared_loader(redox_dataset ds) {
  pthread_t threads[THREADS];
  int i;

  EXPECT(REDOX_OK, redox_loader_new(ds, "{\"batch_size\": 8}", &loader));
  for (i = 0; i < THREADS; i++) {
    CHECK(pthread_create(&threads[i], NULL, take, NULL) == 0);
  }
  for (i = 0; i < 50; i++) {
    EXPECT(REDOX_OK, redox_cancel(loader));
  }
  for (i = 0; i < THREADS; i++) {
    CHECK(pthread_join(threads[i], NULL) == 0);
  }
  for (i = 0; i < SAMPLES; i++) {
    CHECK(seen[i] == 1);
  }
  EXPECT(REDOX_OK, redox_loader_close(loader));
}

/* Takes lent batches and gives them back until the loader is gone, epoch after epoch. */
static void *borrow(void *unused) {
  redox_field fields[FIELDS];
  redox_batch batch;
  redox_slot slot;

  (void)unused;
  memset(&batch, 0, sizeof batch);
  memset(fields, 0, sizeof fields);
  batch.struct_size = (uint32_t)sizeof batch;
  batch.n_fields = FIELDS;
  batch.fields = fields;
  for (;;) {
    redox_status status = redox_acquire(loader, &batch, -1, &slot);
    if (status == REDOX_OK) {
      check_batch(&batch, NULL);
      EXPECT(REDOX_OK, redox_release(slot));
    } else if (status == REDOX_EBADF) {
      return NULL;
    } else {
      CHECK(status == REDOX_END_OF_EPOCH || status == REDOX_ECANCELED || status == REDOX_ERANGE);
    }
  }
}

/* Closing a loader that others are in: they come out, nothing crashes, one closer wins. */
static void test_close_under_calls(redox_dataset ds) {
  pthread_t threads[THREADS];
  int round, i;

  for (round = 0; round < 10; round++) {
    EXPECT(REDOX_OK, redox_loader_new(ds, "{\"batch_size\": 8, \"prefetch\": 3}", &loader));
    for (i = 0; i < THREADS; i++) {
      CHECK(pthread_create(&threads[i], NULL, borrow, NULL) == 0);
    }
    for (i = 0; i < round; i++) {
      EXPECT(REDOX_OK, redox_cancel(loader));
    }
    EXPECT(REDOX_OK, redox_loader_close(loader));
    EXPECT(REDOX_EBADF, redox_loader_close(loader));
    for (i = 0; i < THREADS; i++) {
      CHECK(pthread_join(threads[i], NULL) == 0);
    }
  }
}

static void *fail_elsewhere(void *unused) {
  char words[256];
  redox_dataset ds;

  (void)unused;
  CHECK(redox_last_error(words, sizeof words) == 1 && words[0] == '\0'); /* nothing has failed here yet */
  CHECK(redox_last_error_json(words, sizeof words) == 3 && strcmp(words, "{}") == 0);
  EXPECT(REDOX_ENOTDATASET, redox_open("/another place", NULL, REDOX_ABI_VERSION, &ds));
  CHECK(redox_last_error(words, sizeof words) > 1 && strstr(words, "/another place") != NULL);
  return NULL;
}

static void test_last_error_is_the_threads_own(void) {
  pthread_t thread;
  redox_dataset ds;
  char words[256];

  EXPECT(REDOX_ENOTDATASET, redox_open("/this place", NULL, REDOX_ABI_VERSION, &ds));
  CHECK(pthread_create(&thread, NULL, fail_elsewhere, NULL) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(redox_last_error(words, sizeof words) > 1 && strstr(words, "/this place") != NULL);
  words[0] = 'x';
  CHECK(redox_last_error(words, 2) > 2 && words[0] == 'x'); /* too small a buffer stays as it is */
  CHECK(redox_last_error(NULL, 0) > 2);
}

static void test_about(void) {
  char log[REDOX_LOG_MIN];
  size_t need = 0;
  int status;

  for (status = REDOX_EINTERNAL; status <= REDOX_END_OF_EPOCH; status++) {
    CHECK(strcmp(redox_strerror((redox_status)status), "unknown status") != 0);
  }
  CHECK(strcmp(redox_strerror((redox_status)-99), "unknown status") == 0);
  CHECK(redox_abi_version() == REDOX_ABI_VERSION);
  CHECK(strcmp(redox_version(), REDOX_VERSION) == 0);
  CHECK(strlen(redox_source_hash()) == 32);
  EXPECT(REDOX_ERANGE, redox_log_read(NULL, 0, &need));
  CHECK(need == REDOX_LOG_MIN);
  EXPECT(REDOX_EINVAL, redox_log_read(NULL, sizeof log, &need));
  EXPECT(REDOX_OK, redox_log_read(log, sizeof log, &need));
  CHECK(strlen(log) + 1 == need);
}

int main(int argc, char **argv) {
  redox_dataset ds;

  CHECK(argc == 2);
  test_last_error_is_the_threads_own();
  test_about();
  make_dataset(argv[1]);
  ds = open_dataset(argv[1]);
  test_shared_loader(ds);
  test_close_under_calls(ds);
  EXPECT(REDOX_OK, redox_close(ds));
  return 0;
}
