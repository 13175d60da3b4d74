// The table and its fence. A slot's states: free and clean, free and waiting for its last calls,
// taken. Free slots form a ring, oldest first; one that is not clean yet goes to the end again.

#include "lib/rpc/front/peers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "lib/loop/loop.h"

enum {
    td_peers_magic = 0x74647072,
    BASE_MAX = 8192, // a table of descriptors that reaches further is paid by each spawn
    QUIET_TICKS = 3,
};
static const int64_t tick_ns = 200 * TD_NS_PER_MS;

struct slot {
    _Atomic uint64_t taken; // 0: free; else a number of its own, written after the name
    atomic_bool trusted;
    atomic_bool apart, gone;
    _Atomic uint32_t n_begun;
    uint32_t n_requests; // the front's
    uint64_t freed;      // the front's: which of all that were freed
    char name[TD_PEER_NAME_BYTES];
    struct td_peer_identity identity;
};

struct td_peers {
    uint32_t magic;
    struct td_peers_options o;
    struct td_loop *home;
    struct td_loop_wakeup *wake; // of the home loop: a fence is wanted
    struct td_loop_timer *tick;
    int base;
    uint32_t n_slots, capacity, max_apart;
    _Atomic uint32_t n_apart;
    struct slot *slots;
    uint32_t *ring; // the front's: free slots
    uint32_t ring_at, n_free;
    uint64_t n_taken; // the front's
    _Atomic uint64_t n_freed;
    _Atomic uint64_t fenced; // everything freed up to here is clean
    // the home loop's
    uint64_t n_calls, calls_at_start, calls_at_tick, target;
    int n_quiet;
    bool fencing;
};

// ---- the fence ----------------------------------------------------------------------------------
static void begin_fence(struct td_peers *p) {
    p->target = atomic_load_explicit(&p->n_freed, memory_order_acquire);
    p->calls_at_start = p->calls_at_tick = p->n_calls;
    p->n_quiet = 0;
    p->fencing = true;
    td_loop_timer_arm(p->tick, tick_ns);
}

static void on_wanted(void *arg) {
    struct td_peers *p = TD_CAST(td_peers, arg);
    if (!p->fencing) begin_fence(p);
}

static void on_tick(void *arg) {
    struct td_peers *p = TD_CAST(td_peers, arg);
    p->n_quiet = p->n_calls == p->calls_at_tick ? p->n_quiet + 1 : 0;
    p->calls_at_tick = p->n_calls;
    uint64_t waiting_max = (uint64_t)p->n_slots * p->o.max_waiting;
    if (p->n_quiet < QUIET_TICKS && p->n_calls - p->calls_at_start <= waiting_max) {
        td_loop_timer_arm(p->tick, tick_ns);
        return;
    }
    p->fencing = false;
    atomic_store_explicit(&p->fenced, p->target, memory_order_release);
    p->o.on_fenced(p->o.ctx);
}

// ---- numbers ------------------------------------------------------------------------------------
static bool is_clean(const struct td_peers *p, const struct slot *s) {
    return atomic_load_explicit(&s->n_begun, memory_order_acquire) == s->n_requests ||
           s->freed <= atomic_load_explicit(&p->fenced, memory_order_acquire);
}

static uint32_t pop(struct td_peers *p) {
    uint32_t i = p->ring[p->ring_at];
    p->ring_at = (p->ring_at + 1) % p->n_slots;
    p->n_free--;
    return i;
}

static void push(struct td_peers *p, uint32_t i) {
    p->ring[(p->ring_at + p->n_free++) % p->n_slots] = i;
}

// The number, or -1: that one is in use by somebody (gRPC may not have closed it yet); -2: the
// kernel gives none.
static int move_to(const struct td_peers *p, int fd, uint32_t i) {
    int wanted = p->base + (int)i;
    int got = fcntl(fd, F_DUPFD_CLOEXEC, wanted);
    if (got == wanted) return got;
    if (got >= 0) close(got);
    return got >= 0 ? -1 : errno == EMFILE || errno == EINVAL ? -1 : -2;
}

td_status td_peers_take(struct td_peers *p, int take_fd, const char *name, int *out_number) {
    bool dirty = false;
    for (uint32_t n = p->n_free; n > 0; n--) {
        uint32_t i = pop(p);
        struct slot *s = &p->slots[i];
        bool clean = is_clean(p, s);
        dirty |= !clean;
        int number = clean ? move_to(p, take_fd, i) : -1;
        if (number < 0) {
            push(p, i);
            if (number == -2) return td_fail_errno(TD_RESOURCE_EXHAUSTED, "copy a descriptor");
            continue;
        }
        close(take_fd);
        s->n_requests = 0;
        snprintf(s->name, sizeof s->name, "%s", name);
        s->identity = (struct td_peer_identity){0};
        atomic_store_explicit(&s->n_begun, 0, memory_order_relaxed);
        atomic_store_explicit(&s->trusted, false, memory_order_relaxed);
        atomic_store(&s->gone, false);
        atomic_store_explicit(&s->taken, ++p->n_taken, memory_order_release);
        *out_number = number;
        if (dirty) td_loop_wakeup_send(p->wake);
        return TD_OK;
    }
    if (dirty) td_loop_wakeup_send(p->wake);
    return td_fail(TD_UNAVAILABLE, "no number is free for a connection");
}

static struct slot *slot_of(struct td_peers *p, int number) {
    if (number < p->base || number >= p->base + (int)p->n_slots) return NULL;
    return &p->slots[number - p->base];
}

void td_peers_identify(struct td_peers *p, int number, const struct td_peer_identity *identity) {
    struct slot *s = slot_of(p, number);
    TD_CHECK(s);
    s->identity = *identity;
}

