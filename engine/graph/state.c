// State table: the one list of tensors that belong to a rank, whatever graphs use them.
//
// Parameters, buffers, gradients and optimizer state are registered by name while steps are
// recorded; all graphs of the job agree through it on dtype, shape and initialization. After the
// last program was recorded, td_state_layout gives each tensor its place in the region of its role.
// The order is that of registration, but gradients are by bucket. So a bucket is one contiguous
// range that a collective reduces. The control flags are right after the last bucket. Registration
// order of gradients is backward order (autodiff makes them), which is what buckets want inside as
// well.
//
// A precision may store a tensor in another type than the module names. Steps go on recording the
// named one, and every program is rewritten alike before anything looks at memory.
//
// Infos are allocated one by one in an arena: a pointer from td_state_at stays good until destroy.
// Bound: 65,536 tensors. Thread: one. Rejected: offsets given out at registration, because the
// bucket of a gradient is known only when the strategy has seen the whole backward pass.

#include "engine/graph/state.h"

#include <inttypes.h>
#include <string.h>

#include "engine/graph/graph.h"
#include "engine/graph/graph_text.h"
#include "engine/graph/rules/rules.h"
#include "lib/base/map.h"

enum { STATE_MAX = 65536, STATE_ALIGN = 64, STATE_NAME_MAX = 255 };

struct state_entry {
    struct td_state_info info;
    enum td_dtype recorded; // what steps name; info.dtype is what memory holds
    bool has_bucket;
};

struct td_state_table {
    struct td_arena *arena;
    struct td_map *by_name; // index + 1 as the value
    struct state_entry **entries;
    uint32_t n, cap;
    uint32_t n_buckets;
    int32_t rank, world_size; // world_size 0: 1
    td_state_rule *rule;      // NULL: none
    void *rule_arg;
    bool frozen;
    size_t region_bytes[TD_ROLE_COUNT], whole_bytes[TD_ROLE_COUNT];
    size_t control_offset;
};

static const char *const role_names[TD_ROLE_COUNT] = {
    [TD_ROLE_PARAM] = "param", [TD_ROLE_BUFFER] = "buffer", [TD_ROLE_GRAD] = "grad",
    [TD_ROLE_OPTIM] = "optim", [TD_ROLE_RESULT] = "result",
};

const char *td_role_name(enum td_role r) {
    return (unsigned)r < TD_ROLE_COUNT ? role_names[r] : "unknown";
}

td_status td_state_table_create(struct td_state_table **out_table) {
    struct td_state_table *t = td_calloc(1, sizeof *t);
    if (!t) return td_fail_oom();
    td_status s = td_arena_create((size_t)64 << 20, &t->arena);
    if (!s) s = td_map_create(STATE_MAX, &t->by_name);
    if (s) {
        td_state_table_destroy(t);
        return s;
    }
    *out_table = t;
    return TD_OK;
}

void td_state_table_destroy(struct td_state_table *t) {
    if (!t) return;
    td_map_destroy(t->by_name);
    td_arena_destroy(t->arena);
    free(t->entries);
    free(t);
}

static void set_bytes(struct td_state_info *info) {
    int64_t n = td_shape_elems(&info->shape);
    if (info->n_pieces) {
        const int64_t each = td_piece_length(n, info->n_pieces);
        n = info->has_piece_alone ? each : each * info->n_pieces;
    }
    info->bytes = (size_t)n * td_dtype_bytes(info->dtype);
}

static td_status state_check_same(const struct state_entry *entry, enum td_role role,
                                  enum td_dtype dtype, const struct td_shape *shape) {
    const struct td_state_info *have = &entry->info;
    if (have->role == role && entry->recorded == dtype && td_shape_equal(&have->shape, shape)) {
        return TD_OK;
    }
    char a[96], b[96];
    td_shape_text(entry->recorded, &have->shape, a, sizeof a);
    td_shape_text(dtype, shape, b, sizeof b);
    return td_fail(TD_FAILED_PRECONDITION,
                   "state '%s' is %s %s in another step and %s %s here: all steps must agree",
                   have->name, td_role_name(have->role), a, td_role_name(role), b);
}

