// Memory of an accelerator besides arena and state. Contract in memory.h.
//
// One scratch serves all kernels, because they run one after the other. It only grows, while
// programs are compiled, so its address is asked for at every run. Everything counts from here, so
// that the planner's number (dry_compile.c) is the worker's.

#include "accelerators/cpu/memory.h"

#include "accelerators/cpu/pages.h"
#include "accelerators/cpu/parallel.h"
#include "lib/base/machine/machine.h"

enum { ALIGN = 64, LARGE_BYTES = 256 << 10 }; // large: by whole pages

// What a dry allocation gives: oneDNN wants an address to describe memory with.
static _Alignas(ALIGN) char nothing[ALIGN];

static size_t rounded(size_t bytes) {
    const size_t to = bytes >= LARGE_BYTES ? td_page_bytes() : ALIGN;
    return td_align_up(TD_MAX(bytes, (size_t)1), to);
}

void *td_cpu_memory_alloc(struct td_cpu_memory *m, size_t bytes) {
    void *p = m->is_dry              ? nothing
              : bytes >= LARGE_BYTES ? td_pages_map(bytes)
                                     : aligned_alloc(ALIGN, rounded(bytes));
    if (p) m->held_bytes += rounded(bytes);
    return p;
}

void td_cpu_memory_populate(void *p, size_t bytes) {
    if (bytes >= LARGE_BYTES) td_pages_populate(p, bytes, td_parallel_threads());
}

void td_cpu_memory_free(struct td_cpu_memory *m, void *p, size_t bytes) {
    if (!p) return;
    m->held_bytes -= rounded(bytes);
    if (p == nothing) return;
    if (bytes >= LARGE_BYTES) {
        td_pages_unmap(p, bytes);
    } else {
        free(p);
    }
}

td_status td_cpu_memory_grow_scratch(struct td_cpu_memory *m, size_t bytes) {
    if (bytes <= m->scratch_bytes) return TD_OK;
    td_cpu_memory_free(m, m->scratch, m->scratch_bytes);
    m->scratch = NULL;
    m->scratch_bytes = 0;
    void *more = td_cpu_memory_alloc(m, bytes);
    if (!more) return td_fail_oom();
    m->scratch = more;
    m->scratch_bytes = bytes;
    return TD_OK;
}

void td_cpu_memory_finish(struct td_cpu_memory *m) {
    td_cpu_memory_free(m, m->scratch, m->scratch_bytes);
    TD_CHECK(m->held_bytes == 0);
    *m = (struct td_cpu_memory){0};
}
