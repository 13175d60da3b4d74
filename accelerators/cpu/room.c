// Memory of an accelerator besides arena and state. Contract in cpu.h.
//
// One scratch serves all kernels, because they run one after the other. It only grows, while
// programs are compiled, so its address is asked for at every run. Everything counts from here, so
// that the planner's number is the worker's: rejected, a model of what the kernels will want, which
// would be wrong the first time that a kernel changes.

#include "accelerators/cpu/cpu.h"
#include "accelerators/cpu/tune.h"

enum { ALIGN = 64 };

// What a pretended allocation gives: oneDNN wants an address to describe memory with.
static _Alignas(ALIGN) char nothing[ALIGN];

void *td_room_take(struct td_room *r, size_t bytes) {
    size_t rounded = td_align_up(TD_MAX(bytes, (size_t)1), ALIGN);
    void *p = r->pretends ? nothing : aligned_alloc(ALIGN, rounded);
    if (p) r->held_bytes += rounded;
    return p;
}

void td_room_give(struct td_room *r, void *p, size_t bytes) {
    if (!p) return;
    r->held_bytes -= td_align_up(TD_MAX(bytes, (size_t)1), ALIGN);
    if (p != nothing) free(p);
}

td_status td_room_want(struct td_room *r, size_t bytes) {
    if (bytes <= r->scratch_bytes) return TD_OK;
    td_room_give(r, r->scratch, r->scratch_bytes);
    r->scratch = NULL;
    r->scratch_bytes = 0;
    void *more = td_room_take(r, bytes);
    if (!more) return td_fail_oom();
    r->scratch = more;
    r->scratch_bytes = bytes;
    return TD_OK;
}

void td_room_finish(struct td_room *r) {
    td_room_give(r, r->scratch, r->scratch_bytes);
    TD_CHECK(r->held_bytes == 0);
    *r = (struct td_room){0};
}

// ---- the slot measure ---------------------------------------------------------------------------
// Regions that nobody touches, far apart, so that each parameter has an address of its own.
static void pretend_bindings(struct td_bindings *b) {
    *b = (struct td_bindings){.struct_bytes = sizeof *b};
    for (int i = 0; i <= TD_ROLE_COUNT; i++) {
        struct td_buffer far = {TD_SPACE_HOST, ((uint64_t)i + 1) << 44, (size_t)1 << 44};
        *(i < TD_ROLE_COUNT ? &b->region[i] : &b->arena) = far;
    }
}

static td_status compile_all(struct td_accelerator *a, const struct td_program *const *programs,
                             size_t n, struct td_executable **exe) {
    struct td_bindings b;
    static float scalars[TD_SCALAR_COUNT];
    pretend_bindings(&b);
    b.scalars = b.outputs = scalars;
    for (size_t i = 0; i < n; i++) {
        TD_TRY(td_cpu_compile(a, programs[i], &b, &exe[i]));
    }
    return TD_OK;
}

td_status td_cpu_measure(struct td_accelerator *a, const struct td_program *const *programs,
                         size_t n, size_t *out_bytes) {
    if (n == 0) {
        *out_bytes = a->room.held_bytes;
        return TD_OK;
    }
    // In an accelerator of its own, that its packed weights and choices may go away again.
    TD_AUTO_FREE struct td_executable **exe = td_calloc(n, sizeof(struct td_executable *));
    struct td_accelerator twin = {.n_threads = a->n_threads};
    if (!exe) return td_fail_oom();
    twin.room.pretends = true;
    td_status s = td_tune_create(NULL, "", &twin.tune);
    if (!s) s = td_dnnl_create(&twin.room, twin.tune, &twin.dnnl);
    if (!s) s = compile_all(&twin, programs, n, exe);
    if (!s) *out_bytes = twin.room.held_bytes;
    for (size_t i = 0; i < n; i++) {
        td_cpu_release(exe[i]);
    }
    td_dnnl_destroy(twin.dnnl);
    td_tune_destroy(twin.tune);
    td_room_finish(&twin.room);
    return s;
}