static td_status state_append(struct td_state_table *t, const char *name,
                              struct state_entry **out_entry) {
    if (t->n >= STATE_MAX) {
        return td_fail(TD_RESOURCE_EXHAUSTED, "more than %d state tensors; '%s' does not fit",
                       STATE_MAX, name);
    }
    if (t->n == t->cap) {
        uint32_t cap = t->cap ? t->cap * 2 : 64;
        void *grown = td_realloc(t->entries, cap * sizeof *t->entries);
        if (!grown) return td_fail_oom();
        t->entries = grown;
        t->cap = cap;
    }
    struct state_entry *e = td_arena_alloc(t->arena, sizeof *e);
    if (!e) return td_fail_oom();
    e->info.name = td_arena_strdup(t->arena, name);
    if (!e->info.name) return td_fail_oom();
    TD_TRY(td_map_put(t->by_name, name, (void *)(uintptr_t)(t->n + 1), NULL));
    t->entries[t->n++] = e;
    *out_entry = e;
    return TD_OK;
}

void td_state_set_rule(struct td_state_table *t, td_state_rule *rule, void *arg) {
    t->rule = rule;
    t->rule_arg = arg;
}

static td_status ask_rule(const struct td_state_table *t, const struct td_state_info *info,
                          bool *out_split) {
    *out_split = false;
    if (!t->rule) return TD_OK;
    TD_TRY_CTX(t->rule(t->rule_arg, info, out_split), "state '%s'", info->name);
    return TD_OK;
}

td_status td_state_add(struct td_state_table *t, const char *name, enum td_role role,
                       enum td_dtype dtype, const struct td_shape *shape, struct td_init init,
                       uint32_t param, uint32_t *out_index) {
    if (!name || !*name || strlen(name) > STATE_NAME_MAX) {
        return td_fail(TD_INVALID_ARGUMENT, "a state name must have 1 to %d characters",
                       STATE_NAME_MAX);
    }
    if ((unsigned)role >= TD_ROLE_COUNT) {
        return td_fail(TD_INVALID_ARGUMENT, "state '%s': role %d is unknown", name, (int)role);
    }
    TD_TRY_CTX(td_shape_check(dtype, shape), "state '%s'", name);
    uintptr_t found = (uintptr_t)td_map_get(t->by_name, name);
    if (found) {
        TD_TRY(state_check_same(t->entries[found - 1], role, dtype, shape));
        *out_index = (uint32_t)(found - 1);
        return TD_OK;
    }
    if (t->frozen) {
        return td_fail(TD_FAILED_PRECONDITION,
                       "state '%s' was not there when memory was laid out: a step must name the "
                       "same tensors each time it is recorded",
                       name);
    }
    bool belongs = role == TD_ROLE_GRAD || role == TD_ROLE_OPTIM;
    if (belongs && (param >= t->n || t->entries[param]->info.role != TD_ROLE_PARAM)) {
        return td_fail(TD_INVALID_ARGUMENT, "state '%s': index %" PRIu32 " is not a parameter",
                       name, param);
    }
    struct td_state_info info = {.name = name,
                                 .role = role,
                                 .dtype = dtype,
                                 .shape = *shape,
                                 .init = init,
                                 .param = belongs ? param : t->n,
                                 .piece.count = td_shape_elems(shape)};
    struct state_entry *e = NULL;
    bool split;
    set_bytes(&info);
    TD_TRY(ask_rule(t, &info, &split));
    TD_TRY(state_append(t, name, &e));
    info.name = e->info.name; // the table's copy
    e->info = info;
    e->recorded = dtype;
    if (split) TD_TRY(td_state_split(t, t->n - 1, TD_MAX(t->world_size, 1), false));
    *out_index = t->n - 1;
    return TD_OK;
}

uint32_t td_state_count(const struct td_state_table *t) {
    return t->n;
}

