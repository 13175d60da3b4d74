// See the header.

#include "daemon/coordinator/core/model/gpu_marks.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/buf.h"
#include "lib/base/clip.h"
#include "lib/base/json.h"

void td_gpu_marks_finish(struct td_gpu_marks *m) {
    free(m->mark);
    *m = (struct td_gpu_marks){.mark = NULL};
}

bool td_gpu_marks_any(const struct td_gpu_marks *m) {
    return m->n || m->seen;
}

static struct td_gpu_mark *find(const struct td_gpu_marks *m, const char *uuid) {
    for (uint32_t i = 0; i < m->n; i++) {
        if (strcmp(m->mark[i].uuid, uuid) == 0) return &m->mark[i];
    }
    return NULL;
}

const struct td_gpu_mark *td_gpu_marks_excluded(const struct td_gpu_marks *m, const char *uuid) {
    const struct td_gpu_mark *found = find(m, uuid);
    return found && found->excludes ? found : NULL;
}

static void drop(struct td_gpu_marks *m, uint32_t i) {
    memmove(&m->mark[i], &m->mark[i + 1], (--m->n - i) * sizeof m->mark[0]);
}

static void make_room(struct td_gpu_marks *m) {
    for (uint32_t i = 0; i < m->n && m->n == TD_GPU_MARKS; i++) {
        if (!m->mark[i].excludes) drop(m, i);
    }
    if (m->n == TD_GPU_MARKS) drop(m, 0);
}

// The oldest is the first.
static void put(struct td_gpu_marks *m, const struct td_gpu_mark *mark) {
    if (!m->mark) m->mark = td_calloc(TD_GPU_MARKS, sizeof *m->mark);
    TD_CHECK(m->mark && "out of memory: start again from the disk");
    struct td_gpu_mark *old = find(m, mark->uuid);
    if (old) drop(m, (uint32_t)(old - m->mark));
    make_room(m);
    m->mark[m->n++] = *mark;
    m->unsaved = true;
}

bool td_gpu_marks_exclude(struct td_gpu_marks *m, const struct td_gpu_mark *mark) {
    const bool was = td_gpu_marks_excluded(m, mark->uuid);
    struct td_gpu_mark made = *mark;
    if (was && !mark->by[0]) return false;
    made.excludes = true;
    put(m, &made);
    return !was;
}

bool td_gpu_marks_blame(struct td_gpu_marks *m, const char *uuid, const char *job,
                        const char *owner, int64_t now_ns) {
    const struct td_gpu_mark *first = find(m, uuid);
    struct td_gpu_mark made = {.time_ns = now_ns};
    snprintf(made.uuid, sizeof made.uuid, "%s", uuid);
    if (first && first->excludes) return false;
    if (first && strcmp(first->job, job) != 0 && strcmp(first->owner, owner) != 0) {
        (void)td_clip(made.reason, sizeof made.reason,
                      "%s of %s and %s of %s, two jobs of two owners, have failed by this device",
                      first->job, first->owner[0] ? first->owner : "an unknown owner", job,
                      owner[0] ? owner : "an unknown owner");
        return td_gpu_marks_exclude(m, &made);
    }
    if (first) return false;
    snprintf(made.job, sizeof made.job, "%s", job);
    (void)td_clip(made.owner, sizeof made.owner, "%s", owner);
    put(m, &made);
    return false;
}

bool td_gpu_marks_clear(struct td_gpu_marks *m, const char *uuid) {
    const struct td_gpu_mark *found = find(m, uuid);
    if (!found) return false;
    drop(m, (uint32_t)(found - m->mark));
    m->unsaved = true;
    return true;
}

bool td_gpu_marks_see(struct td_gpu_marks *m, const char *daemon, uint64_t number) {
    const bool is_same = strcmp(m->daemon, daemon) == 0;
    if (!number || (is_same && number <= m->seen)) return false;
    snprintf(m->daemon, sizeof m->daemon, "%s", daemon);
    m->seen = number;
    m->unsaved = true;
    return true;
}

// ---- records ------------------------------------------------------------------------------------
static td_status put_text(const char *key, const char *text, struct td_buf *out) {
    if (!text[0]) return TD_OK;
    TD_TRY(td_buf_printf(out, ",\"%s\":", key));
    return td_json_print_string(text, strlen(text), out);
}

static td_status encode_one(const struct td_gpu_mark *k, struct td_buf *out) {
    TD_TRY(td_buf_printf(
        out, "{\"uuid\":\"%s\",\"excludes\":%d,\"xid\":%" PRIu32 ",\"time_ns\":%" PRId64, k->uuid,
        k->excludes, k->xid, k->time_ns));
    TD_TRY(put_text("by", k->by, out));
    TD_TRY(put_text("reason", k->reason, out));
    TD_TRY(put_text("job", k->job, out));
    TD_TRY(put_text("owner", k->owner, out));
    return td_buf_str(out, "}");
}

td_status td_gpu_marks_encode(const struct td_gpu_marks *m, struct td_buf *out) {
    TD_TRY(td_buf_str(out, "{\"daemon\":"));
    TD_TRY(td_json_print_string(m->daemon, strlen(m->daemon), out));
    TD_TRY(td_buf_printf(out, ",\"seen\":%" PRId64 ",\"marks\":[", (int64_t)m->seen));
    for (uint32_t i = 0; i < m->n; i++) {
        if (i) TD_TRY(td_buf_str(out, ","));
        TD_TRY(encode_one(&m->mark[i], out));
    }
    return td_buf_str(out, "]}");
}

static void get_text(const struct td_json *v, const char *key, char *out, size_t bytes) {
    (void)td_clip(out, bytes, "%s", td_json_string(td_json_get(v, key), ""));
}

static void decode_one(struct td_gpu_marks *m, const struct td_json *v) {
    struct td_gpu_mark k = {.excludes = td_json_int(td_json_get(v, "excludes"), 0) != 0,
                            .xid = (uint32_t)td_json_int(td_json_get(v, "xid"), 0),
                            .time_ns = td_json_int(td_json_get(v, "time_ns"), 0)};
    get_text(v, "uuid", k.uuid, sizeof k.uuid);
    get_text(v, "by", k.by, sizeof k.by);
    get_text(v, "reason", k.reason, sizeof k.reason);
    get_text(v, "job", k.job, sizeof k.job);
    get_text(v, "owner", k.owner, sizeof k.owner);
    if (td_device_uuid_ok(k.uuid)) put(m, &k);
}

void td_gpu_marks_decode(struct td_gpu_marks *m, const struct td_json *v) {
    const struct td_json *list = td_json_get(v, "marks");
    for (const struct td_json *k = list ? list->first : NULL; k; k = k->next) {
        decode_one(m, k);
    }
    get_text(v, "daemon", m->daemon, sizeof m->daemon);
    m->seen = (uint64_t)td_json_int(td_json_get(v, "seen"), 0);
    m->unsaved = false;
}
