// Large memory from the system; contract in pages.h. A page that is first touched by a kernel costs
// a fault of its own, 1.4 us of 4 KiB. One that is cleared here costs a third of that, and less in
// huge pages.

#include "accelerators/cpu/pages.h"

#include <errno.h>
#include <sys/mman.h>

#include "accelerators/cpu/parallel.h"
#include "lib/base/machine/machine.h"

enum { POPULATE_BYTES = 4 << 20 }; // at least, a thread

static size_t whole_pages(size_t bytes) {
    return td_align_up(TD_MAX(bytes, (size_t)1), td_page_bytes());
}

// What is cut off never was writable: a limit of the process counts only what is used.
char *td_pages_map(size_t bytes) {
    enum { HUGE_BYTES = 2 << 20 }; // most kernels'; elsewhere a mapping begins where it may
    bytes = whole_pages(bytes);
    const size_t slack = bytes >= HUGE_BYTES ? HUGE_BYTES : 0;
    char *p = mmap(NULL, bytes + slack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    const size_t before = slack ? td_align_up((uintptr_t)p, HUGE_BYTES) - (uintptr_t)p : 0;
    if (before) munmap(p, before);
    if (slack > before) munmap(p + before + bytes, slack - before);
    p += before;
    if (mprotect(p, bytes, PROT_READ | PROT_WRITE) != 0) {
        const int why = errno;
        munmap(p, bytes);
        errno = why;
        return NULL;
    }
    madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

void td_pages_unmap(void *p, size_t bytes) {
    if (p) munmap(p, whole_pages(bytes));
}

static void populate_range(const void *arg, int64_t begin, int64_t end) {
    char *base = *(char *const *)arg;
    const int64_t page = (int64_t)td_page_bytes();
    madvise(base + begin * page, (size_t)((end - begin) * page), MADV_POPULATE_WRITE);
}

void td_pages_populate(char *p, size_t bytes, int32_t n_threads) {
    const size_t page = td_page_bytes();
    td_parallel(n_threads, (int64_t)(whole_pages(bytes) / page), (int64_t)(POPULATE_BYTES / page),
                populate_range, &p);
}