const struct td_state_info *td_state_at(const struct td_state_table *t, uint32_t index) {
    TD_CHECK(index < t->n);
    return &t->entries[index]->info;
}

td_status td_state_find(const struct td_state_table *t, const char *name, uint32_t *out_index) {
    uintptr_t found = (uintptr_t)td_map_get(t->by_name, name);
    if (!found) return td_fail(TD_NOT_FOUND, "no state tensor is named '%s'", name);
    *out_index = (uint32_t)(found - 1);
    return TD_OK;
}

void td_state_mark(struct td_state_table *t, uint32_t index, unsigned marks) {
    TD_CHECK(index < t->n && t->entries[index]->info.role == TD_ROLE_PARAM);
    t->entries[index]->info.marks |= marks;
}

enum td_dtype td_state_recorded(const struct td_state_table *t, uint32_t index) {
    TD_CHECK(index < t->n);
    return t->entries[index]->recorded;
}

td_status td_state_retype(struct td_state_table *t, uint32_t index, enum td_dtype dtype) {
    TD_CHECK(index < t->n);
    struct state_entry *e = t->entries[index];
    if (e->info.dtype == dtype) return TD_OK;
    if (t->frozen || e->info.dtype != e->recorded) {
        return td_fail(TD_FAILED_PRECONDITION,
                       "state '%s' is stored as %s by another program and as %s by this one",
                       e->info.name, td_dtype_name(e->info.dtype), td_dtype_name(dtype));
    }
    e->info.dtype = dtype;
    set_bytes(&e->info);
    return TD_OK;
}

void td_state_set_rank(struct td_state_table *t, int32_t rank, int32_t world_size) {
    t->rank = rank;
    t->world_size = world_size;
}

int32_t td_state_rank(const struct td_state_table *t) {
    return t->rank;
}

td_status td_state_split(struct td_state_table *t, uint32_t index, int32_t n_pieces, bool alone) {
    TD_CHECK(index < t->n);
    struct td_state_info *info = &t->entries[index]->info;
    if (info->n_pieces == n_pieces && info->has_piece_alone == alone) return TD_OK;
    if (t->frozen || info->n_pieces) {
        return td_fail(TD_FAILED_PRECONDITION,
                       "state '%s' has %" PRId32 " pieces in another program, or in memory, and "
                       "%" PRId32 " in this one, or keeps others",
                       info->name, info->n_pieces, n_pieces);
    }
    if (n_pieces != TD_MAX(t->world_size, 1)) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "state '%s' in %" PRId32 " pieces among %" PRId32 " ranks", info->name,
                       n_pieces, TD_MAX(t->world_size, 1));
    }
    info->n_pieces = n_pieces;
    info->has_piece_alone = alone;
    info->piece = td_piece_of(td_shape_elems(&info->shape), n_pieces, t->rank);
    set_bytes(info);
    return TD_OK;
}

bool td_state_bucket_of(const struct td_state_table *t, uint32_t index, uint32_t *out_bucket) {
    TD_CHECK(index < t->n);
    if (!t->entries[index]->has_bucket) return false;
    *out_bucket = t->entries[index]->info.bucket;
    return true;
}

td_status td_state_set_bucket(struct td_state_table *t, uint32_t index, uint32_t bucket) {
    TD_CHECK(index < t->n && t->entries[index]->info.role == TD_ROLE_GRAD);
    if (t->frozen) {
        return td_fail(TD_FAILED_PRECONDITION,
                       "gradient '%s' got no bucket before memory was laid out",
                       t->entries[index]->info.name);
    }
    t->entries[index]->info.bucket = bucket;
    t->entries[index]->has_bucket = true;
    t->n_buckets = TD_MAX(t->n_buckets, bucket + 1);
    return TD_OK;
}

