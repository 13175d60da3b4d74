// Meetings of ranks in shared memory (see shm_team.h).
//
// There are two call records, by parity. A fast rank can open meeting m + 1 while a slow one still
// reads what was said at m. But it cannot reach m + 2 before the slow one has arrived at m + 1.
// Why sleepers are counted with sequential consistency: the waker stores `arrived` and then reads
// `sleepers`, the sleeper adds itself and then has the kernel compare `arrived`; either sees the
// other. A rank killed asleep leaves its count, which costs needless wakes and nothing else.
// Rejected: a central counter (all ranks write one line, and it cannot say who is missing).

#include "collectives/shm_team.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "collectives/collectives.h"
#include "collectives/reduce.h"
#include "lib/base/clock.h"
#include "lib/base/futex.h"

enum {
    SPINS_ALONE = 2000, // pauses when each rank can have a core: some tens of microseconds
    SPINS_CROWDED = 20,
    WAIT_SLICE_NS = 1000000,
};
#define IDENTITY_MAGIC UINT64_C(0x7464736d) // "tdsm"
enum { IDENTITY_VERSION = 2 };

static uint64_t identity_of(int32_t world) {
    return IDENTITY_MAGIC << 32 | (uint64_t)IDENTITY_VERSION << 16 | (uint64_t)(uint16_t)world;
}

static void cpu_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

// ---- joining -----------------------------------------------------------------------------------
// The first rank to come writes the word, the others compare: no rank waits for another to join.
static td_status agree(_Atomic uint64_t *word, uint64_t mine, const char *what) {
    uint64_t found = 0;
    if (atomic_compare_exchange_strong(word, &found, mine) || found == mine) return TD_OK;
    return td_fail(TD_FAILED_PRECONDITION,
                   "the shared mapping belongs to another group: %s is %#" PRIx64
                   ", this rank has %#" PRIx64 "; every attempt needs a fresh mapping",
                   what, found, mine);
}

static td_status fail_aborted(uint32_t by) {
    td_status s = by == TD_SHM_ABORT_OUTSIDE
                      ? td_fail(TD_ABORTED, "a peer is gone, the attempt is over")
                      : td_fail(TD_ABORTED,
                                "rank %" PRIu32 " gave up, the attempt is over; its own error "
                                "says why",
                                by - 1);
    return td_status_with_class(td_status_with_reason(s, "COLLECTIVE_ABORTED"),
                                TD_CLASS_COLLECTIVE);
}

td_status td_shm_team_init(struct td_shm_team *t, const struct td_collective_config *config,
                           uint64_t region_bytes) {
    struct td_shm_head *head = config->shared;
    TD_TRY(agree(&head->identity, identity_of(config->world_size), "its identity"));
    TD_TRY(agree(&head->region_bytes, region_bytes, "the size of a gradient region"));
    uint32_t by = atomic_load(&head->aborted);
    if (by) return fail_aborted(by);
    struct td_shm_slot *slot = &head->slot[config->rank];
    uint32_t free_slot = 0;
    if (!atomic_compare_exchange_strong(&slot->joined, &free_slot, 1)) {
        return td_fail(TD_ALREADY_EXISTS, "rank %d has joined this group before and not left it",
                       config->rank);
    }
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    *t = (struct td_shm_team){
        .head = head,
        .aborted_by = &head->aborted,
        .rank = config->rank,
        .world = config->world_size,
        .joined = config->deadline,
        .aborted = config->aborted,
        .aborted_arg = config->aborted_arg,
        .meeting = atomic_load(&slot->arrived),
        .awaited = atomic_load(&slot->arrived),
        .spins = config->world_size <= cores ? SPINS_ALONE : SPINS_CROWDED,
    };
    atomic_init(&t->set, &t->joined);
    t->deadlines = &t->set;
    return TD_OK;
}

void td_shm_team_split(struct td_shm_team *t, const struct td_shm_team *whole,
                       struct td_shm_head *head, const uint16_t *names, int32_t rank,
                       int32_t world) {
    *t = *whole;
    t->head = head;
    t->names = names;
    t->rank = rank;
    t->world = world;
    t->meeting = 0;
    t->awaited = 0;
}

int32_t td_shm_team_name(const struct td_shm_team *t, int32_t rank) {
    return t->names ? t->names[rank] : rank;
}

void td_shm_team_set_deadline(struct td_shm_team *t,
                              const struct td_collective_deadline *deadline) {
    atomic_store(t->deadlines, deadline);
}

