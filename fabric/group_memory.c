// See the header.

#include "fabric/group_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/futex.h"

#define SLICE_NS (50 * TD_NS_PER_MS)

enum { NOT_YET, READY, NO_ROOM };

struct header {
    _Atomic uint32_t state;
    _Atomic uint64_t bytes;
};

static td_status no_room(size_t bytes) {
    return td_status_with_class(td_fail(TD_RESOURCE_EXHAUSTED,
                                        "%zu bytes of memory that the ranks share cannot be had",
                                        bytes),
                                TD_CLASS_OUT_OF_MEMORY);
}

static td_status make(const struct td_rank_env *e, struct header *h, size_t bytes) {
    const off_t all = (off_t)(TD_GROUP_HEADER_BYTES + bytes);
    const bool grown = ftruncate(e->group_fd, all) == 0 && fallocate(e->group_fd, 0, 0, all) == 0;
    atomic_store_explicit(&h->bytes, bytes, memory_order_relaxed);
    atomic_store_explicit(&h->state, grown ? READY : NO_ROOM, memory_order_release);
    td_futex_wake_all(&h->state);
    return grown ? TD_OK : no_room(bytes);
}

static td_status await(const struct td_group_memory *m, struct header *h) {
    const struct td_mono deadline = td_mono_add(td_mono_now(), m->timeout_ns);
    const size_t bytes = m->bytes;
    for (;;) {
        const uint32_t state = atomic_load_explicit(&h->state, memory_order_acquire);
        if (state == NO_ROOM) return no_room(bytes);
        if (state == READY) break;
        if (atomic_load_explicit(&m->page->abort, memory_order_relaxed)) {
            return td_status_with_class(td_fail(TD_ABORTED, "another rank is gone"),
                                        TD_CLASS_COLLECTIVE);
        }
        if (td_mono_now().ns > deadline.ns) {
            return td_status_with_class(td_fail(TD_DEADLINE_EXCEEDED,
                                                "the first rank of this node did not come to "
                                                "td_fabric_setup within %lld s "
                                                "(trainer.save_timeout); see its log",
                                                (long long)(m->timeout_ns / TD_NS_PER_S)),
                                        TD_CLASS_COLLECTIVE);
        }
        td_futex_wait(&h->state, NOT_YET, SLICE_NS);
    }
    const uint64_t theirs = atomic_load_explicit(&h->bytes, memory_order_relaxed);
    if (theirs == bytes) return TD_OK;
    return td_status_with_class(
        td_fail(TD_FAILED_PRECONDITION,
                "this rank sets up what needs %zu shared bytes, the first rank "
                "of this node what needs %llu: all ranks set up the same",
                bytes, (unsigned long long)theirs),
        TD_CLASS_USER_CODE);
}

static td_status map(int fd, off_t offset, size_t bytes, void **out) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
    if (at == MAP_FAILED) return td_fail_errno(TD_RESOURCE_EXHAUSTED, "map the ranks' memory");
    *out = at;
    return TD_OK;
}

td_status td_group_memory_map(const struct td_group_memory *m, void **out_map) {
    const struct td_rank_env *e = m->env;
    struct stat st;
    void *header;
    if (e->group_fd < 0 || fstat(e->group_fd, &st) != 0 || st.st_size < TD_GROUP_HEADER_BYTES) {
        return td_fail(TD_FAILED_PRECONDITION,
                       TD_RANK_ENV " names no memory for the group of %d ranks", e->world_size);
    }
    TD_TRY(map(e->group_fd, 0, TD_GROUP_HEADER_BYTES, &header));
    struct header *h = header;
    td_status s = TD_OK;
    if (m->is_first && atomic_load(&h->state) != NOT_YET) {
        s = td_status_with_class(
            td_fail(TD_FAILED_PRECONDITION,
                    "the ranks of this process were set up before, which their "
                    "shared memory allows once"),
            TD_CLASS_USER_CODE);
    } else {
        s = m->is_first ? make(e, h, m->bytes) : await(m, h);
    }
    munmap(header, TD_GROUP_HEADER_BYTES);
    TD_TRY(s);
    return map(e->group_fd, TD_GROUP_HEADER_BYTES, m->bytes, out_map);
}

td_status td_group_memory_charge(size_t share_bytes) {
    struct rlimit data;
    if (getrlimit(RLIMIT_DATA, &data) != 0) {
        return td_fail_errno(TD_INTERNAL, "read the limit of private memory");
    }
    if (data.rlim_cur == RLIM_INFINITY) return TD_OK;
    if (data.rlim_cur <= share_bytes) {
        return td_status_with_class(
            td_fail(TD_RESOURCE_EXHAUSTED,
                    "a rank's share of what the ranks share is %zu bytes, and it may have %llu in "
                    "all: raise resources.memory_bytes",
                    share_bytes, (unsigned long long)data.rlim_cur),
            TD_CLASS_OUT_OF_MEMORY);
    }
    data.rlim_cur -= share_bytes;
    data.rlim_max = data.rlim_cur;
    if (setrlimit(RLIMIT_DATA, &data) == 0) return TD_OK;
    return td_fail_errno(TD_INTERNAL, "lower the limit of private memory");
}