// Places the tensors of one role and, of gradients, one bucket, from *offset on.
static td_status state_place(struct td_state_table *t, enum td_role role, uint32_t bucket,
                             size_t *offset) {
    const size_t start = *offset;
    enum td_dtype dtype = TD_F32; // of the bucket's gradients so far
    for (uint32_t i = 0; i < t->n; i++) {
        struct td_state_info *info = &t->entries[i]->info;
        if (info->role != role) continue;
        if (role == TD_ROLE_GRAD && info->bucket != bucket) continue;
        if (role == TD_ROLE_GRAD && *offset != start && info->dtype != dtype) {
            return td_fail(
                TD_INVALID_ARGUMENT,
                "gradient '%s' is %s and shares a bucket with gradients of %s: a model's "
                "parameters must have one type",
                info->name, td_dtype_name(info->dtype), td_dtype_name(dtype));
        }
        dtype = info->dtype;
        info->offset = *offset;
        if (info->bytes > SIZE_MAX / 2 - *offset) {
            return td_fail(TD_RESOURCE_EXHAUSTED, "the %s tensors exceed the address space",
                           td_role_name(role));
        }
        *offset += td_align_up(info->bytes, STATE_ALIGN);
    }
    return TD_OK;
}

static void place_wholes(struct td_state_table *t) {
    for (uint32_t i = 0; i < t->n; i++) {
        struct td_state_info *info = &t->entries[i]->info;
        info->whole_offset = t->whole_bytes[info->role];
        t->whole_bytes[info->role] += td_align_up(td_state_whole_bytes(info), STATE_ALIGN);
    }
}

size_t td_state_whole_region_bytes(const struct td_state_table *t, enum td_role role) {
    TD_CHECK(t->frozen);
    return t->whole_bytes[role];
}

bool td_state_role_is_apart(const struct td_state_table *t, enum td_role role) {
    for (uint32_t i = 0; i < t->n; i++) {
        const struct td_state_info *info = &t->entries[i]->info;
        if (info->role == role && td_state_is_apart(info)) return true;
    }
    return false;
}

td_status td_state_layout(struct td_state_table *t) {
    if (t->frozen) return td_fail(TD_FAILED_PRECONDITION, "state memory is laid out once");
    if (!t->n_buckets) t->n_buckets = 1; // gradients without a strategy: one bucket
    for (int role = 0; role < TD_ROLE_COUNT; role++) {
        size_t offset = 0;
        uint32_t n = role == TD_ROLE_GRAD ? t->n_buckets : 1;
        for (uint32_t b = 0; b < n; b++) {
            TD_TRY(state_place(t, (enum td_role)role, b, &offset));
        }
        if (role == TD_ROLE_GRAD) {
            t->control_offset = offset;
            offset += TD_CONTROL_FLAGS * sizeof(float);
        }
        t->region_bytes[role] = offset;
    }
    place_wholes(t);
    t->frozen = true;
    return TD_OK;
}

size_t td_state_region_bytes(const struct td_state_table *t, enum td_role role) {
    TD_CHECK(t->frozen && (unsigned)role < TD_ROLE_COUNT);
    return t->region_bytes[role];
}

uint32_t td_state_n_buckets(const struct td_state_table *t) {
    return t->n_buckets;
}

void td_state_bucket(const struct td_state_table *t, uint32_t bucket, size_t *out_offset,
                     size_t *out_bytes, enum td_dtype *out_dtype) {
    TD_CHECK(t->frozen && bucket < t->n_buckets);
    size_t begin = SIZE_MAX, end = 0;
    *out_dtype = TD_F32;
    for (uint32_t i = 0; i < t->n; i++) {
        const struct td_state_info *info = &t->entries[i]->info;
        if (info->role != TD_ROLE_GRAD || info->bucket != bucket) continue;
        *out_dtype = info->dtype;
        begin = TD_MIN(begin, info->offset);
        end = TD_MAX(end, info->offset + td_align_up(info->bytes, STATE_ALIGN));
    }
    bool empty = begin == SIZE_MAX;
    *out_offset = empty ? t->control_offset : begin;
    *out_bytes = empty ? 0 : end - begin;
}

size_t td_state_control_offset(const struct td_state_table *t) {
    TD_CHECK(t->frozen);
    return t->control_offset;
}
