/* Writing: what comes back is what was written; nothing opens before commit; bad arguments. */
#include "check.h"

#define FIELDS_JSON "{\"fields\": {\"x\": \"float32\"}, \"layout\": \"dict\", \"shuffle\": false"

static void write_array(redox_writer writer, float *values, uint64_t *shape, uint32_t ndim, size_t n, redox_status want) {
  redox_field field;
  memset(&field, 0, sizeof field);
  field.data = values;
  field.cap = n * sizeof(float);
  field.shape = shape;
  field.ndim = ndim;
  EXPECT(want, redox_writer_write(writer, &field, 1));
}

/* Arrays of any shape come back with their shapes, and what a batch has too few dimensions for says so. */
static void test_shapes(const char *path) {
  float values[6] = {1, 2, 3, 4, 5, 6};
  uint64_t flat[] = {4}, grid[] = {2, 3}, shape[4];
  const int64_t numbers[] = {0, 1};
  float out[10];
  uint64_t offsets[3];
  redox_batch batch;
  redox_field field;
  redox_writer writer = 0;
  redox_dataset ds;

  EXPECT(REDOX_OK, redox_writer_new(path, FIELDS_JSON "}", &writer));
  write_array(writer, values, flat, 1, 4, REDOX_OK);
  write_array(writer, values, grid, 2, 6, REDOX_OK);
  write_array(writer, values, grid, 2, 5, REDOX_EINVAL); /* bytes and shape differ */
  write_array(writer, values, NULL, 300, 6, REDOX_EINVAL);
  write_array(writer, values, NULL, 2, 1, REDOX_EINVAL); /* one item, as an array of no dimensions has */
  EXPECT(REDOX_OK, redox_writer_commit(writer));

  ds = open_dataset(path);
  memset(&batch, 0, sizeof batch);
  memset(&field, 0, sizeof field);
  batch.struct_size = (uint32_t)sizeof batch;
  batch.n_fields = 1;
  batch.fields = &field;
  batch.cap_samples = 2;
  field.data = out;
  field.cap = sizeof out;
  field.offsets = offsets;
  field.shape = shape;
  field.shape_cap = 1;
  EXPECT(REDOX_ERANGE, redox_read(ds, numbers, 2, &batch));
  CHECK(field.ndim == 2);
  field.shape_cap = 2;
  EXPECT(REDOX_OK, redox_read(ds, numbers, 2, &batch));
  CHECK(shape[0] == 4 && shape[1] == UINT64_MAX && shape[2] == 2 && shape[3] == 3);
  CHECK(offsets[1] == 16 && offsets[2] == 40 && out[4] == 1 && out[9] == 6);
  EXPECT(REDOX_OK, redox_close(ds));
}

/* Neither a writer that was aborted nor one that is still open leaves a data set. */
static void test_unfinished(const char *path) {
  float values[1] = {1};
  uint64_t shape[] = {1}, samples = 99;
  redox_writer writer = 0;
  redox_dataset ds;

  EXPECT(REDOX_OK, redox_writer_new(path, FIELDS_JSON ", \"resume\": false}", &writer));
  EXPECT(REDOX_OK, redox_writer_resumed(writer, &samples));
  CHECK(samples == 0);
  write_array(writer, values, shape, 1, 1, REDOX_OK);
  EXPECT(REDOX_ENOTDATASET, redox_open(path, NULL, REDOX_ABI_VERSION, &ds));
  EXPECT(REDOX_OK, redox_writer_abort(writer));
  EXPECT(REDOX_EBADF, redox_writer_abort(writer));
  EXPECT(REDOX_ENOTDATASET, redox_open(path, NULL, REDOX_ABI_VERSION, &ds));
}

