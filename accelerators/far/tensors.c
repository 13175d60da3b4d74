// A list of places with a buffer each. The control flags after the last gradient bucket are one
// more place.

#include "accelerators/far/tensors.h"

#include <string.h>

#include "lib/base/base.h"

struct place {
    size_t offset, bytes;
    char *data;
};

struct td_far_tensors {
    size_t region_bytes, n;
    struct place place[];
};

static td_status add(struct td_far_tensors *t, size_t offset, size_t bytes) {
    struct place *p = &t->place[t->n];
    *p = (struct place){offset, bytes, td_calloc(1, TD_MAX(bytes, (size_t)1))};
    if (!p->data) return td_fail_oom();
    t->n++;
    return TD_OK;
}

td_status td_far_tensors_create(const struct td_state_table *state, enum td_role role,
                                struct td_far_tensors **out_tensors) {
    const uint32_t n = td_state_count(state);
    struct td_far_tensors *t = td_calloc(1, sizeof *t + (n + 1) * sizeof t->place[0]);
    if (!t) return td_fail_oom();
    td_status s = TD_OK;
    t->region_bytes = td_state_region_bytes(state, role);
    for (uint32_t i = 0; i < n && !s; i++) {
        const struct td_state_info *info = td_state_at(state, i);
        if (info->role == role) s = add(t, info->offset, info->bytes);
    }
    if (role == TD_ROLE_GRAD && !s) {
        s = add(t, td_state_control_offset(state), TD_CONTROL_FLAGS * sizeof(float));
    }
    if (s) {
        td_far_tensors_destroy(t);
        return s;
    }
    *out_tensors = t;
    return TD_OK;
}

void td_far_tensors_destroy(struct td_far_tensors *t) {
    if (!t) return;
    for (size_t i = 0; i < t->n; i++) {
        free(t->place[i].data);
    }
    free(t);
}

void td_far_tensors_load(const struct td_far_tensors *t, char *region) {
    for (size_t i = 0; i < t->n; i++) {
        memcpy(region + t->place[i].offset, t->place[i].data, t->place[i].bytes);
    }
}

td_status td_far_tensors_store(struct td_far_tensors *t, const char *region) {
    for (size_t i = 0; i < t->n; i++) {
        struct place *p = &t->place[i];
        const char *now = region + p->offset;
        if (memcmp(p->data, now, p->bytes) == 0) continue;
        char *data = malloc(p->bytes);
        if (!data) return td_fail_oom();
        memcpy(data, now, p->bytes);
        memset(p->data, 0xfa, p->bytes); // who kept it reads nonsense
        free(p->data);
        p->data = data;
    }
    return TD_OK;
}

// The part of a place that is in [offset, offset + bytes): from `begin` on, `n` bytes.
struct part {
    size_t begin, n;
};
static struct part overlap(const struct place *p, size_t offset, size_t bytes) {
    const size_t begin = TD_MAX(p->offset, offset);
    const size_t end = TD_MIN(p->offset + p->bytes, offset + bytes);
    return (struct part){begin, end > begin ? end - begin : 0};
}

static td_status check_range(const struct td_far_tensors *t, size_t offset, size_t bytes) {
    if (offset <= t->region_bytes && bytes <= t->region_bytes - offset) return TD_OK;
    return td_fail(TD_OUT_OF_RANGE, "copy of %zu bytes at %zu of a region of %zu", bytes, offset,
                   t->region_bytes);
}

td_status td_far_tensors_read(const struct td_far_tensors *t, size_t offset, size_t bytes,
                              char *out) {
    TD_TRY(check_range(t, offset, bytes));
    memset(out, 0, bytes);
    for (size_t i = 0; i < t->n; i++) {
        const struct place *p = &t->place[i];
        const struct part at = overlap(p, offset, bytes);
        if (at.n) memcpy(out + (at.begin - offset), p->data + (at.begin - p->offset), at.n);
    }
    return TD_OK;
}

td_status td_far_tensors_write(struct td_far_tensors *t, size_t offset, size_t bytes,
                               const char *in) {
    TD_TRY(check_range(t, offset, bytes));
    for (size_t i = 0; i < t->n; i++) {
        struct place *p = &t->place[i];
        const struct part at = overlap(p, offset, bytes);
        if (at.n) memcpy(p->data + (at.begin - p->offset), in + (at.begin - offset), at.n);
    }
    return TD_OK;
}