void td_shm_team_finish(struct td_shm_team *t) {
    if (t->head) atomic_store(&t->head->slot[t->rank].joined, 0);
    t->head = NULL;
}

// ---- failing -----------------------------------------------------------------------------------
static void abort_by(struct td_shm_team *t, uint32_t by) {
    uint32_t nobody = 0;
    atomic_compare_exchange_strong(t->aborted_by, &nobody, by);
    for (int32_t p = 0; p < t->world; p++) {
        td_futex_wake_all(&t->head->slot[p].arrived);
    }
}

static void give_up(struct td_shm_team *t) {
    abort_by(t, 1 + (uint32_t)td_shm_team_name(t, t->rank));
}

void td_shm_team_abort(struct td_shm_team *t) {
    give_up(t);
}

static void describe_barrier(const struct td_shm_call *c, char *out, size_t out_bytes) {
    char digest[24] = "";
    if (strncmp(c->tag, TD_BARRIER_END, sizeof c->tag) == 0) {
        snprintf(out, out_bytes, "the barrier at its end ('%s')", TD_BARRIER_END);
        return;
    }
    if (c->is_cut) snprintf(digest, sizeof digest, "... (digest %08" PRIx32 ")", c->detail);
    snprintf(out, out_bytes, "barrier '%.*s'%s", (int)sizeof c->tag, c->tag, digest);
}

static void describe(const struct td_shm_call *c, char *out, size_t out_bytes) {
    const char *dtype = c->dtype < TD_DTYPE_COUNT ? td_dtype_name((enum td_dtype)c->dtype) : "?";
    char place[40] = "";
    switch ((enum td_shm_kind)c->kind) {
    case TD_SHM_ALL_REDUCE:
        if (c->place >= 0) snprintf(place, sizeof place, " at place %" PRId64, c->place);
        snprintf(out, out_bytes, "all_reduce (%s) of %" PRId64 " %s%s",
                 td_reduce_op_name((enum td_reduce_op)c->op), c->n, dtype, place);
        return;
    case TD_SHM_BUCKET:
        snprintf(out, out_bytes, "all_reduce_bucket of %" PRId64 " %s %s flags at byte %" PRId64,
                 c->n, dtype, c->detail ? "with" : "without", c->place);
        return;
    case TD_SHM_ALL_GATHER:
        snprintf(out, out_bytes, "all_gather of %" PRId64 " bytes", c->n);
        return;
    case TD_SHM_BROADCAST:
        snprintf(out, out_bytes, "broadcast of %" PRId64 " bytes from rank %" PRIu32, c->n,
                 c->detail);
        return;
    case TD_SHM_BARRIER:
        describe_barrier(c, out, out_bytes);
        return;
    case TD_SHM_REDUCE:
        snprintf(out, out_bytes, "reduce (%s) of %" PRId64 " %s to rank %" PRIu32,
                 td_reduce_op_name((enum td_reduce_op)c->op), c->n, dtype, c->detail);
        return;
    case TD_SHM_REDUCE_SCATTER:
        snprintf(out, out_bytes, "reduce_scatter (%s) of %" PRId64 " %s a rank",
                 td_reduce_op_name((enum td_reduce_op)c->op), c->n, dtype);
        return;
    case TD_SHM_GATHER:
        snprintf(out, out_bytes, "gather of %" PRId64 " bytes to rank %" PRIu32, c->n, c->detail);
        return;
    case TD_SHM_SCATTER:
        snprintf(out, out_bytes, "scatter of %" PRId64 " bytes from rank %" PRIu32, c->n,
                 c->detail);
        return;
    case TD_SHM_ALL_GATHER_UNEVEN:
        snprintf(out, out_bytes, "all_gather_uneven");
        return;
    case TD_SHM_ALL_TO_ALL:
        snprintf(out, out_bytes, "all_to_all of %" PRId64 " bytes", c->n);
        return;
    case TD_SHM_GROUP_CREATE:
        snprintf(out, out_bytes, "group_create of %" PRId64 " ranks (digest %08" PRIx32 ")", c->n,
                 c->detail);
        return;
    case TD_SHM_GROUP_DESTROY:
        snprintf(out, out_bytes, "group_destroy");
        return;
    }
    snprintf(out, out_bytes, "an unknown call");
}

static bool reached(const struct td_shm_slot *slot, uint32_t meeting) {
    uint32_t arrived = atomic_load_explicit(&slot->arrived, memory_order_acquire);
    return (int32_t)(arrived - meeting) >= 0;
}

