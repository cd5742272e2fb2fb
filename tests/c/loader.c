/* Loading: batches into the caller's memory and lent ones, epochs, state, every sample once. */
#include "check.h"

#define OPTIONS "{\"batch_size\": 32, \"memory_limit\": 67108864, \"prefetch\": 2}"

/* Reads what is left of the epoch with redox_next_batch; returns how many samples. */
static int drain(redox_loader loader, uint64_t epoch, int *seen) {
  int total = 0;
  buffers b;

  buffers_init(&b, 32, 32 * MAX_DATA);
  for (;;) {
    redox_status status = redox_next_batch(loader, &b.batch, -1);
    if (status == REDOX_END_OF_EPOCH) {
      CHECK(b.batch.n_samples == 0);
      break;
    }
    EXPECT(REDOX_OK, status);
    CHECK(b.batch.epoch == epoch);
    check_batch(&b.batch, seen);
    total += (int)b.batch.n_samples;
  }
  buffers_free(&b);
  return total;
}

static void test_each_sample_once(redox_dataset ds) {
  int seen[SAMPLES], epoch, i;
  redox_loader loader = 0;

  EXPECT(REDOX_OK, redox_loader_new(ds, OPTIONS, &loader));
  for (epoch = 0; epoch < 3; epoch++) {
    memset(seen, 0, sizeof seen);
    CHECK(drain(loader, (uint64_t)epoch, seen) == SAMPLES);
    for (i = 0; i < SAMPLES; i++) {
      CHECK(seen[i] == 1);
    }
  }
  EXPECT(REDOX_OK, redox_set_epoch(loader, 7));
  CHECK(drain(loader, 7, NULL) == SAMPLES);
  EXPECT(REDOX_OK, redox_loader_close(loader));
}

/* Too small a buffer: every need is set, nothing is consumed, the same batch comes next. */
static void test_nothing_consumed(redox_dataset ds) {
  int seen[SAMPLES] = {0}, i;
  redox_loader loader = 0;
  buffers small, b;

  EXPECT(REDOX_OK, redox_loader_new(ds, OPTIONS, &loader));
  buffers_init(&small, 32, 1);
  for (i = 0; i < 3; i++) {
    EXPECT(REDOX_ERANGE, redox_next_batch(loader, &small.batch, -1));
    CHECK(small.batch.n_samples == 32 && small.fields[0].need > 1);
    CHECK(small.fields[1].need == 32 * sizeof(int64_t));
  }
  buffers_init(&b, 32, small.fields[0].need);
  EXPECT(REDOX_OK, redox_next_batch(loader, &b.batch, -1));
  CHECK(b.batch.step == 0 && b.fields[0].need == small.fields[0].need);
  check_batch(&b.batch, seen);
  small.batch.cap_samples = 31;
  EXPECT(REDOX_ERANGE, redox_next_batch(loader, &small.batch, -1));
  CHECK(drain(loader, 0, seen) == SAMPLES - 32);
  for (i = 0; i < SAMPLES; i++) {
    CHECK(seen[i] == 1);
  }
  buffers_free(&small);
  buffers_free(&b);
  EXPECT(REDOX_OK, redox_loader_close(loader));
}

/* Every sample in memory of its own, which is made when its size is known. */
static void test_parts(redox_dataset ds) {
  int seen[SAMPLES] = {0}, i;
  uint32_t at;
  void *parts[32];
  void **lists[FIELDS] = {NULL};
  redox_loader loader = 0;
  redox_status status;
  buffers b;

  EXPECT(REDOX_OK, redox_loader_new(ds, OPTIONS, &loader));
  buffers_init(&b, 32, 32 * MAX_DATA);
  for (;;) {
    void *whole = b.fields[0].data;
    uint64_t cap = b.fields[0].cap;
    b.fields[0].data = NULL;
    b.fields[0].cap = 0;
    status = redox_next_parts(loader, &b.batch, NULL, -1);
    if (status == REDOX_ERANGE) {
      for (at = 0; at < b.batch.n_samples; at++) {
        parts[at] = malloc(b.fields[0].offsets[at + 1] - b.fields[0].offsets[at]);
      }
      lists[0] = parts;
      EXPECT(REDOX_OK, redox_next_parts(loader, &b.batch, (void *const *const *)lists, -1));
      for (at = 0; at < b.batch.n_samples; at++) {
        memcpy((char *)whole + b.fields[0].offsets[at], parts[at], b.fields[0].offsets[at + 1] - b.fields[0].offsets[at]);
        free(parts[at]);
      }
    }
    b.fields[0].data = whole;
    b.fields[0].cap = cap;
    if (status == REDOX_END_OF_EPOCH) break;
    check_batch(&b.batch, seen);
  }
  for (i = 0; i < SAMPLES; i++) {
    CHECK(seen[i] == 1);
  }
  buffers_free(&b);
  EXPECT(REDOX_OK, redox_loader_close(loader));
}

