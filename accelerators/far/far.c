// Each buffer, bound block and executable has a twin on the reference, where the loops run.
//
// run copies what the host may change next (step scalars, random words, control flags) into the
// place of its ticket; only inputs stay with the caller. The queue's thread moves it to the blocks
// that the twin is bound to, runs the twin, and keeps outputs and flags. wait hands them over. A
// copy drains the queue first, but for one that a sum over ranks makes, which is a part of a run. A
// queued copy between buffers that no program is bound to is beside the queue, and as late as can
// be: who waits for its ticket makes it. So who does not wait finds nothing, and who writes its
// source before finds that.
//
// by_tensor: a state region is a list of buffers (tensors.h), and its twin has their content while
// a run lasts. Then far also plans its own memory: it takes no arena.
//
// Ownership: what was allocated goes with close. Thread: the training thread, but for run_task.

#include "accelerators/far/far.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "accelerators/far/tensors.h"
#include "accelerators/queue/queue.h"
#include "accelerators/reference/reference.h"
#include "lib/base/base.h"

enum { BUFFERS = 1024, INPUTS = 16, OUTPUTS = 64, DEVICES = 2, BESIDE = 16, TASKS = 8 };
#define FIRST_HANDLE UINT64_C(0xfa00000000000001) // no address: what follows it faults
#define DRAIN_NS     (600 * TD_NS_PER_S)
#define TICKET_SHIFT 16          // a ticket is one of the queue, and below it which this is:
#define IS_COPY      UINT64_C(1) // 0 a run, this, or one more for each copy beside the queue
#define DEVICE_BYTES (UINT64_C(1) << 30)

struct twin {
    uint64_t handle;
    struct td_buffer there;
    struct td_far_tensors *tensors; // NULL: `there` has the content between runs, too
    bool bound;                     // programs may use it
};

// A copy that is queued.
struct copy {
    struct twin to, from;
    size_t to_offset, from_offset, bytes;
    td_ticket ticket; // beside the queue
};

// A run or a copy, by ticket % TASKS.
struct run {
    struct td_executable *exe; // NULL: it is the copy
    struct copy copy;
    uint32_t segments;
    struct td_buffer inputs[INPUTS];
    double scalars[TD_SCALAR_COUNT];
    uint32_t random[TD_RANDOM_WORDS];
    float control[TD_CONTROL_FLAGS];
    double outputs[OUTPUTS];
};

struct td_accelerator {
    const struct td_accelerator_ops *ops; // the reference's
    struct td_accelerator *reference;
    struct td_queue *queue;
    uint64_t next_handle;
    struct twin twin[BUFFERS];
    size_t n_twins;
    struct run run[TASKS];
    size_t arena_bytes;                       // of executables that have their own
    int64_t delay_us, fail_at, copy_delay_us; // its knobs
    bool by_tensor, plans;
    pthread_mutex_t lock; // holds the copies beside the queue, also while they are made
    struct copy beside[BESIDE];
    size_t n_beside;
    td_ticket last_beside; // of the training thread
    bool runs;             // a twin has the content of its tensors; the queue's thread
    int64_t n_updates;     // runs that wrote weights so far; the queue's thread
};

struct td_executable {
    struct td_accelerator *accel;
    struct td_executable *twin;
    struct td_bindings bind; // the caller's
    struct td_buffer arena;  // of its own, where far plans memory
    struct td_sums *sums;    // over ranks, in the caller's buffers
    const struct td_graph *graph;
    uint32_t n_inputs, n_outputs;
    bool updates;                    // it has nodes to apply
    uint32_t prepared;               // bit i: the set of segments i; 0: prepare was not called
    double scalars[TD_SCALAR_COUNT]; // what the twin is bound to
    uint32_t random[TD_RANDOM_WORDS];
    float control[TD_CONTROL_FLAGS];
    double outputs[OUTPUTS];
};

static const struct td_plugin_knob knobs[] = {
    {"delay_us", TD_PLUGIN_KNOB_INT, 0, 10000000, "microseconds", "0", NULL,
     "how much later each run and queued copy begins"},
    {"copy_delay_us", TD_PLUGIN_KNOB_INT, 0, 10000000, "microseconds", "0", NULL,
     "how much longer each queued copy to the host takes"},
    {"fail_at", TD_PLUGIN_KNOB_INT, 0, 2147483647, "updates", "0", NULL,
     "which run that updates weights fails, counted from 1 in each attempt; 0 = none"},
    {"by_tensor", TD_PLUGIN_KNOB_BOOL, 0, 1, "", "false", NULL,
     "whether each tensor has a buffer of its own, and another one when it is written"},
};

