/* The fork guard.
 *
 * A Go runtime does not survive fork(): the child has one thread, so the first call that needs a goroutine, a
 * timer or the collector hangs forever, while trivial calls work and hide the mistake. The guard is a page that
 * the kernel zeroes in every child (MADV_WIPEONFORK): unlike pthread_atfork it also notices a raw clone(), and
 * unlike getpid() it costs one load instead of a system call.
 */
#define _GNU_SOURCE
#include "shim.h"

#include <sys/mman.h>
#include <unistd.h>

static volatile unsigned char *page; /* page[0] is 1 in the process that loaded the library; NULL: no such page */
static pid_t owner;                  /* for kernels before 4.14, which cannot wipe */

__attribute__((constructor)) static void guard(void) {
  long size = sysconf(_SC_PAGESIZE);
  void *p;

  owner = getpid();
  p = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) {
    return;
  }
  if (madvise(p, (size_t)size, MADV_WIPEONFORK) != 0) {
    munmap(p, (size_t)size);
    return;
  }
  page = p;
  page[0] = 1;
}

int redox_shim_forked(void) { return page != NULL ? page[0] == 0 : getpid() != owner; }
