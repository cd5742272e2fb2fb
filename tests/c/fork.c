/* A child forked after the library was loaded: every call says REDOX_EFORK at once, none hangs; the parent goes on. */
#include "check.h"

#include <sys/wait.h>
#include <unistd.h>

static void in_child(redox_dataset ds, redox_loader loader) {
  uint64_t handle = 0;
  int64_t number = 0;
  char text[8192];
  size_t need;
  buffers b;

  alarm(10); /* a call that enters Go hangs */
  buffers_init(&b, 1, 1);
  EXPECT(REDOX_EFORK, redox_open("x", NULL, REDOX_ABI_VERSION, &handle));
  EXPECT(REDOX_EFORK, redox_info(ds, text, sizeof text, &need));
  EXPECT(REDOX_EFORK, redox_read(ds, &number, 1, &b.batch));
  EXPECT(REDOX_EFORK, redox_origin(ds, &number, 1, &number, NULL, 0, NULL));
  EXPECT(REDOX_EFORK, redox_read_stats(ds, text, sizeof text, NULL));
  EXPECT(REDOX_EFORK, redox_find_key(ds, "x", &number));
  EXPECT(REDOX_EFORK, redox_plan_indices(ds, NULL, 0, &number, 1, NULL));
  EXPECT(REDOX_EFORK, redox_simulate(ds, NULL, text, sizeof text, NULL));
  EXPECT(REDOX_EFORK, redox_subset_new(ds, &number, 1, &handle));
  EXPECT(REDOX_EFORK, redox_subset_close(1));
  EXPECT(REDOX_EFORK, redox_close(ds));
  EXPECT(REDOX_EFORK, redox_loader_new(ds, NULL, &handle));
  EXPECT(REDOX_EFORK, redox_next_batch(loader, &b.batch, -1));
  EXPECT(REDOX_EFORK, redox_acquire(loader, &b.batch, -1, &handle));
  EXPECT(REDOX_EFORK, redox_release(1));
  EXPECT(REDOX_EFORK, redox_set_epoch(loader, 1));
  EXPECT(REDOX_EFORK, redox_state(loader, text, sizeof text, NULL));
  EXPECT(REDOX_EFORK, redox_restore(loader, "{}"));
  EXPECT(REDOX_EFORK, redox_stats(loader, text, sizeof text, NULL));
  EXPECT(REDOX_EFORK, redox_cancel(loader));
  EXPECT(REDOX_EFORK, redox_loader_close(loader));
  EXPECT(REDOX_EFORK, redox_writer_new("x", "{}", &handle));
  EXPECT(REDOX_EFORK, redox_writer_write(1, b.fields, 1));
  EXPECT(REDOX_EFORK, redox_writer_write_from(1, b.fields, 1, 0, NULL));
  EXPECT(REDOX_EFORK, redox_writer_resumed(1, &handle));
  EXPECT(REDOX_EFORK, redox_writer_commit(1));
  EXPECT(REDOX_EFORK, redox_writer_abort(1));
  EXPECT(REDOX_EFORK, redox_job_new("verify", "{}", &handle));
  EXPECT(REDOX_EFORK, redox_job_wait(1, 0, text, sizeof text, NULL));
  EXPECT(REDOX_EFORK, redox_job_cancel(1));
  EXPECT(REDOX_EFORK, redox_job_close(1));
  EXPECT(REDOX_EFORK, redox_engine_serve(-1, "{}"));
  EXPECT(REDOX_EFORK, redox_log_read(text, sizeof text, NULL));

  CHECK(redox_last_error(text, sizeof text) <= sizeof text && strstr(text, "forked") != NULL);
  CHECK(redox_last_error_json(text, sizeof text) <= sizeof text && strstr(text, "\"status\":-13") != NULL);
  CHECK(redox_abi_version() == REDOX_ABI_VERSION);
  CHECK(strcmp(redox_version(), REDOX_VERSION) == 0);
  CHECK(strcmp(redox_source_hash(), "") == 0);
  CHECK(strlen(redox_strerror(REDOX_EFORK)) > 0);
  buffers_free(&b);
}

static void wait_for(pid_t child) {
  int status = -1;
  CHECK(child > 0 && waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv) {
  redox_dataset ds;
  redox_loader loader = 0;
  buffers b;
  pid_t child;

  CHECK(argc == 2);
  make_dataset(argv[1]);
  ds = open_dataset(argv[1]);
  EXPECT(REDOX_OK, redox_loader_new(ds, "{\"batch_size\": 10}", &loader));
  child = fork();
  if (child == 0) {
    pid_t grandchild;
    in_child(ds, loader);
    grandchild = fork(); /* sees it too */
    if (grandchild == 0) {
      in_child(ds, loader);
      _exit(0);
    }
    wait_for(grandchild);
    _exit(0);
  }
  wait_for(child);

  buffers_init(&b, 10, 10 * MAX_DATA);
  EXPECT(REDOX_OK, redox_next_batch(loader, &b.batch, -1));
  check_batch(&b.batch, NULL);
  buffers_free(&b);
  EXPECT(REDOX_OK, redox_loader_close(loader));
  EXPECT(REDOX_OK, redox_close(ds));
  return 0;
}