static struct run *run_of(struct td_accelerator *a, td_ticket ticket) {
    return &a->run[ticket % TASKS];
}

// ---- the queue's thread -------------------------------------------------------------------------
// The failure that the knob asks for.
static td_status count_update(struct td_accelerator *a, const struct run *r) {
    if (!r->exe->updates || !(r->segments >> TD_SEG_APPLY & 1)) return TD_OK;
    if (++a->n_updates != a->fail_at) return TD_OK;
    return td_status_with_class(
        td_fail(TD_FAILED_PRECONDITION,
                "the far device failed in update %" PRId64 ", as fail_at asks", a->n_updates),
        TD_CLASS_DEVICE);
}

static void load_tensors(struct td_accelerator *a) {
    for (size_t i = 0; i < a->n_twins; i++) {
        const struct twin *t = &a->twin[i];
        if (t->tensors) td_far_tensors_load(t->tensors, td_buffer_host(t->there));
    }
}

static td_status store_tensors(struct td_accelerator *a) {
    for (size_t i = 0; i < a->n_twins; i++) {
        const struct twin *t = &a->twin[i];
        if (t->tensors) TD_TRY(td_far_tensors_store(t->tensors, td_buffer_host(t->there)));
    }
    return TD_OK;
}

static td_status run_twin(struct td_accelerator *a, struct run *r) {
    struct td_executable *e = r->exe;
    td_ticket done;
    memcpy(e->scalars, r->scalars, sizeof e->scalars);
    memcpy(e->random, r->random, sizeof e->random);
    memcpy(e->control, r->control, sizeof e->control);
    load_tensors(a);
    a->runs = true;
    td_status s = a->ops->run(e->twin, r->segments, r->inputs, &done);
    a->runs = false;
    TD_TRY(s);
    TD_TRY(store_tensors(a));
    memcpy(r->control, e->control, sizeof e->control);
    memcpy(r->outputs, e->outputs, sizeof e->outputs);
    return TD_OK;
}

// Where one of both is a list of tensors: through memory of its own.
static td_status make_copy(struct td_accelerator *a, const struct copy *c) {
    const struct td_far_tensors *from = c->from.tensors;
    struct td_far_tensors *to = c->to.tensors;
    if ((!to && !from) || a->runs) {
        return a->ops->copy(a->reference, c->to.there, c->to_offset, c->from.there, c->from_offset,
                            c->bytes);
    }
    TD_AUTO_FREE char *piece = malloc(TD_MAX(c->bytes, (size_t)1));
    if (!piece) return td_fail_oom();
    const struct td_buffer here = td_buffer_of_host(piece, c->bytes);
    TD_TRY(from ? td_far_tensors_read(from, c->from_offset, c->bytes, piece)
                : a->ops->copy(a->reference, here, 0, c->from.there, c->from_offset, c->bytes));
    if (to) return td_far_tensors_write(to, c->to_offset, c->bytes, piece);
    return a->ops->copy(a->reference, c->to.there, c->to_offset, here, 0, c->bytes);
}

static void rest(struct td_accelerator *a, int64_t us) {
    td_queue_rest(a->queue, us * (TD_NS_PER_MS / 1000));
}

static td_status make_queued_copy(struct td_accelerator *a, const struct copy *c) {
    if (!c->to.handle) rest(a, a->copy_delay_us);
    return make_copy(a, c);
}

static td_status run_task(void *arg, td_ticket ticket) {
    struct td_accelerator *a = arg;
    struct run *r = run_of(a, ticket);
    rest(a, a->delay_us);
    if (!r->exe) return make_queued_copy(a, &r->copy);
    TD_TRY(count_update(a, r));
    return run_twin(a, r);
}

// ---- device and memory --------------------------------------------------------------------------
static td_status far_probe(struct td_accel_facts *out_facts) {
    struct td_accel_facts f = {.struct_bytes = sizeof f,
                               .n_devices = DEVICES,
                               .device_name = "a device for tests",
                               .build = "far-1",
                               .detects_anomaly = true,
                               .whole_logits_bytes = 32 << 20,
                               .own_memory = true,
                               .memory_bytes = DEVICE_BYTES,
                               .run_ahead = 1,
                               .sums = (1u << TD_SUM_KINDS) - 1,
                               .dtypes = (1u << TD_DTYPE_COUNT) - 1};
    memcpy(out_facts, &f, TD_MIN(sizeof f, (size_t)out_facts->struct_bytes));
    return TD_OK;
}

