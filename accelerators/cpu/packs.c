// The set of packed weights; contract in packs.h. A pack is good while its era is the set's. A run
// that is not steady begins a new era, a kernel that writes a parameter puts its packs into era 0.

#include "accelerators/cpu/packs.h"

#include "accelerators/cpu/kernels/kernels.h"

struct td_packs {
    struct td_cpu_memory *memory;
    struct td_pack *list;
    uint64_t era; // of parameters that only programs write
};

td_status td_packs_create(struct td_cpu_memory *memory, struct td_packs **out_packs) {
    struct td_packs *s = td_calloc(1, sizeof *s);
    if (!s) return td_fail_oom();
    s->memory = memory;
    s->era = 1;
    *out_packs = s;
    return TD_OK;
}

static void destroy(struct td_packs *s, struct td_pack *p) {
    if (p->of && p->destroy_of) p->destroy_of(p->of);
    if (p->data) td_cpu_memory_free(s->memory, p->data, p->bytes);
    free(p);
}

void td_packs_destroy(struct td_packs *s) {
    if (!s) return;
    for (struct td_pack *p = s->list, *next; p; p = next) {
        next = p->next;
        destroy(s, p);
    }
    free(s);
}

void td_packs_begin(struct td_packs *s, bool steady) {
    if (!steady) s->era++;
}

struct td_pack *td_packs_next(const struct td_packs *s, const void *param,
                              const struct td_pack *after) {
    struct td_pack *p = after ? after->next : s->list;
    while (p && p->param != param) {
        p = p->next;
    }
    return p;
}

void td_packs_param_changes(struct td_packs *s, const void *param) {
    for (struct td_pack *p = NULL; (p = td_packs_next(s, param, p));) {
        p->era = 0;
    }
}

void td_packs_forget(struct td_packs *s, const void *param) {
    for (struct td_pack *p = NULL; (p = td_packs_next(s, param, p));) {
        p->era = 0;
        p->was_read = false;
    }
}

td_status td_packs_add(struct td_packs *s, const struct td_pack *like, struct td_pack **out_pack) {
    int n = 0;
    for (const struct td_pack *p = s->list; p; p = p->next) {
        n++;
    }
    if (n >= TD_PACKS_MAX) {
        return td_fail(TD_RESOURCE_EXHAUSTED, "more than %d packed weights", TD_PACKS_MAX);
    }
    struct td_pack *p = td_calloc(1, sizeof *p);
    void *data = p ? td_cpu_memory_alloc(s->memory, like->bytes) : NULL;
    if (!data) {
        free(p);
        return td_fail_oom();
    }
    *p = *like;
    p->data = data;
    p->era = 0;
    p->was_read = p->is_populated = false;
    p->next = s->list;
    s->list = p;
    *out_pack = p;
    return TD_OK;
}

static bool same_panels(const struct td_pack_shape *a, const struct td_pack_shape *b) {
    return a->panels == b->panels && a->rows == b->rows && a->cols == b->cols &&
           a->block == b->block && a->from == b->from && a->as == b->as;
}

td_status td_packs_own(struct td_packs *s, const void *param, const struct td_pack_shape *shape,
                       struct td_pack **out_pack) {
    for (struct td_pack *p = NULL; param && (p = td_packs_next(s, param, p));) {
        if (!same_panels(&p->shape, shape)) continue;
        *out_pack = p;
        return TD_OK;
    }
    const struct td_pack like = {
        .param = param, .shape = *shape, .bytes = td_kernels()->matmul_panel_bytes(shape)};
    return td_packs_add(s, &like, out_pack);
}

int td_packs_update(struct td_packs *s, const void *param, struct td_pack_target *out_targets) {
    int n = 0;
    for (struct td_pack *p = NULL; n < TD_PACKS_OF_UPDATE && (p = td_packs_next(s, param, p));) {
        if (!p->was_read || !p->shape.cols) continue;
        p->was_read = false;
        p->era = s->era;
        out_targets[n++] = (struct td_pack_target){p->shape, p->data};
    }
    return n;
}

td_status td_packs_read(struct td_packs *s, struct td_pack *p, const void *weights) {
    p->was_read = true;
    if (p->param && p->era == s->era) return TD_OK;
    p->era = s->era;
    if (!p->is_populated) td_cpu_memory_populate(p->data, p->bytes);
    p->is_populated = true;
    if (!p->shape.cols) return p->make(p->of, weights);
    td_kernels()->pack_rows(&p->shape, weights, p->data);
    return TD_OK;
}