static td_status fail_missing(struct td_shm_team *t, const char *what, int n_missing,
                              const char *missing, const struct td_collective_deadline *deadline) {
    char within[TD_COLLECTIVE_WITHIN];
    give_up(t);
    td_status s =
        td_fail(TD_DEADLINE_EXCEEDED, "%s: rank%s %s of %s%d did not arrive %s; see their logs",
                what, n_missing > 1 ? "s" : "", missing, t->names ? "a group of " : "", t->world,
                td_collective_within(deadline, within));
    s = td_status_with_meta(td_status_with_reason(s, "COLLECTIVE_TIMEOUT"), "missing_ranks", "%s",
                            missing);
    return td_status_with_class(s, TD_CLASS_COLLECTIVE);
}

typedef char rank_list[256];

// Lists who has not arrived at a meeting, and returns how many they are.
static int list_missing(struct td_shm_team *t, uint32_t meeting, rank_list out) {
    size_t len = 0;
    int n_missing = 0;
    out[0] = '\0';
    for (int32_t p = 0; p < t->world; p++) {
        if (reached(&t->head->slot[p], meeting)) continue;
        n_missing++;
        if (len < sizeof(rank_list) - 16) {
            len += (size_t)snprintf(out + len, sizeof(rank_list) - len, "%s%d", len ? ", " : "",
                                    td_shm_team_name(t, p));
        }
    }
    return n_missing;
}

static td_status fail_deadline(struct td_shm_team *t, uint32_t meeting) {
    rank_list missing;
    char what[128];
    const int n_missing = list_missing(t, meeting, missing);
    describe(&t->head->slot[t->rank].call[t->call_parity], what, sizeof what);
    return fail_missing(t, what, n_missing, missing, t->deadline);
}

td_status td_shm_team_fail_late(struct td_shm_team *t, int64_t timeout_ns) {
    rank_list missing;
    char what[128];
    const struct td_collective_deadline deadline = {timeout_ns, "its wait"};
    const uint32_t own = atomic_load(&t->head->slot[t->rank].arrived);
    const int n_missing = list_missing(t, own, missing);
    describe(&t->head->slot[t->rank].call[t->call_parity], what, sizeof what);
    if (n_missing) return fail_missing(t, what, n_missing, missing, &deadline);
    td_status s = td_fail(TD_DEADLINE_EXCEEDED,
                          "%s: all ranks came, but it was not done within %.3f s; wait longer",
                          what, (double)timeout_ns / (double)TD_NS_PER_S);
    return td_status_with_class(td_status_with_reason(s, "COLLECTIVE_TIMEOUT"),
                                TD_CLASS_COLLECTIVE);
}

td_status td_shm_team_differ(struct td_shm_team *t, const char *what, int32_t peer,
                             const char *theirs) {
    give_up(t);
    td_status s = td_fail(TD_FAILED_PRECONDITION,
                          "rank %d is in %s while rank %d is in %s; all ranks must make the same "
                          "calls in the same order",
                          td_shm_team_name(t, t->rank), what, td_shm_team_name(t, peer), theirs);
    return td_status_with_class(td_status_with_reason(s, "COLLECTIVE_MISMATCH"),
                                TD_CLASS_USER_CODE);
}

static td_status check_same(struct td_shm_team *t, uint32_t meeting) {
    const struct td_shm_call *mine = &t->head->slot[t->rank].call[meeting & 1];
    for (int32_t p = 0; p < t->world; p++) {
        const struct td_shm_call *theirs = &t->head->slot[p].call[meeting & 1];
        if (__builtin_expect(memcmp(theirs, mine, sizeof *mine) == 0, 1)) continue;
        char my_text[128], their_text[128];
        describe(mine, my_text, sizeof my_text);
        describe(theirs, their_text, sizeof their_text);
        return td_shm_team_differ(t, my_text, p, their_text);
    }
    return TD_OK;
}

// ---- meeting -----------------------------------------------------------------------------------
static uint32_t aborted_by(struct td_shm_team *t) {
    if (t->aborted && t->aborted(t->aborted_arg)) abort_by(t, TD_SHM_ABORT_OUTSIDE);
    return atomic_load(t->aborted_by);
}

// At the first wait of a call.
static void begin_deadline(struct td_shm_team *t, int64_t now) {
    if (t->deadline_ns) return;
    t->deadline = atomic_load(t->deadlines);
    t->deadline_ns = now + t->deadline->timeout_ns;
}

