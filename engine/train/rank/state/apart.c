// A part of each rank's piece is gathered at a time. On the way back whole tensors are broadcast,
// and each rank takes what is in its piece. That is W times as many bytes as it keeps, but once in
// an attempt. Rejected: sends to each rank, which a collective may lack.

#include "engine/train/rank/state/apart.h"

#include <stdlib.h>
#include <string.h>

#include "engine/train/checkpoint/restore.h"
#include "engine/train/rank/group/group.h"
#include "lib/base/files/files.h"
#include "lib/base/floats/floats.h"

enum { PART_BYTES = 8 << 20 };

static td_status read_memory(struct td_rank *r, const struct td_state_info *t, size_t at, char *to,
                             size_t n) {
    return r->accel_ops->copy(r->accel, td_buffer_of_host(to, n), 0, r->memory.region[t->role],
                              t->offset + at, n);
}

// ---- to a checkpoint ----------------------------------------------------------------------------

// `all` has a part of each rank's piece, which begins at `at` of it. What is past the end of the
// tensor is left out.
static void put_parts(const struct td_state_info *t, const char *all, int32_t world, size_t at,
                      size_t n, char *whole) {
    const size_t end = td_state_whole_bytes(t);
    for (int32_t q = 0; q < world; q++) {
        const size_t to = (size_t)q * t->bytes + at;
        if (to >= end) return;
        memcpy(whole + t->whole_offset + to, all + (size_t)q * n, TD_MIN(n, end - to));
    }
}

// own: (PART_BYTES / W). all: (PART_BYTES).
static td_status bring_tensor(struct td_rank *r, const struct td_state_info *t, char *own,
                              char *all, char *whole) {
    for (size_t at = 0, n; at < t->bytes; at += n) {
        n = TD_MIN(t->bytes - at, (size_t)PART_BYTES / (size_t)r->facts.world_size);
        TD_TRY(read_memory(r, t, at, own, n));
        TD_TRY(td_rank_all_gather(r, TD_GROUP_WORLD, own, n, all));
        if (whole) put_parts(t, all, r->facts.world_size, at, n, whole);
    }
    return TD_OK;
}

td_status td_rank_bring_pieces(struct td_rank *r, enum td_role role, char *whole) {
    TD_AUTO_FREE char *own = malloc((size_t)PART_BYTES / (size_t)r->facts.world_size);
    TD_AUTO_FREE char *all = malloc(PART_BYTES);
    if (!own || !all) return td_fail_oom();
    for (uint32_t i = 0; i < td_state_count(r->state); i++) {
        const struct td_state_info *t = td_state_at(r->state, i);
        if (t->role != role) continue;
        if (td_state_is_apart(t)) {
            TD_TRY_CTX(bring_tensor(r, t, own, all, whole), "tensor '%s'", t->name);
        } else if (whole) {
            TD_TRY(read_memory(r, t, 0, whole + t->whole_offset, td_state_whole_bytes(t)));
        }
    }
    return TD_OK;
}

// ---- from a checkpoint --------------------------------------------------------------------------

// The first rank that reads the role; -1: none does.
static td_status find_reader(struct td_rank *r, enum td_role role, int32_t *out_rank) {
    uint32_t own;
    const int32_t world = r->facts.world_size;
    TD_AUTO_FREE uint32_t *all = td_calloc((size_t)world, sizeof *all);
    if (!all) return td_fail_oom();
    TD_TRY(td_rank_read_roles(r, &own));
    TD_TRY(td_rank_all_gather(r, TD_GROUP_WORLD, &own, sizeof own, all));
    *out_rank = -1;
    for (int32_t q = world; q-- > 0;) {
        if (all[q] >> role & 1) *out_rank = q;
    }
    return TD_OK;
}

