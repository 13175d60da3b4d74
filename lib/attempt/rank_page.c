// Names of phases; the memory; asking for a drain.
//
// A drain is a ticket: the rank raises drain_asked, the launcher copies it to drain_done when it
// has drained. The copy alone says nothing to the launcher, so a rank that writes nonsense there
// hurts nobody but itself.

#include "lib/attempt/rank_page.h"

#include <fcntl.h>
#include <sys/mman.h>

#include "lib/base/futex.h"

const char *td_rank_phase_name(int64_t phase) {
    static const char *const names[] = {"starting", "loading", "training", "validating",
                                        "testing",  "saving",  "ended",    "predicting"};
    _Static_assert(TD_COUNTOF(names) == TD_PHASE_LOADING_DEVICES, "one name per phase");
    if (td_rank_phase_detail(phase)[0]) return names[TD_PHASE_LOADING];
    return phase >= 0 && phase < (int64_t)TD_COUNTOF(names) ? names[phase] : "unknown";
}

const char *td_rank_phase_detail(int64_t phase) {
    static const char *const details[] = {"devices (1 of 6)",    "data (2 of 6)",
                                          "checkpoint (3 of 6)", "model (4 of 6)",
                                          "weights (5 of 6)",    "kernels (6 of 6)"};
    const int64_t at = phase - TD_PHASE_LOADING_DEVICES;
    return at >= 0 && at < (int64_t)TD_COUNTOF(details) ? details[at] : "";
}

size_t td_rank_page_memory(void) {
    size_t ring = td_ring_bytes(sizeof(struct td_metric_record), TD_METRIC_RING_RECORDS);
    return td_align_up(TD_RANK_PAGE_BYTES + ring, td_page_bytes());
}

td_status td_rank_page_make(int32_t rank, int32_t world_size, int *out_fd,
                            struct td_rank_page **out_page, struct td_ring *out_ring) {
    size_t bytes = td_rank_page_memory();
    TD_AUTO_CLOSE int fd = memfd_create("traind-rank", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return td_fail_errno(TD_RESOURCE_EXHAUSTED, "make the rank's page");
    if (ftruncate(fd, (off_t)bytes) != 0 || fallocate(fd, 0, 0, (off_t)bytes) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        td_status s = td_fail_errno(TD_RESOURCE_EXHAUSTED,
                                    "allocate %zu bytes of shared memory for a rank's page", bytes);
        return td_status_with_class(s, TD_CLASS_OUT_OF_MEMORY);
    }
    struct td_rank_page *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) return td_fail_errno(TD_RESOURCE_EXHAUSTED, "map the rank's page");
    page->magic = TD_RANK_PAGE_MAGIC;
    page->version = TD_RANK_PAGE_VERSION;
    page->rank = rank;
    page->world_size = world_size;
    struct td_ring ring;
    td_status s = td_ring_format((char *)page + TD_RANK_PAGE_BYTES, bytes - TD_RANK_PAGE_BYTES,
                                 sizeof(struct td_metric_record), TD_METRIC_RING_RECORDS, &ring);
    if (s) {
        munmap(page, bytes);
        return s;
    }
    *out_fd = td_steal_fd(&fd);
    *out_page = page;
    *out_ring = ring;
    return TD_OK;
}

static int64_t in_range(int64_t value, int64_t most) {
    return TD_MIN(TD_MAX(value, (int64_t)0), most);
}

struct td_rank_progress td_rank_page_progress(const struct td_rank_page *p) {
    return (struct td_rank_progress){
        .phase = atomic_load(&p->phase),
        .epoch = (int32_t)in_range(atomic_load(&p->epoch), INT32_MAX),
        .step = (int32_t)in_range(atomic_load(&p->step), INT32_MAX),
        .total_steps = (int32_t)in_range(atomic_load(&p->total_steps), INT32_MAX),
        .samples = in_range(atomic_load(&p->samples), INT64_MAX),
        .heartbeat_ns = in_range(atomic_load(&p->heartbeat_ns), INT64_MAX),
        .collective_seq = in_range(atomic_load(&p->collective_seq), INT64_MAX)};
}

uint32_t td_rank_page_pass(struct td_rank_page *p) {
    return atomic_fetch_add(&p->boundary, 1) + 1;
}

uint32_t td_rank_page_boundary(const struct td_rank_page *p) {
    return atomic_load(&p->boundary);
}

uint32_t td_rank_page_ask_drain(struct td_rank_page *p) {
    return atomic_fetch_add(&p->drain_asked, 1) + 1;
}

td_status td_rank_page_await_drain(struct td_rank_page *p, uint32_t asked, int64_t timeout_ns) {
    int64_t deadline_ns = td_mono_now().ns + timeout_ns;
    for (;;) {
        uint32_t done = atomic_load(&p->drain_done);
        int64_t left_ns = deadline_ns - td_mono_now().ns;
        if ((int32_t)(done - asked) >= 0) return TD_OK;
        if (left_ns <= 0) {
            return td_fail(TD_DEADLINE_EXCEEDED, "the launcher took no metric points for %.1f s",
                           (double)timeout_ns / TD_NS_PER_S);
        }
        td_futex_wait(&p->drain_done, done, left_ns);
    }
}

uint32_t td_rank_page_drain_asked(const struct td_rank_page *p) {
    return atomic_load(&p->drain_asked);
}

void td_rank_page_answer_drain(struct td_rank_page *p, uint32_t asked) {
    if (atomic_exchange(&p->drain_done, asked) != asked) td_futex_wake_all(&p->drain_done);
}

int td_stop_strength(int mode) {
    static const int strength[] = {[TD_STOP_NONE] = 0,
                                   [TD_STOP_CHECKPOINT] = 1,
                                   [TD_STOP_NOW] = 2,
                                   [TD_STOP_ABORT] = 3,
                                   [TD_STOP_KILL] = 4};
    return mode >= 0 && mode < (int)TD_COUNTOF(strength) ? strength[mode] : -1;
}
