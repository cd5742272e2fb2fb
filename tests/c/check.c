#include "check.h"

void check_failed(const char *file, int line, const char *what) {
  char words[1024] = "";
  redox_last_error(words, sizeof words);
  fprintf(stderr, "%s:%d: %s does not hold; last error: %s\n", file, line, what, words);
  exit(1);
}

void check_status(const char *file, int line, const char *call, redox_status want, redox_status got) {
  char words[1024] = "";
  if (want == got) {
    return;
  }
  redox_last_error(words, sizeof words);
  fprintf(stderr, "%s:%d: %s\n  gave %d (%s), expected %d (%s); last error: %s\n", file, line, call, got,
          redox_strerror(got), want, redox_strerror(want), words);
  exit(1);
}

void make_dataset(const char *path) {
  redox_writer writer;
  char name[32];
  unsigned char data[MAX_DATA];
  int64_t i;

  EXPECT(REDOX_OK, redox_writer_new(path,
                                    "{\"fields\": [{\"name\": \"data\", \"kind\": \"bytes\"},"
                                    " {\"name\": \"number\", \"kind\": \"int\"}, {\"name\": \"name\", \"kind\": \"str?\"}],"
                                    " \"layout\": \"dict\", \"shuffle\": false, \"chunk_size\": 1024}",
                                    &writer));
  for (i = 0; i < SAMPLES; i++) {
    redox_field fields[FIELDS];
    uint8_t present = i % 3 != 0;

    memset(fields, 0, sizeof fields);
    memset(data, (int)(i % 256), sizeof data);
    fields[0].data = data;
    fields[0].cap = (uint64_t)(i % MAX_DATA);
    fields[1].data = &i;
    fields[1].cap = sizeof i;
    fields[2].data = name;
    fields[2].cap = (uint64_t)snprintf(name, sizeof name, "sample %d", (int)i);
    fields[2].valid = &present;
    if (i % 2 == 0) {
      EXPECT(REDOX_OK, redox_writer_write_from(writer, fields, FIELDS, (uint64_t)i, i == 10 ? "ten" : NULL));
    } else {
      EXPECT(REDOX_OK, redox_writer_write(writer, fields, FIELDS));
    }
  }
  EXPECT(REDOX_OK, redox_writer_commit(writer));
}

redox_dataset open_dataset(const char *path) {
  redox_dataset ds = 0;
  EXPECT(REDOX_OK, redox_open(path, NULL, REDOX_ABI_VERSION, &ds));
  CHECK(ds != 0);
  return ds;
}

void buffers_init(buffers *b, uint32_t samples, uint64_t data_cap) {
  memset(b, 0, sizeof *b);
  b->batch.struct_size = (uint32_t)sizeof b->batch;
  b->batch.n_fields = FIELDS;
  b->batch.fields = b->fields;
  b->batch.cap_samples = samples;
  /* malloc of the exact sizes: AddressSanitizer sees one byte too many. */
  b->batch.index = (int64_t *)malloc(samples * sizeof(int64_t));
  b->fields[0].cap = data_cap;
  b->fields[0].data = malloc(data_cap);
  b->fields[0].offsets = (uint64_t *)malloc((samples + 1) * sizeof(uint64_t));
  b->fields[1].cap = samples * sizeof(int64_t);
  b->fields[1].data = malloc(b->fields[1].cap);
  b->fields[2].cap = samples * 16;
  b->fields[2].data = malloc(b->fields[2].cap);
  b->fields[2].offsets = (uint64_t *)malloc((samples + 1) * sizeof(uint64_t));
  b->fields[2].valid = (uint8_t *)malloc(samples);
}

void buffers_free(buffers *b) {
  int i;
  free(b->batch.index);
  for (i = 0; i < FIELDS; i++) {
    free(b->fields[i].data);
    free(b->fields[i].offsets);
    free(b->fields[i].valid);
  }
}

void check_batch(const redox_batch *batch, int *seen) {
  const redox_field *data = &batch->fields[0], *number = &batch->fields[1], *name = &batch->fields[2];
  uint32_t i;

  for (i = 0; i < batch->n_samples; i++) {
    int64_t n = ((const int64_t *)number->data)[i];
    uint64_t from = data->offsets[i], to = data->offsets[i + 1], at;
    char expected[32];
    int length = snprintf(expected, sizeof expected, "sample %d", (int)n);

    CHECK(n >= 0 && n < SAMPLES);
    CHECK(batch->index == NULL || batch->index[i] == n); /* packed without shuffling */
    CHECK(to - from == (uint64_t)(n % MAX_DATA));
    for (at = from; at < to; at++) {
      CHECK(((const unsigned char *)data->data)[at] == n % 256);
    }
    CHECK(name->valid[i] == (n % 3 != 0));
    from = name->offsets[i];
    to = name->offsets[i + 1];
    if (name->valid[i]) {
      CHECK(to - from == (uint64_t)length);
      CHECK(memcmp((const char *)name->data + from, expected, (size_t)length) == 0);
    } else {
      CHECK(to == from);
    }
    if (seen != NULL) {
      seen[n]++;
    }
  }
}
