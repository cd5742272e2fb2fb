/* Opening, looking, planning: every entry point of data sets, with good and bad arguments. */
#include "check.h"

static void test_open(const char *dir) {
  redox_dataset ds = 0;
  char json[2048];

  EXPECT(REDOX_EINVAL, redox_open(NULL, NULL, REDOX_ABI_VERSION, &ds));
  EXPECT(REDOX_EINVAL, redox_open(dir, NULL, REDOX_ABI_VERSION, NULL));
  EXPECT(REDOX_EVERSION, redox_open(dir, NULL, REDOX_ABI_VERSION + 1, &ds));
  EXPECT(REDOX_EINVAL, redox_open(dir, "{\"no such option\": 1}", REDOX_ABI_VERSION, &ds));
  EXPECT(REDOX_EINVAL, redox_open(dir, "not JSON", REDOX_ABI_VERSION, &ds));
  EXPECT(REDOX_ENOTDATASET, redox_open("/nowhere at all", NULL, REDOX_ABI_VERSION, &ds));
  CHECK(redox_last_error_json(json, sizeof json) <= sizeof json);
  CHECK(strstr(json, "\"status\":-4") != NULL && strstr(json, "/nowhere at all") != NULL);
  CHECK(ds == 0);
}

static void test_info(redox_dataset ds) {
  char *json;

  TEXT(json, redox_info, ds);
  CHECK(strstr(json, "\"samples\":500") != NULL);
  CHECK(strstr(json, "\"number\"") != NULL);
  free(json);
  EXPECT(REDOX_ERANGE, redox_info(ds, NULL, 0, NULL));
  EXPECT(REDOX_EINVAL, redox_info(ds, NULL, 1 << 20, NULL));
}

static void test_read(redox_dataset ds) {
  const int64_t numbers[] = {499, 0, 77, 77}, wrong[] = {SAMPLES}, negative[] = {-1};
  char *json;
  buffers b;

  buffers_init(&b, 4, 49 + 0 + 27 + 27);
  EXPECT(REDOX_OK, redox_read(ds, numbers, 4, &b.batch));
  CHECK(b.batch.n_samples == 4 && b.batch.index[0] == 499 && b.batch.index[3] == 77);
  check_batch(&b.batch, NULL);
  EXPECT(REDOX_OK, redox_read(ds, NULL, 0, &b.batch));
  CHECK(b.batch.n_samples == 0);

  EXPECT(REDOX_EINVAL, redox_read(ds, wrong, 1, &b.batch));
  EXPECT(REDOX_EINVAL, redox_read(ds, negative, 1, &b.batch));
  EXPECT(REDOX_EINVAL, redox_read(ds, NULL, 1, &b.batch));
  EXPECT(REDOX_EINVAL, redox_read(ds, numbers, SIZE_MAX / 2, &b.batch));
  EXPECT(REDOX_EINVAL, redox_read(ds, (const int64_t *)((const char *)numbers + 1), 1, &b.batch));
  EXPECT(REDOX_EINVAL, redox_read(ds, numbers, 4, NULL));

  b.fields[0].cap = 102;
  EXPECT(REDOX_ERANGE, redox_read(ds, numbers, 4, &b.batch));
  CHECK(b.fields[0].need == 103 && b.fields[1].need == 32);
  b.fields[0].cap = 103;
  b.batch.cap_samples = 3;
  EXPECT(REDOX_ERANGE, redox_read(ds, numbers, 4, &b.batch));
  CHECK(b.batch.n_samples == 4);
  TEXT(json, redox_read_stats, ds);
  CHECK(strstr(json, "\"samples\":4,\"batches\":2,") != NULL);
  free(json);
  buffers_free(&b);
}

/* A batch that is not what it says. */
static void test_bad_batches(redox_dataset ds) {
  const int64_t numbers[] = {1};
  buffers b;

  buffers_init(&b, 1, MAX_DATA);
  b.batch.struct_size = 4;
  EXPECT(REDOX_EVERSION, redox_read(ds, numbers, 1, &b.batch));
  b.batch.struct_size = sizeof b.batch;
  b.batch.n_fields = FIELDS - 1;
  EXPECT(REDOX_EINVAL, redox_read(ds, numbers, 1, &b.batch));
  b.batch.n_fields = UINT32_MAX;
  EXPECT(REDOX_EINVAL, redox_read(ds, numbers, 1, &b.batch));
  b.batch.n_fields = 0;
  EXPECT(REDOX_EINVAL, redox_read(ds, numbers, 1, &b.batch));
  b.batch.n_fields = FIELDS;
  b.batch.fields = NULL;
  EXPECT(REDOX_EINVAL, redox_read(ds, numbers, 1, &b.batch));
  b.batch.fields = b.fields;
  b.fields[1].cap = UINT64_MAX;
  EXPECT(REDOX_EINVAL, redox_read(ds, numbers, 1, &b.batch));
  b.fields[1].cap = sizeof(int64_t);
  free(b.fields[0].offsets);
  b.fields[0].offsets = NULL; /* samples of different sizes need them */
  EXPECT(REDOX_EINVAL, redox_read(ds, numbers, 1, &b.batch));
  buffers_free(&b);
}

