/* Long work: packing a tree of files and verifying it, with progress, cancelled, with bad arguments. */
#include "check.h"

#include <sys/stat.h>

enum { FILES = 200 };

static void write_file(const char *path, const void *data, size_t size) {
  FILE *f = fopen(path, "wb");
  CHECK(f != NULL && fwrite(data, 1, size, f) == size && fclose(f) == 0);
}

/* Waits for the end of a job in short steps, as a program with a progress bar does; returns its status. */
static redox_status finish(redox_job job, char *json, size_t cap) {
  for (;;) {
    redox_status status = redox_job_wait(job, 20, json, cap, NULL);
    if (status != REDOX_ETIMEDOUT) {
      return status;
    }
    CHECK(strstr(json, "\"done\"") != NULL && strstr(json, "\"total\"") != NULL);
  }
}

static void test_pack_files(const char *src, const char *dst) {
  char options[2048], path[1024], json[65536];
  redox_job job = 0;
  redox_dataset ds;
  size_t need = 0;
  int i;

  CHECK(mkdir(src, 0700) == 0);
  for (i = 0; i < FILES; i++) {
    snprintf(path, sizeof path, "%s/file %03d", src, i);
    write_file(path, path, (size_t)i % strlen(path));
  }
  snprintf(options, sizeof options, "{\"src\": \"%s\", \"dst\": \"%s\", \"format\": \"files\"}", src, dst);
  EXPECT(REDOX_OK, redox_job_new("pack_files", options, &job));
  EXPECT(REDOX_OK, finish(job, json, sizeof json));
  EXPECT(REDOX_ERANGE, redox_job_wait(job, 0, json, 1, &need)); /* the result can be asked for again */
  CHECK(need > 1);
  EXPECT(REDOX_OK, redox_job_wait(job, -1, json, sizeof json, &need));
  for (i = 0; i < 100; i++) { /* a timeout of 0 asks, and never misses an end that has come */
    EXPECT(REDOX_OK, redox_job_wait(job, 0, json, sizeof json, &need));
  }
  EXPECT(REDOX_OK, redox_job_cancel(job)); /* too late to matter */
  EXPECT(REDOX_OK, redox_job_close(job));

  ds = open_dataset(dst);
  EXPECT(REDOX_OK, redox_info(ds, json, sizeof json, NULL));
  CHECK(strstr(json, "\"samples\":200") != NULL);
  EXPECT(REDOX_OK, redox_close(ds));
}

static void test_verify(const char *path) {
  char options[2048], json[65536], shard[1024];
  redox_job job = 0;
  FILE *f;

  snprintf(options, sizeof options, "{\"path\": \"%s\"}", path);
  EXPECT(REDOX_OK, redox_job_new("verify", options, &job));
  EXPECT(REDOX_OK, finish(job, json, sizeof json));
  CHECK(strstr(json, "\"damage\":[]") != NULL);
  EXPECT(REDOX_OK, redox_job_close(job));

  /* Damage is what was asked for: a result, no failure. */
  snprintf(shard, sizeof shard, "%s/shards/00000.rdx", path);
  f = fopen(shard, "r+b");
  CHECK(f != NULL && fseek(f, 5000, SEEK_SET) == 0 && fputs("flipped", f) >= 0 && fclose(f) == 0);
  EXPECT(REDOX_OK, redox_job_new("verify", options, &job));
  EXPECT(REDOX_OK, finish(job, json, sizeof json));
  CHECK(strstr(json, "\"damage\":[]") == NULL);
  EXPECT(REDOX_OK, redox_job_close(job));
}

static void test_cancel(const char *src, const char *dst) {
  char options[2048], json[65536];
  redox_job job = 0;
  redox_status status;

  snprintf(options, sizeof options, "{\"src\": \"%s\", \"dst\": \"%s\", \"format\": \"files\"}", src, dst);
  EXPECT(REDOX_OK, redox_job_new("pack_files", options, &job));
  EXPECT(REDOX_OK, redox_job_cancel(job));
  status = finish(job, json, sizeof json);
  CHECK(status == REDOX_ECANCELED || status == REDOX_OK); /* it may have been quicker */
  EXPECT(REDOX_OK, redox_job_close(job));
  EXPECT(REDOX_EBADF, redox_job_close(job));
  EXPECT(REDOX_EBADF, redox_job_wait(job, 0, json, sizeof json, NULL));
  EXPECT(REDOX_EBADF, redox_job_cancel(job));

  /* Closing a job that runs ends it. */
  snprintf(options, sizeof options, "{\"src\": \"%s\", \"dst\": \"%s-2\", \"format\": \"files\"}", src, dst);
  EXPECT(REDOX_OK, redox_job_new("pack_files", options, &job));
  EXPECT(REDOX_OK, redox_job_close(job));
}

static void test_bad_arguments(void) {
  redox_job job = 0;
  char json[1024];
  redox_status status;

  EXPECT(REDOX_EINVAL, redox_job_new(NULL, "{}", &job));
  EXPECT(REDOX_EINVAL, redox_job_new("verify", "{}", NULL));
  EXPECT(REDOX_EINVAL, redox_job_new("no such kind", "{}", &job));
  EXPECT(REDOX_EINVAL, redox_job_new("verify", "{\"no such option\": 1}", &job));
  EXPECT(REDOX_EINVAL, redox_job_new("pack_files", NULL, &job));
  CHECK(job == 0);
  status = redox_job_new("verify", "{\"path\": \"/nowhere at all\"}", &job);
  if (status == REDOX_OK) {
    status = finish(job, json, sizeof json);
    EXPECT(REDOX_OK, redox_job_close(job));
  }
  CHECK(status == REDOX_ENOTDATASET);
}

int main(int argc, char **argv) {
  char src[512], dst[512];

  CHECK(argc == 2 && strlen(argv[1]) < 500);
  snprintf(src, sizeof src, "%s-src", argv[1]);
  snprintf(dst, sizeof dst, "%s-dst", argv[1]);
  test_bad_arguments();
  test_pack_files(src, dst);
  test_verify(dst);
  test_cancel(src, argv[1]);
  return 0;
}