// The tensor of the checkpoint, as it was saved; NULL: it never had it. On the reader.
static td_status find_saved(const struct td_rank *r, struct td_safetensors *file,
                            const struct td_state_info *t, const struct td_tensor **out_tensor) {
    *out_tensor = NULL;
    if (!td_manifest_lists(&r->restored.manifest, t->name)) return TD_OK;
    const struct td_tensor *from = td_safetensors_find(file, t->name);
    TD_TRY(td_restore_check(from, t));
    *out_tensor = from;
    return TD_OK;
}

// What of [at, at + n) of the tensor's bytes is in this rank's piece.
static td_status take_part(struct td_rank *r, const struct td_state_info *t, size_t at, char *part,
                           size_t n) {
    const size_t elem = td_dtype_bytes(t->dtype);
    const size_t first = (size_t)t->piece.first * elem;
    const size_t begin = TD_MAX(at, first);
    const size_t end = TD_MIN(at + n, first + (size_t)t->piece.count * elem);
    if (begin >= end) return TD_OK;
    return r->accel_ops->copy(r->accel, r->memory.region[t->role], t->offset + (begin - first),
                              td_buffer_of_host(part + (begin - at), end - begin), 0, end - begin);
}

// Some elements of it in the type of memory.
static void convert(const struct td_tensor *from, const struct td_state_info *t, size_t at,
                    size_t n, char *out) {
    const int64_t first = (int64_t)(at / td_dtype_bytes(t->dtype));
    const char *data = (const char *)from->data + (size_t)first * td_dtype_bytes(from->dtype);
    const int64_t count = (int64_t)(n / td_dtype_bytes(t->dtype));
    if (from->dtype == t->dtype) {
        memcpy(out, data, n);
    } else {
        td_float_convert(from->dtype, data, count, t->dtype, out);
    }
}

static td_status hand_out_tensor(struct td_rank *r, int32_t reader, struct td_safetensors *file,
                                 const struct td_state_info *t, char *part) {
    const bool reads = reader == r->facts.global_rank;
    const struct td_tensor *from = NULL;
    if (reads) TD_TRY(find_saved(r, file, t, &from)); // a failure wakes the others
    int32_t is_there = from != NULL;
    TD_TRY(td_rank_broadcast(r, &is_there, sizeof is_there, reader));
    const size_t bytes = is_there ? td_state_whole_bytes(t) : 0;
    for (size_t at = 0, n; at < bytes; at += n) {
        n = TD_MIN(bytes - at, (size_t)PART_BYTES);
        if (reads) convert(from, t, at, n, part);
        TD_TRY(td_rank_broadcast(r, part, n, reader));
        TD_TRY(take_part(r, t, at, part, n));
    }
    return TD_OK;
}

static td_status hand_out(struct td_rank *r, int32_t reader) {
    char path[TD_FS_PATH_BYTES];
    TD_AUTO(td_safetensors) *file = NULL;
    TD_AUTO_FREE char *part = malloc(PART_BYTES);
    if (!part) return td_fail_oom();
    if (reader == r->facts.global_rank) {
        TD_TRY(td_fs_path(path, "%s/%s", r->restored.path, td_manifest_file_of(TD_ROLE_OPTIM)));
        TD_TRY(td_safetensors_open(path, &file));
    }
    for (uint32_t i = 0; i < td_state_count(r->state); i++) {
        const struct td_state_info *t = td_state_at(r->state, i);
        if (t->role != TD_ROLE_OPTIM || !td_state_is_apart(t)) continue;
        TD_TRY_CTX(hand_out_tensor(r, reader, file, t, part), "tensor '%s'", t->name);
    }
    return TD_OK;
}

td_status td_rank_hand_out_pieces(struct td_rank *r) {
    int32_t reader = -1;
    if (!r->resumed || !td_state_role_is_apart(r->state, TD_ROLE_OPTIM)) return TD_OK;
    if (!(r->config->stages & TD_STAGE_FIT) || !r->facts.restore_optimizer) return TD_OK;
    TD_TRY(find_reader(r, TD_ROLE_OPTIM, &reader));
    if (reader < 0) return TD_OK;
    return td_status_context(hand_out(r, reader), "hand out the optimizer state of a checkpoint");
}