static void test_origin(redox_dataset ds) {
  const int64_t numbers[] = {10, 11};
  int64_t sources[2] = {-1, -1}, number = -1;
  size_t need = 0;
  char keys[7];

  EXPECT(REDOX_OK, redox_origin(ds, numbers, 2, sources, NULL, 0, &need));
  CHECK(sources[0] == 10 && sources[1] == 11 && need == sizeof keys);
  EXPECT(REDOX_OK, redox_origin(ds, numbers, 2, NULL, keys, sizeof keys, NULL));
  CHECK(memcmp(keys, "ten\0" "11", sizeof keys) == 0);
  sources[0] = -1;
  EXPECT(REDOX_ERANGE, redox_origin(ds, numbers, 2, sources, keys, sizeof keys - 1, &need));
  CHECK(sources[0] == -1 && need == sizeof keys);
  EXPECT(REDOX_OK, redox_origin(ds, numbers, 2, NULL, NULL, 0, NULL));
  EXPECT(REDOX_EINVAL, redox_origin(ds, NULL, 2, sources, NULL, 0, NULL));

  EXPECT(REDOX_OK, redox_find_key(ds, "ten", &number));
  CHECK(number == 10);
  EXPECT(REDOX_EINVAL, redox_find_key(ds, "no such key", &number));
  EXPECT(REDOX_EINVAL, redox_find_key(ds, NULL, &number));
  EXPECT(REDOX_EINVAL, redox_find_key(ds, "ten", NULL));
}

static void test_plan(redox_dataset ds) {
  const char *options = "{\"batch_size\": 8, \"world_size\": 2, \"nodes\": 1, \"epoch\": 3, \"seed\": 5}";
  int64_t out[16], again[16], i;
  size_t need = 0;
  char *json;

  EXPECT(REDOX_ERANGE, redox_plan_indices(ds, options, 0, NULL, 0, &need));
  CHECK(need == 16);
  EXPECT(REDOX_OK, redox_plan_indices(ds, options, 0, out, 16, &need));
  EXPECT(REDOX_OK, redox_plan_indices(ds, options, 0, again, 16, NULL));
  CHECK(memcmp(out, again, sizeof out) == 0);
  for (i = 0; i < 16; i++) {
    CHECK(out[i] >= 0 && out[i] < SAMPLES);
  }
  EXPECT(REDOX_EINVAL, redox_plan_indices(ds, options, 0, NULL, 16, &need));
  EXPECT(REDOX_EINVAL, redox_plan_indices(ds, "{\"batch_size\": 0}", 0, out, 16, &need));
  TEXT(json, redox_simulate, ds, "{\"batch_size\": 8}");
  CHECK(json[0] == '{');
  free(json);
}

static void test_stale(redox_dataset ds) {
  redox_subset subset = 0;
  redox_loader loader = 0;
  int64_t numbers[] = {1, 5}, descending[] = {5, 1};
  size_t need;

  EXPECT(REDOX_OK, redox_subset_new(ds, numbers, 2, &subset));
  EXPECT(REDOX_EINVAL, redox_subset_new(ds, descending, 2, &subset));
  EXPECT(REDOX_EINVAL, redox_subset_new(ds, numbers, 2, NULL));
  EXPECT(REDOX_EBADF, redox_close(subset)); /* a handle of another kind */
  EXPECT(REDOX_OK, redox_subset_close(subset));
  EXPECT(REDOX_EBADF, redox_subset_close(subset));

  EXPECT(REDOX_OK, redox_close(ds));
  EXPECT(REDOX_EBADF, redox_close(ds));
  EXPECT(REDOX_EBADF, redox_close(0));
  EXPECT(REDOX_EBADF, redox_info(ds, NULL, 0, &need));
  EXPECT(REDOX_EBADF, redox_read(ds, numbers, 1, NULL));
  EXPECT(REDOX_EBADF, redox_origin(ds, numbers, 1, NULL, NULL, 0, NULL));
  EXPECT(REDOX_EBADF, redox_find_key(ds, "ten", numbers));
  EXPECT(REDOX_EBADF, redox_plan_indices(ds, NULL, 0, NULL, 0, NULL));
  EXPECT(REDOX_EBADF, redox_simulate(ds, NULL, NULL, 0, NULL));
  EXPECT(REDOX_EBADF, redox_subset_new(ds, numbers, 1, &subset));
  EXPECT(REDOX_EBADF, redox_loader_new(ds, NULL, &loader));
}

int main(int argc, char **argv) {
  redox_dataset ds;

  CHECK(argc == 2);
  make_dataset(argv[1]);
  test_open(argv[1]);
  ds = open_dataset(argv[1]);
  test_info(ds);
  test_read(ds);
  test_bad_batches(ds);
  test_origin(ds);
  test_plan(ds);
  test_stale(ds);
  return 0;
}