// The abort word is read before `arrived`: who arrives and then aborts, because the calls differ,
// is seen as arrived, and both sides report the same.
static td_status wait_asleep(struct td_shm_team *t, struct td_shm_slot *peer, uint32_t meeting) {
    td_status s = TD_OK;
    atomic_fetch_add(&peer->sleepers, 1);
    for (;;) {
        uint32_t by = aborted_by(t);
        uint32_t seen = atomic_load(&peer->arrived);
        if ((int32_t)(seen - meeting) >= 0) break;
        int64_t now = td_mono_now().ns;
        begin_deadline(t, now);
        if (by) s = fail_aborted(by);
        if (!by && now >= t->deadline_ns) s = fail_deadline(t, meeting);
        if (s) break;
        td_futex_wait(&peer->arrived, seen, TD_MIN(t->deadline_ns - now, (int64_t)WAIT_SLICE_NS));
    }
    atomic_fetch_sub(&peer->sleepers, 1);
    return s;
}

static td_status wait_for(struct td_shm_team *t, struct td_shm_slot *peer, uint32_t meeting) {
    for (int i = 0; i < t->spins; i++) {
        if (reached(peer, meeting)) return TD_OK;
        cpu_pause();
    }
    return wait_asleep(t, peer, meeting);
}

td_status td_shm_team_arrive(struct td_shm_team *t, const struct td_shm_call *call) {
    uint32_t by = atomic_load_explicit(t->aborted_by, memory_order_relaxed);
    if (by) return fail_aborted(by);
    TD_CHECK(t->awaited == t->meeting);
    const uint32_t meeting = t->meeting + 1;
    struct td_shm_slot *own = &t->head->slot[t->rank];
    t->opens_call = call != NULL;
    if (call) {
        own->call[meeting & 1] = *call;
        t->call_parity = meeting & 1;
        t->deadline_ns = 0;
    }
    t->meeting = meeting;
    atomic_store(&own->arrived, meeting);
    if (atomic_load(&own->sleepers)) td_futex_wake_all(&own->arrived);
    return TD_OK;
}

td_status td_shm_team_await(struct td_shm_team *t) {
    const uint32_t meeting = t->meeting;
    for (int32_t p = 0; p < t->world; p++) {
        struct td_shm_slot *peer = &t->head->slot[p];
        if (!reached(peer, meeting)) TD_TRY(wait_for(t, peer, meeting));
    }
    t->awaited = meeting;
    return t->opens_call ? check_same(t, meeting) : TD_OK;
}

td_status td_shm_team_meet(struct td_shm_team *t, const struct td_shm_call *call) {
    TD_TRY(td_shm_team_arrive(t, call));
    return td_shm_team_await(t);
}

// ---- pairs -------------------------------------------------------------------------------------
void td_shm_team_open_pair(struct td_shm_team *t) {
    t->deadline_ns = 0;
}

// A peer that has come to the next meeting waits for this rank there, and its call is in its slot.
// The word is read again afterwards: the peer may have written it before it came.
static td_status check_elsewhere(struct td_shm_team *t, int32_t peer, _Atomic uint32_t *word,
                                 uint32_t seen, const char *what) {
    const struct td_shm_slot *slot = &t->head->slot[peer];
    const uint32_t meeting = t->meeting + 1;
    char theirs[128];
    if (!reached(slot, meeting) || atomic_load(word) != seen) return TD_OK;
    describe(&slot->call[meeting & 1], theirs, sizeof theirs);
    return td_shm_team_differ(t, what, peer, theirs);
}

td_status td_shm_team_pause(struct td_shm_team *t, int32_t peer, _Atomic uint32_t *word,
                            uint32_t seen, _Atomic uint32_t *sleepers, const char *what) {
    for (int i = 0; i < t->spins; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != seen) return TD_OK;
        cpu_pause();
    }
    const uint32_t by = aborted_by(t);
    if (by) return fail_aborted(by);
    TD_TRY(check_elsewhere(t, peer, word, seen, what));
    const int64_t now = td_mono_now().ns;
    begin_deadline(t, now);
    if (now >= t->deadline_ns) {
        char missing[16];
        snprintf(missing, sizeof missing, "%d", td_shm_team_name(t, peer));
        return fail_missing(t, what, 1, missing, t->deadline);
    }
    atomic_fetch_add(sleepers, 1);
    if (atomic_load(word) == seen) {
        td_futex_wait(word, seen, TD_MIN(t->deadline_ns - now, (int64_t)WAIT_SLICE_NS));
    }
    atomic_fetch_sub(sleepers, 1);
    return TD_OK;
}