/* A lent batch stays what it is until it is released, also after its loader was closed. */
static void test_lent_batches(redox_dataset ds) {
  int seen[SAMPLES] = {0}, total = 0, lent = 0, i;
  redox_loader loader = 0;
  redox_field fields[8][FIELDS];
  redox_batch batches[8];
  redox_slot slots[8];
  buffers b;

  EXPECT(REDOX_OK, redox_loader_new(ds, OPTIONS, &loader));
  for (i = 0; i < 8; i++) {
    memset(&batches[i], 0, sizeof batches[i]);
    batches[i].struct_size = (uint32_t)sizeof batches[i];
    batches[i].n_fields = FIELDS;
    batches[i].fields = fields[i];
  }
  memset(fields, 0, sizeof fields);
  while (lent < 8) {
    redox_status status = redox_acquire(loader, &batches[lent], -1, &slots[lent]);
    if (status == REDOX_ERANGE) {
      break; /* all slots are lent */
    }
    EXPECT(REDOX_OK, status);
    total += (int)batches[lent].n_samples;
    lent++;
  }
  CHECK(lent >= 1 && lent < 8);
  CHECK(fields[lent][0].need > 0); /* what redox_next_batch will need */
  buffers_init(&b, 32, fields[lent][0].need);
  EXPECT(REDOX_OK, redox_next_batch(loader, &b.batch, -1));
  check_batch(&b.batch, seen);
  total += (int)b.batch.n_samples;
  buffers_free(&b);

  total += drain(loader, 0, seen);
  CHECK(total == SAMPLES);
  EXPECT(REDOX_OK, redox_loader_close(loader));
  for (i = 0; i < lent; i++) {
    check_batch(&batches[i], seen);
    memset(fields[i][0].data, 0, fields[i][0].cap); /* the memory may be written to */
    EXPECT(REDOX_OK, redox_release(slots[i]));
    EXPECT(REDOX_EBADF, redox_release(slots[i]));
  }
  for (i = 0; i < SAMPLES; i++) {
    CHECK(seen[i] == 1);
  }
}

/* A state goes on where it was taken, in another loader too. */
static void test_state(redox_dataset ds) {
  int seen[SAMPLES] = {0}, i;
  redox_loader first = 0, second = 0;
  char *state, *stats;
  buffers b;

  EXPECT(REDOX_OK, redox_loader_new(ds, OPTIONS, &first));
  buffers_init(&b, 32, 32 * MAX_DATA);
  for (i = 0; i < 5; i++) {
    EXPECT(REDOX_OK, redox_next_batch(first, &b.batch, -1));
    check_batch(&b.batch, seen);
  }
  buffers_free(&b);
  TEXT(state, redox_state, first);
  EXPECT(REDOX_OK, redox_loader_close(first));

  EXPECT(REDOX_OK, redox_loader_new(ds, OPTIONS, &second));
  EXPECT(REDOX_EINVAL, redox_restore(second, NULL));
  CHECK(redox_restore(second, "{}") < 0);
  CHECK(redox_restore(second, "[") < 0);
  EXPECT(REDOX_OK, redox_restore(second, state));
  CHECK(drain(second, 0, seen) == SAMPLES - 5 * 32);
  for (i = 0; i < SAMPLES; i++) {
    CHECK(seen[i] == 1);
  }
  TEXT(stats, redox_stats, second);
  CHECK(strstr(stats, "\"samples\"") != NULL);
  EXPECT(REDOX_OK, redox_cancel(second)); /* nobody waits; the loader stays usable */
  CHECK(drain(second, 1, NULL) == SAMPLES);
  EXPECT(REDOX_OK, redox_loader_close(second));
  free(state);
  free(stats);
}

/* A subset by its handle, which may be closed as soon as the loader is made. */
static void test_subset(redox_dataset ds) {
  const int64_t numbers[] = {3, 4, 100, 499};
  int seen[SAMPLES] = {0}, i;
  redox_subset subset = 0;
  redox_loader loader = 0;
  char options[128];

  EXPECT(REDOX_OK, redox_subset_new(ds, numbers, 4, &subset));
  snprintf(options, sizeof options, "{\"batch_size\": 32, \"subset_handle\": %llu}", (unsigned long long)subset);
  EXPECT(REDOX_OK, redox_loader_new(ds, options, &loader));
  EXPECT(REDOX_OK, redox_subset_close(subset));
  CHECK(drain(loader, 0, seen) == 4);
  for (i = 0; i < 4; i++) {
    CHECK(seen[numbers[i]] == 1);
  }
  EXPECT(REDOX_OK, redox_loader_close(loader));
  EXPECT(REDOX_EBADF, redox_loader_new(ds, options, &loader)); /* that handle is stale */
}