static td_status far_device_at(int32_t i, struct td_device_info *out_info) {
    struct td_device_info d = {.struct_bytes = out_info->struct_bytes,
                               .memory_bytes = DEVICE_BYTES};
    snprintf(d.uuid, sizeof d.uuid, "far-%" PRId32, i);
    snprintf(d.name, sizeof d.name, "a device for tests");
    memcpy(out_info, &d, TD_MIN(sizeof d, (size_t)out_info->struct_bytes));
    return TD_OK;
}

static void far_close(struct td_accelerator *a) {
    if (!a) return;
    td_queue_destroy(a->queue);
    a->ops->close(a->reference);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

// Without knobs they have their defaults, 0: tests open it by itself.
static td_status read_knobs(struct td_accelerator *a, const struct td_json *values) {
    if (!values) return TD_OK;
    TD_TRY(td_knob_int(values, "delay_us", &a->delay_us));
    TD_TRY(td_knob_int(values, "copy_delay_us", &a->copy_delay_us));
    TD_TRY(td_knob_int(values, "fail_at", &a->fail_at));
    return td_knob_bool(values, "by_tensor", &a->by_tensor);
}

static td_status far_open(const struct td_accel_config *config, struct td_accelerator **out_accel) {
    if (config->device < 0 || config->device >= DEVICES) {
        return td_fail(TD_INVALID_ARGUMENT, "far has %d devices, none with index %" PRId32,
                       (int)DEVICES, config->device);
    }
    struct td_accelerator *a = td_calloc(1, sizeof *a);
    if (!a) return td_fail_oom();
    a->ops = td_accelerator_reference.ops;
    a->next_handle = FIRST_HANDLE;
    a->plans = config->plans;
    pthread_mutex_init(&a->lock, NULL);
    struct td_accel_config twin = *config;
    twin.device = 0; // the one that the reference has
    td_status s = read_knobs(a, config->knobs);
    if (!s) s = a->ops->open(&twin, &a->reference);
    if (!s) s = td_queue_create("the far device", TASKS, run_task, a, &a->queue);
    if (s) {
        far_close(a);
        return s;
    }
    *out_accel = a;
    return TD_OK;
}

static td_status far_facts(struct td_accelerator *a, struct td_accel_facts *facts) {
    facts->plans_memory = a->by_tensor;
    return TD_OK;
}

static td_status far_mem_alloc(struct td_accelerator *a, size_t bytes,
                               struct td_buffer *out_buffer) {
    if (a->n_twins == BUFFERS) {
        return td_fail(TD_RESOURCE_EXHAUSTED, "the far device has %d buffers", (int)BUFFERS);
    }
    struct twin *t = &a->twin[a->n_twins];
    TD_TRY(a->ops->mem_alloc(a->reference, bytes, &t->there));
    t->handle = a->next_handle++;
    t->tensors = NULL;
    t->bound = false;
    a->n_twins++;
    *out_buffer = (struct td_buffer){TD_SPACE_DEVICE, t->handle, bytes};
    return TD_OK;
}

static void far_mem_free(struct td_accelerator *a, struct td_buffer b) {
    for (size_t i = 0; i < a->n_twins; i++) {
        if (a->twin[i].handle != b.handle) continue;
        a->ops->mem_free(a->reference, a->twin[i].there);
        td_far_tensors_destroy(a->twin[i].tensors);
        a->twin[i] = a->twin[--a->n_twins];
        return;
    }
}

static td_status far_state_alloc(struct td_accelerator *a, const struct td_state_table *state,
                                 enum td_role role, struct td_buffer *out_buffer) {
    struct td_buffer b;
    TD_TRY(far_mem_alloc(a, td_state_region_bytes(state, role), &b));
    td_status s = TD_OK;
    a->twin[a->n_twins - 1].bound = true;
    if (a->by_tensor) s = td_far_tensors_create(state, role, &a->twin[a->n_twins - 1].tensors);
    if (s) {
        far_mem_free(a, b);
        return s;
    }
    *out_buffer = b;
    return TD_OK;
}

// The memory that a buffer is of: the host's itself, a handle's twin. No bytes: none.
static td_status find_memory(const struct td_accelerator *a, struct td_buffer b,
                             struct twin *out_twin) {
    *out_twin = (struct twin){.there = b};
    if (b.space == TD_SPACE_HOST || !b.bytes) return TD_OK;
    for (size_t i = 0; i < a->n_twins; i++) {
        if (a->twin[i].handle != b.handle) continue;
        *out_twin = a->twin[i];
        return TD_OK;
    }
    return td_fail(TD_INVALID_ARGUMENT, "the far device has no buffer %" PRIx64, b.handle);
}

static td_status far_copy(struct td_accelerator *a, struct td_buffer dst, size_t dst_offset,
                          struct td_buffer src, size_t src_offset, size_t bytes) {
    struct copy c = {.to_offset = dst_offset, .from_offset = src_offset, .bytes = bytes};
    TD_TRY(find_memory(a, dst, &c.to));
    TD_TRY(find_memory(a, src, &c.from));
    if (!td_queue_is_here(a->queue)) {
        const td_ticket last = td_queue_next(a->queue) - 1;
        TD_TRY(td_queue_wait(a->queue, last, DRAIN_NS));
    }
    return make_copy(a, &c);
}

// The place of the next ticket, once the one that had it before is done.
static td_status next_place(struct td_accelerator *a, struct run **out_place,
                            td_ticket *out_ticket) {
    const td_ticket ticket = td_queue_next(a->queue);
    const td_ticket before = ticket > TASKS ? ticket - TASKS : 0;
    TD_TRY(td_queue_wait(a->queue, before, DRAIN_NS));
    *out_place = run_of(a, ticket);
    *out_ticket = ticket;
    return TD_OK;
}

// After all that is queued now.
static td_status add_beside(struct td_accelerator *a, struct copy *c, td_ticket *out_ticket) {
    const td_ticket least = ((td_queue_next(a->queue) - 1) << TICKET_SHIFT) + IS_COPY + 1;
    c->ticket = TD_MAX(least, a->last_beside + 1);
    td_status s = TD_OK;
    pthread_mutex_lock(&a->lock);
    if (a->n_beside == BESIDE || c->ticket - least > UINT16_MAX - IS_COPY - 1) {
        s = td_fail(TD_RESOURCE_EXHAUSTED, "the far device has too many copies beside its queue");
    } else {
        a->beside[a->n_beside++] = *c;
    }
    pthread_mutex_unlock(&a->lock);
    if (!s) *out_ticket = a->last_beside = c->ticket;
    return s;
}

// Those up to a ticket, in their order, on the thread that waits for it; or they are lost.
static td_status end_beside(struct td_accelerator *a, td_ticket ticket, bool lost) {
    td_status s = TD_OK;
    size_t n = 0;
    pthread_mutex_lock(&a->lock);
    for (; n < a->n_beside && a->beside[n].ticket <= ticket && !s; n++) {
        if (!lost) s = make_queued_copy(a, &a->beside[n]);
    }
    a->n_beside -= n;
    memmove(a->beside, a->beside + n, a->n_beside * sizeof a->beside[0]);
    pthread_mutex_unlock(&a->lock);
    return s;
}

static td_status far_copy_begin(struct td_accelerator *a, struct td_buffer dst, size_t dst_offset,
                                struct td_buffer src, size_t src_offset, size_t bytes,
                                td_ticket *out_ticket) {
    struct copy c = {.to_offset = dst_offset, .from_offset = src_offset, .bytes = bytes};
    struct run *r;
    td_ticket ticket;
    TD_TRY(find_memory(a, dst, &c.to));
    TD_TRY(find_memory(a, src, &c.from));
    if (!c.to.bound && !c.from.bound) return add_beside(a, &c, out_ticket);
    TD_TRY(next_place(a, &r, &ticket));
    r->exe = NULL;
    r->copy = c;
    TD_TRY(td_queue_add(a->queue));
    *out_ticket = ticket << TICKET_SHIFT | IS_COPY;
    return TD_OK;
}

// Nothing is locked: it shows who frees what it got elsewhere.
static td_status far_host_alloc(struct td_accelerator *a, size_t bytes, void **out_data) {
    (void)a;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return td_fail_oom();
    *out_data = p;
    return TD_OK;
}

static void far_host_free(struct td_accelerator *a, void *data, size_t bytes) {
    (void)a;
    munmap(data, bytes);
}

// ---- compile ------------------------------------------------------------------------------------
static void far_release(struct td_executable *e) {
    if (!e) return;
    struct td_accelerator *a = e->accel;
    td_status_free(td_queue_wait(a->queue, td_queue_next(a->queue) - 1, DRAIN_NS));
    a->ops->release(e->twin);
    a->arena_bytes -= e->arena.bytes;
    td_sums_destroy(e->sums);
    if (e->arena.bytes) far_mem_free(a, e->arena);
    free(e);
}

static td_status bind_memory(struct td_accelerator *a, struct td_buffer b, struct twin *out_twin) {
    for (size_t i = 0; i < a->n_twins; i++) {
        a->twin[i].bound |= a->twin[i].handle == b.handle;
    }
    return find_memory(a, b, out_twin);
}

// The twin's sum is of its own memory; the caller knows that of the handles.
static td_status start_sum(void *arg, const struct td_sum *of_twin) {
    const struct td_executable *e = arg;
    return e->bind.collective(e->bind.collective_arg, td_sums_at(e->sums, of_twin->node));
}

static td_status await_sum(void *arg, const struct td_sum *of_twin) {
    const struct td_executable *e = arg;
    return e->bind.collective_wait(e->bind.collective_arg, td_sums_at(e->sums, of_twin->node));
}

// The caller's bindings, with its buffers' twins and blocks of the executable's own.
static td_status bind_twin(struct td_executable *e, size_t arena_bytes, struct td_bindings *out) {
    struct td_accelerator *a = e->accel;
    struct twin found;
    *out = e->bind;
    if (a->by_tensor && !e->bind.arena.bytes) {
        TD_TRY(far_mem_alloc(a, TD_MAX(arena_bytes, 64), &e->arena));
        a->arena_bytes += e->arena.bytes;
        e->bind.arena = e->arena;
    }
    TD_TRY(bind_memory(a, e->bind.arena, &found));
    out->arena = found.there;
    for (int role = 0; role < TD_ROLE_COUNT; role++) {
        TD_TRY(bind_memory(a, e->bind.region[role], &found));
        out->region[role] = found.there;
    }
    if (e->bind.scalars) out->scalars = e->scalars;
    if (e->bind.random) out->random = e->random;
    if (e->bind.control) out->control = e->control;
    if (e->bind.outputs) out->outputs = e->outputs;
    out->collective = e->bind.collective ? start_sum : NULL;
    out->collective_wait = e->bind.collective ? await_sum : NULL;
    out->collective_arg = e;
    return TD_OK;
}

static bool updates(const struct td_graph *g) {
    for (uint32_t n = 0; n < td_graph_n_nodes(g); n++) {
        if (td_graph_node(g, n)->segment == TD_SEG_APPLY) return true;
    }
    return false;
}

static td_status far_compile(struct td_accelerator *a, const struct td_program *p,
                             const struct td_bindings *b, struct td_executable **out_exe) {
    struct td_executable *e = td_calloc(1, sizeof *e);
    if (!e) return td_fail_oom();
    struct td_bindings twin;
    e->accel = a;
    e->bind = *b;
    e->graph = p->graph;
    e->n_inputs = td_graph_n_inputs(p->graph);
    e->n_outputs = td_graph_n_outputs(p->graph);
    e->updates = updates(p->graph);
    td_status s = TD_OK;
    if (e->n_inputs > INPUTS || e->n_outputs > OUTPUTS) {
        s = td_fail(TD_UNIMPLEMENTED, "step '%s' has %u inputs and %u outputs; far takes %d and %d",
                    p->key.step, e->n_inputs, e->n_outputs, (int)INPUTS, (int)OUTPUTS);
    }
    if (!s) s = bind_twin(e, p->arena_bytes, &twin);
    if (!s) s = td_sums_create(p, &e->bind, &e->sums);
    if (!s) s = a->ops->compile(a->reference, p, &twin, &e->twin);
    if (s) {
        far_release(e);
        return s;
    }
    *out_exe = e;
    return TD_OK;
}

static td_status far_prepare(struct td_executable *e, const uint32_t *sets, size_t n) {
    uint32_t prepared = 0;
    for (size_t i = 0; i < n; i++) {
        if (!sets[i] || sets[i] > TD_SEGS_ALL || prepared >> sets[i] & 1) {
            return td_fail(TD_INVALID_ARGUMENT, "step '%s': %" PRIx32 " is no set, or there twice",
                           td_graph_step(e->graph), sets[i]);
        }
        prepared |= 1u << sets[i];
    }
    TD_CHECK(prepared && !e->prepared); // once, and with some
    e->prepared = prepared;
    return TD_OK;
}

// Another accelerator would run it; this one shows that the caller's list is not right.
static td_status check_prepared(const struct td_executable *e, uint32_t segments) {
    char names[64] = "";
    if (!e->prepared || e->prepared >> (segments & TD_SEGS_ALL) & 1) return TD_OK;
    for (int i = 0; i < TD_SEG_COUNT; i++) {
        const size_t n = strlen(names);
        if (!(segments >> i & 1)) continue;
        snprintf(names + n, sizeof names - n, " %s", td_segment_name((enum td_segment)i));
    }
    return td_fail(TD_FAILED_PRECONDITION, "step '%s' was not prepared for a run of:%s",
                   td_graph_step(e->graph), names);
}

static td_status far_program_bytes(struct td_accelerator *a,
                                   const struct td_program *const *programs, size_t n,
                                   size_t *out_bytes) {
    size_t bytes;
    TD_TRY(a->ops->program_bytes(a->reference, programs, n, &bytes));
    if (!n) bytes += a->arena_bytes;
    for (size_t i = 0; i < n && a->by_tensor; i++) {
        bytes += TD_MAX(programs[i]->arena_bytes, 64);
    }
    *out_bytes = bytes;
    return TD_OK;
}

// ---- run ----------------------------------------------------------------------------------------
static td_status far_run(struct td_executable *e, uint32_t segments, const struct td_buffer *inputs,
                         td_ticket *out_ticket) {
    struct td_accelerator *a = e->accel;
    if (a->plans) {
        return td_fail(TD_FAILED_PRECONDITION, "the far device was opened for plans alone "
                                               "(td_accel_config.plans), so it runs nothing");
    }
    TD_TRY(check_prepared(e, segments));
    TD_TRY(td_inputs_check_host(e->graph, inputs));
    struct run *r;
    td_ticket ticket;
    TD_TRY(next_place(a, &r, &ticket));
    r->exe = e;
    r->segments = segments;
    if (e->n_inputs) memcpy(r->inputs, inputs, e->n_inputs * sizeof *inputs);
    if (e->bind.scalars) memcpy(r->scalars, e->bind.scalars, sizeof r->scalars);
    if (e->bind.random) memcpy(r->random, e->bind.random, sizeof r->random);
    if (e->bind.control) memcpy(r->control, e->bind.control, sizeof r->control);
    TD_TRY(td_queue_add(a->queue));
    *out_ticket = ticket << TICKET_SHIFT;
    return TD_OK;
}

static td_status far_wait(struct td_accelerator *a, td_ticket ticket, int64_t timeout_ns) {
    const td_ticket task = ticket >> TICKET_SHIFT, which = ticket & UINT16_MAX;
    td_status s = td_queue_wait(a->queue, task, timeout_ns);
    if (which > IS_COPY && td_status_code(s) != TD_DEADLINE_EXCEEDED) {
        td_status made = end_beside(a, ticket, s != TD_OK);
        if (!s) s = made;
    }
    if (s || which) return s; // a copy: on any thread
    const bool kept = task && task + TASKS >= td_queue_next(a->queue);
    if (!kept) return TD_OK; // another run has its place, so nobody waits for its outputs
    const struct run *r = run_of(a, task);
    const struct td_bindings *b = &r->exe->bind;
    if (b->control) memcpy(b->control, r->control, sizeof r->control);
    if (b->outputs) memcpy(b->outputs, r->outputs, r->exe->n_outputs * sizeof *b->outputs);
    return TD_OK;
}

static const struct td_accelerator_ops far_ops = {
    .struct_bytes = sizeof far_ops,
    .probe = far_probe,
    .open = far_open,
    .close = far_close,
    .facts = far_facts,
    .mem_alloc = far_mem_alloc,
    .state_alloc = far_state_alloc,
    .mem_free = far_mem_free,
    .copy = far_copy,
    .copy_begin = far_copy_begin,
    .host_alloc = far_host_alloc,
    .host_free = far_host_free,
    .compile = far_compile,
    .prepare = far_prepare,
    .run = far_run,
    .wait = far_wait,
    .release = far_release,
    .program_bytes = far_program_bytes,
    .device_at = far_device_at,
};

const struct td_plugin_desc td_accelerator_far = TD_PLUGIN_DESC_WITH_KNOBS(
    ACCELERATOR, "far", "a device for tests: opaque handles, its own queue", &far_ops, knobs);