static void test_bad_arguments(const char *path) {
  redox_writer writer = 0;
  redox_field field;
  uint64_t samples;

  memset(&field, 0, sizeof field);
  EXPECT(REDOX_EINVAL, redox_writer_new(NULL, FIELDS_JSON "}", &writer));
  EXPECT(REDOX_EINVAL, redox_writer_new(path, FIELDS_JSON "}", NULL));
  EXPECT(REDOX_EINVAL, redox_writer_new(path, NULL, &writer)); /* fields are required */
  EXPECT(REDOX_EINVAL, redox_writer_new(path, "{\"fields\": {\"x\": \"no such kind\"}}", &writer));
  EXPECT(REDOX_EIO, redox_writer_new("/proc/no such folder/ds", FIELDS_JSON "}", &writer));

  EXPECT(REDOX_OK, redox_writer_new(path, "{\"fields\": {\"n\": \"int\"}, \"resume\": false}", &writer));
  EXPECT(REDOX_EINVAL, redox_writer_write(writer, NULL, 1));
  EXPECT(REDOX_EINVAL, redox_writer_write(writer, &field, 0));
  EXPECT(REDOX_EINVAL, redox_writer_write(writer, &field, UINT32_MAX));
  EXPECT(REDOX_EINVAL, redox_writer_write(writer, &field, 1)); /* an int has 8 bytes */
  field.cap = 8;
  EXPECT(REDOX_EINVAL, redox_writer_write(writer, &field, 1)); /* data is NULL */
  EXPECT(REDOX_EINVAL, redox_writer_resumed(writer, NULL));
  EXPECT(REDOX_OK, redox_writer_abort(writer));

  EXPECT(REDOX_EBADF, redox_writer_write(writer, &field, 1));
  EXPECT(REDOX_EBADF, redox_writer_write_from(writer, &field, 1, 0, NULL));
  EXPECT(REDOX_EBADF, redox_writer_resumed(writer, &samples));
  EXPECT(REDOX_EBADF, redox_writer_commit(writer));
}

static redox_status write_text(redox_writer writer, const char *str, const char *json, uint64_t source, const char *key) {
  redox_field fields[2];
  char copies[2][64];

  memset(fields, 0, sizeof fields);
  fields[0].data = strcpy(copies[0], str);
  fields[0].cap = strlen(str);
  fields[1].data = strcpy(copies[1], json);
  fields[1].cap = strlen(json);
  return redox_writer_write_from(writer, fields, 2, source, key);
}

static void expect_words(const char *words) {
  char message[1024];
  redox_last_error(message, sizeof message);
  CHECK(strstr(message, words) != NULL);
}

/* What no reader could decode is refused, and the writer goes on; a source number is an int64 to readers. */
static void test_unreadable(const char *path) {
  const int64_t numbers[] = {0, 1, 2};
  int64_t sources[3];
  size_t need;
  redox_writer writer = 0;
  redox_dataset ds;

  EXPECT(REDOX_OK, redox_writer_new(path, "{\"fields\": {\"s\": \"str\", \"j\": \"json\"}, \"shuffle\": false}", &writer));
  EXPECT(REDOX_EINVAL, write_text(writer, "\xff", "1", 0, NULL));
  expect_words("\"s\"");
  EXPECT(REDOX_EINVAL, write_text(writer, "", "", 0, NULL));
  expect_words("\"j\"");
  EXPECT(REDOX_EINVAL, write_text(writer, "", "{]", 0, NULL));
  EXPECT(REDOX_EINVAL, write_text(writer, "", "\"\xff\"", 0, NULL));
  EXPECT(REDOX_EINVAL, write_text(writer, "", "1", 0, "k\xff"));
  expect_words("key");
  EXPECT(REDOX_OK, write_text(writer, "", "1", 0, ""));
  EXPECT(REDOX_OK, write_text(writer, "\xc3\xa4", "[NaN, -Infinity]", 7, "\xc3\xa4")); /* Python's json has those */
  EXPECT(REDOX_EINVAL, write_text(writer, "", "1", UINT64_MAX, NULL));
  EXPECT(REDOX_EINVAL, write_text(writer, "", "1", (uint64_t)INT64_MAX + 1, NULL));
  EXPECT(REDOX_OK, write_text(writer, "", "1", INT64_MAX, NULL));
  EXPECT(REDOX_EINVAL, write_text(writer, "", "1", 3, NULL));
  EXPECT(REDOX_OK, redox_writer_commit(writer));

  ds = open_dataset(path);
  EXPECT(REDOX_OK, redox_origin(ds, numbers, 3, sources, NULL, 0, &need));
  CHECK(sources[0] == 0 && sources[1] == 7 && sources[2] == INT64_MAX);
  EXPECT(REDOX_OK, redox_close(ds));
}

/* A data set is never written over by accident. */
static void test_taken(const char *path) {
  redox_writer writer = 0;
  char json[1024];

  make_dataset(path);
  CHECK(redox_writer_new(path, FIELDS_JSON "}", &writer) < 0);
  redox_last_error_json(json, sizeof json);
  CHECK(strstr(json, "\"errno\":17") != NULL); /* EEXIST */
  redox_close(open_dataset(path));
}

int main(int argc, char **argv) {
  char path[4096];

  CHECK(argc == 2);
  test_unfinished(argv[1]);
  test_bad_arguments(argv[1]);
  test_taken(argv[1]);
  snprintf(path, sizeof path, "%s-shapes", argv[1]);
  test_shapes(path);
  snprintf(path, sizeof path, "%s-unreadable", argv[1]);
  test_unreadable(path);
  return 0;
}