// By what comes first: its end, or a last call that began after that.
static void leave_apart(struct td_peers *p, struct slot *s) {
    if (atomic_exchange(&s->apart, false)) atomic_fetch_sub(&p->n_apart, 1);
}

void td_peers_free(struct td_peers *p, int number, uint32_t n_requests) {
    struct slot *s = slot_of(p, number);
    TD_CHECK(s);
    atomic_store(&s->gone, true);
    leave_apart(p, s);
    s->n_requests = n_requests;
    s->freed = atomic_fetch_add_explicit(&p->n_freed, 1, memory_order_acq_rel) + 1;
    push(p, (uint32_t)(s - p->slots));
}

bool td_peers_is_trusted(const struct td_peers *p, int number) {
    const struct slot *s = &p->slots[number - p->base];
    return atomic_load_explicit(&s->trusted, memory_order_relaxed);
}

uint32_t td_peers_n_begun(const struct td_peers *p, int number) {
    return atomic_load_explicit(&p->slots[number - p->base].n_begun, memory_order_relaxed);
}

bool td_peers_is_apart(const struct td_peers *p, int number) {
    return atomic_load(&p->slots[number - p->base].apart);
}

// ---- calls --------------------------------------------------------------------------------------
// True: its connection is counted apart now. Only this thread adds to n_apart.
static bool set_apart(struct td_peers *p, struct slot *s) {
    if (atomic_load(&s->apart)) return true;
    if (atomic_load(&p->n_apart) >= p->max_apart) return false;
    atomic_fetch_add(&p->n_apart, 1);
    atomic_store(&s->apart, true);
    if (atomic_load(&s->gone)) leave_apart(p, s);
    return true;
}

void td_peers_begin(struct td_peers *p, int number, enum td_peer_call kind,
                    char out_name[TD_PEER_NAME_BYTES]) {
    TD_ON_LOOP(p->home);
    p->n_calls++;
    struct slot *s = slot_of(p, number);
    bool known = s && atomic_load_explicit(&s->taken, memory_order_acquire);
    snprintf(out_name, TD_PEER_NAME_BYTES, "%s", known ? s->name : "unknown");
    if (!known) return;
    bool apart = kind == TD_PEER_APART && p->o.n_apart;
    bool trusted = apart ? set_apart(p, s) : kind != TD_PEER_STRANGER;
    if (trusted) atomic_store_explicit(&s->trusted, true, memory_order_relaxed);
    // Last: from here on the front may give the number to another connection.
    atomic_fetch_add_explicit(&s->n_begun, 1, memory_order_release);
}

struct td_peer_identity td_peers_identity(struct td_peers *p, int number) {
    TD_ON_LOOP(p->home);
    struct slot *s = slot_of(p, number);
    bool known = s && atomic_load_explicit(&s->taken, memory_order_acquire);
    return known ? s->identity : (struct td_peer_identity){0};
}

bool td_peers_is_over(struct td_peers *p, int number) {
    TD_ON_LOOP(p->home);
    struct slot *s = slot_of(p, number);
    bool known = s && atomic_load_explicit(&s->taken, memory_order_acquire);
    return !known || atomic_load(&s->gone);
}

// ---- life ---------------------------------------------------------------------------------------
// A connection needs a number of the range and two below it; the rest is the daemon's own.
static void choose_range(struct td_peers *p) {
    struct rlimit files;
    bool known = getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < INT32_MAX;
    uint32_t limit = known ? (uint32_t)files.rlim_cur : 1024;
    uint32_t wanted = p->o.n_wanted + p->o.n_apart;
    p->n_slots = TD_MAX(TD_MIN(wanted * 2, limit / 4), 4U);
    uint32_t base = limit > p->n_slots ? limit - p->n_slots : 0;
    p->base = (int)TD_MIN(base, (uint32_t)BASE_MAX);
    uint32_t own = TD_MIN((uint32_t)p->base / 2, 128U);
    uint32_t room = ((uint32_t)p->base - own) / 2;
    uint32_t all = TD_MAX(TD_MIN(wanted, TD_MIN(p->n_slots / 4 * 3, room)), 1U);
    p->max_apart = TD_MIN(p->o.n_apart, TD_MAX(all / 2, all - TD_MIN(all, p->o.n_wanted)));
    p->capacity = TD_MIN(p->o.n_wanted, all - p->max_apart);
}

td_status td_peers_create(struct td_loop *home, const struct td_peers_options *o,
                          struct td_peers **out_peers) {
    TD_ON_LOOP(home);
    TD_AUTO(td_peers) *self = td_calloc(1, sizeof *self);
    if (!self) return td_fail_oom();
    self->magic = td_peers_magic;
    self->o = *o;
    self->home = home;
    choose_range(self);
    self->slots = td_calloc(self->n_slots, sizeof *self->slots);
    self->ring = td_calloc(self->n_slots, sizeof *self->ring);
    if (!self->slots || !self->ring) return td_fail_oom();
    for (uint32_t i = 0; i < self->n_slots; i++) {
        push(self, i);
    }
    TD_TRY(td_loop_wakeup_create(home, on_wanted, self, &self->wake));
    TD_TRY(td_loop_timer_create(home, on_tick, self, &self->tick));
    *out_peers = td_steal(self);
    return TD_OK;
}

void td_peers_destroy(struct td_peers *p) {
    if (!p) return;
    td_loop_wakeup_destroy(p->wake);
    td_loop_timer_destroy(p->tick);
    free(p->slots);
    free(p->ring);
    p->magic = 0;
    free(p);
}

uint32_t td_peers_capacity(const struct td_peers *p) {
    return p->capacity;
}

uint32_t td_peers_capacity_apart(const struct td_peers *p) {
    return p->max_apart;
}