static void test_bad_arguments(redox_dataset ds) {
  redox_loader loader = 0;
  redox_slot slot = 0;
  size_t need;
  buffers b;

  buffers_init(&b, 32, 32 * MAX_DATA);
  EXPECT(REDOX_EINVAL, redox_loader_new(ds, OPTIONS, NULL));
  EXPECT(REDOX_EINVAL, redox_loader_new(ds, NULL, &loader)); /* batch_size is required */
  EXPECT(REDOX_EINVAL, redox_loader_new(ds, "{\"batch_size\": 32, \"windows\": 3}", &loader));
  EXPECT(REDOX_EINVAL, redox_loader_new(ds, "{\"Batch_Size\": 32}", &loader));
  EXPECT(REDOX_EINVAL, redox_loader_new(ds, "{\"batch_size\": 32, \"batch_size\": 16}", &loader));
  EXPECT(REDOX_EBADF, redox_loader_new(ds, "{\"batch_size\": 32, \"subset_handle\": 0}", &loader));
  EXPECT(REDOX_EBADF, redox_loader_new(ds, "{\"batch_size\": 32, \"share\": 0}", &loader));
  EXPECT(REDOX_EBADF, redox_loader_new(ds, "{\"batch_size\": 32, \"mesh\": 0}", &loader));
  EXPECT(REDOX_EBADF, redox_loader_new(ds, "{\"batch_size\": 32, \"mesh\": 12345}", &loader));
  EXPECT(REDOX_EMEMORY, redox_loader_new(ds, "{\"batch_size\": 32, \"memory_limit\": 1}", &loader));
  EXPECT(REDOX_EMEMORY, redox_loader_new(ds, "{\"batch_size\": 32, \"memory_limit\": \"0.5kb\"}", &loader));
  EXPECT(REDOX_EINVAL, redox_loader_new(ds, "{\"batch_size\": 32, \"memory_limit\": \"much\"}", &loader));
  EXPECT(REDOX_OK, redox_loader_new(ds, OPTIONS, &loader));
  EXPECT(REDOX_EINVAL, redox_next_batch(loader, NULL, -1));
  EXPECT(REDOX_EINVAL, redox_acquire(loader, NULL, -1, &slot));
  EXPECT(REDOX_EINVAL, redox_acquire(loader, &b.batch, -1, NULL));
  b.batch.n_fields = 1;
  EXPECT(REDOX_EINVAL, redox_next_batch(loader, &b.batch, -1));
  EXPECT(REDOX_EINVAL, redox_acquire(loader, &b.batch, -1, &slot));
  b.batch.n_fields = 0;
  EXPECT(REDOX_EINVAL, redox_acquire(loader, &b.batch, -1, &slot));
  b.batch.n_fields = FIELDS;
  CHECK(slot == 0);
  CHECK(drain(loader, 0, NULL) == SAMPLES); /* none of this consumed anything */

  EXPECT(REDOX_EBADF, redox_close(loader)); /* a handle of another kind */
  EXPECT(REDOX_OK, redox_loader_close(loader));
  EXPECT(REDOX_EBADF, redox_loader_close(loader));
  EXPECT(REDOX_EBADF, redox_next_batch(loader, &b.batch, -1));
  EXPECT(REDOX_EBADF, redox_acquire(loader, &b.batch, -1, &slot));
  EXPECT(REDOX_EBADF, redox_release(slot));
  EXPECT(REDOX_EBADF, redox_set_epoch(loader, 0));
  EXPECT(REDOX_EBADF, redox_state(loader, NULL, 0, &need));
  EXPECT(REDOX_EBADF, redox_restore(loader, "{}"));
  EXPECT(REDOX_EBADF, redox_stats(loader, NULL, 0, &need));
  EXPECT(REDOX_EBADF, redox_cancel(loader));
  buffers_free(&b);
}

int main(int argc, char **argv) {
  redox_dataset ds;

  CHECK(argc == 2);
  make_dataset(argv[1]);
  ds = open_dataset(argv[1]);
  test_each_sample_once(ds);
  test_nothing_consumed(ds);
  test_parts(ds);
  test_lent_batches(ds);
  test_state(ds);
  test_subset(ds);
  test_bad_arguments(ds);
  EXPECT(REDOX_OK, redox_close(ds));
  return 0;
}
