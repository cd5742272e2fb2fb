/* What the machine allows: batches gathered by one thread in C, without checksums, plans or languages in between.
 *
 *   limits DIR SAMPLE_BYTES BATCH [SECONDS [CHUNK_BYTES SLOTS]]
 *
 * makes a file of about 1 GiB in DIR (page cache hot) and prints, in samples/s and ("_cpu") per second of processor time, what each of these ways reaches:
 *   gather   random rows of a populated mapping of the whole file, copied into one batch buffer
 *   chunks   pread of chunks (8 MiB) into slots (64) in turn, rows taken from random open slots into the batch buffer
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

enum { MOST_SLOTS = 1024 };
static const size_t FILE_BYTES = 1u << 30, MOST_CHUNK = 64u << 20;

static size_t chunk_bytes = 8u << 20, slots = 64;
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
  const size_t piece = 8u << 20;
  char *block = malloc(piece);
  if (!block) die("malloc");
  for (size_t i = 0; i < piece; i += 8) {
    uint64_t v = below(UINT64_MAX);
    memcpy(block + i, &v, 8);
  }
  for (size_t done = 0; done < FILE_BYTES; done += piece)
    if (write(fd, block, piece) != (ssize_t)piece) die("write");
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
  static char *slot[MOST_SLOTS];
  static size_t left[MOST_SLOTS], next;
  for (size_t i = 0; i < n; i++) {
    size_t s = below(slots);
    if (!left[s]) {
      if (!slot[s] && posix_memalign((void **)&slot[s], 4096, chunk_bytes)) die("posix_memalign");
      read_fully(slot[s], chunk_bytes, (off_t)(next++ % chunks * chunk_bytes));
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

static void measure(const char *way, void (*fill)(size_t), double seconds) {
  double start = now(), end = start + seconds / 4;
  while (now() < end) fill(batch); /* warm up: pages touched, slots filled */
  size_t done = 0;
  clock_t cpu = clock();
  for (start = now(); now() < start + seconds; done += batch) fill(batch);
  double passed = now() - start, used = (double)(clock() - cpu) / CLOCKS_PER_SEC;
  printf(", \"%s\": %.0f, \"%s_cpu\": %.0f", way, (double)done / passed, way, (double)done / used);
}

int main(int argc, char **argv) {
  if (argc < 4) {
    fprintf(stderr, "usage: limits DIR SAMPLE_BYTES BATCH [SECONDS [CHUNK_BYTES SLOTS]]\n");
    return 2;
  }
  sample_bytes = strtoul(argv[2], NULL, 10), batch = strtoul(argv[3], NULL, 10);
  double seconds = argc > 4 ? atof(argv[4]) : 2;
  if (argc > 6) chunk_bytes = strtoul(argv[5], NULL, 10), slots = strtoul(argv[6], NULL, 10);
  if (!slots || slots > MOST_SLOTS || chunk_bytes > MOST_CHUNK || !sample_bytes || sample_bytes > chunk_bytes || !batch ||
      seconds <= 0) {
    fprintf(stderr, "limits: a sample must fit a chunk, a chunk %zu bytes, slots be 1 to %d, batch and seconds positive\n",
            MOST_CHUNK, MOST_SLOTS);
    return 2;
  }
  rows = FILE_BYTES / sample_bytes, chunk_rows = chunk_bytes / sample_bytes, chunks = FILE_BYTES / chunk_bytes;
  out = malloc(batch * sample_bytes);
  if (!out) die("malloc");
  make_file(argv[1]);
  printf("{\"sample_bytes\": %zu, \"batch\": %zu", sample_bytes, batch);
  measure("gather", gather, seconds);
  measure("chunks", from_chunks, seconds);
  measure("inplace", in_place, seconds);
  puts("}");
  return 0;
}
