/* What the machine allows: batches gathered by one thread in C, without checksums, plans or languages in between.
 *
 *   limits DIR SAMPLE_BYTES BATCH [SECONDS]
 *
 * makes a file of about 1 GiB in DIR (page cache hot) and prints, in samples/s, what each of these ways reaches:
 *   gather   random rows of a populated mapping of the whole file, copied into one batch buffer
 *   chunks   pread of 8 MiB chunks into 64 slots in turn, rows taken from random open slots into the batch buffer
 *   inplace  pread of each row to its place in the batch buffer
 * These are the limits that benchmarks/targets.py holds the loader against, in the same round. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { SLOTS = 64 };
static const size_t CHUNK = 8u << 20, FILE_BYTES = 1u << 30;

static size_t sample_bytes, batch, rows, chunk_rows, chunks;
static char *out;
static int fd;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t state = 88172645463325252u;
static uint64_t below(uint64_t n) { /* xorshift; a bias of n/2^64 does not matter here */
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return state % n;
}

static void die(const char *what) {
  perror(what);
  exit(1);
}

static void make_file(const char *dir) {
  char path[4096];
  snprintf(path, sizeof path, "%s/redox-limits-XXXXXX", dir);
  fd = mkstemp(path);
  if (fd < 0) die(path);
  unlink(path); /* nothing is left behind, however this ends */
  char *block = malloc(CHUNK);
  if (!block) die("malloc");
  for (size_t i = 0; i < CHUNK; i += 8) {
    uint64_t v = below(UINT64_MAX);
    memcpy(block + i, &v, 8);
  }
  for (size_t done = 0; done < FILE_BYTES; done += CHUNK)
    if (write(fd, block, CHUNK) != (ssize_t)CHUNK) die("write");
  free(block);
}

static void gather(size_t n) {
  static char *map;
  if (!map) {
    map = mmap(NULL, FILE_BYTES, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (map == MAP_FAILED) die("mmap");
  }
  for (size_t i = 0; i < n; i++) memcpy(out + i * sample_bytes, map + below(rows) * sample_bytes, sample_bytes);
}

static void read_fully(char *to, size_t n, off_t at) {
  for (size_t done = 0; done < n;) {
    ssize_t got = pread(fd, to + done, n - done, at + (off_t)done);
    if (got <= 0) die("pread");
    done += (size_t)got;
  }
}

static void from_chunks(size_t n) {
  static char *slot[SLOTS];
  static size_t left[SLOTS], next;
  for (size_t i = 0; i < n; i++) {
    size_t s = below(SLOTS);
    if (!left[s]) {
      if (!slot[s] && posix_memalign((void **)&slot[s], 4096, CHUNK)) die("posix_memalign");
      read_fully(slot[s], CHUNK, (off_t)(next++ % chunks * CHUNK));
      left[s] = chunk_rows;
    }
    left[s]--;
    /* rows of a used-up chunk in scattered order, as a shuffled order would ask for them */
    size_t row = left[s] * 2654435761u % chunk_rows;
    memcpy(out + i * sample_bytes, slot[s] + row * sample_bytes, sample_bytes);
  }
}

static void in_place(size_t n) {
  for (size_t i = 0; i < n; i++) read_fully(out + i * sample_bytes, sample_bytes, (off_t)(below(rows) * sample_bytes));
}

static double measure(void (*fill)(size_t), double seconds) {
  double start = now(), end = start + seconds / 4;
  while (now() < end) fill(batch); /* warm up: pages touched, slots filled */
  size_t done = 0;
  for (start = now(); now() < start + seconds; done += batch) fill(batch);
  return (double)done / (now() - start);
}

int main(int argc, char **argv) {
  if (argc < 4) {
    fprintf(stderr, "usage: limits DIR SAMPLE_BYTES BATCH [SECONDS]\n");
    return 2;
  }
  sample_bytes = strtoul(argv[2], NULL, 10), batch = strtoul(argv[3], NULL, 10);
  double seconds = argc > 4 ? atof(argv[4]) : 2;
  if (!sample_bytes || sample_bytes > CHUNK || !batch || seconds <= 0) {
    fprintf(stderr, "limits: samples must have 1 to %zu bytes, batches at least one sample\n", CHUNK);
    return 2;
  }
  rows = FILE_BYTES / sample_bytes, chunk_rows = CHUNK / sample_bytes, chunks = FILE_BYTES / CHUNK;
  out = malloc(batch * sample_bytes);
  if (!out) die("malloc");
  make_file(argv[1]);
  printf("{\"sample_bytes\": %zu, \"batch\": %zu", sample_bytes, batch);
  printf(", \"gather\": %.0f", measure(gather, seconds));
  printf(", \"chunks\": %.0f", measure(from_chunks, seconds));
  printf(", \"inplace\": %.0f}\n", measure(in_place, seconds));
  return 0;
}
