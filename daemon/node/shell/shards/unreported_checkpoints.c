// See the header. Lines are those of a rank (engine/train/checkpoint/checkpoint.c writes them),
// without what only the rank knew: how long it was held up, and whether it was its last.

#include "daemon/node/shell/shards/unreported_checkpoints.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/attempt/checkpoint_name.h"
#include "lib/attempt/event_writer.h"
#include "lib/attempt/segments.h"
#include "lib/base/clock.h"
#include "lib/base/digest.h"
#include "lib/base/files/files.h"
#include "lib/base/json.h"
#include "lib/base/log.h"

enum {
    READ_BYTES = 2 * TD_SEGMENT_LINE_MAX,
    LINE_ARENA_MAX = 1 << 20,
    MANIFEST_MAX = 32 << 20,
    ARENA_MAX = 256 << 20,
};

// ---- the log ------------------------------------------------------------------------------------
static int64_t step_of(struct td_arena *a, const char *line, size_t bytes) {
    struct td_event event;
    if (!td_event_line_is(line, bytes, TD_EVENT_CHECKPOINT)) return -1;
    td_arena_reset(a);
    td_status misfit = td_event_parse(a, line, bytes, &event);
    if (!misfit) return event.checkpoint.step;
    td_status_log(TD_LOG_WARN, misfit, "line of events.log passed over, continuing");
    return -1;
}

// The step of the last checkpoint line; -1: there is none.
static td_status last_reported(int fd, int64_t *out_step) {
    TD_AUTO(td_arena) *line_arena = NULL;
    TD_TRY(td_arena_create(LINE_ARENA_MAX, &line_arena));
    TD_AUTO_FREE char *text = td_calloc(1, READ_BYTES);
    if (!text) return td_fail_oom();
    int64_t last = -1;
    for (off_t at = 0;;) {
        ssize_t n = pread(fd, text, READ_BYTES, at);
        if (n < 0) return td_fs_fail("read", TD_SEGMENT_EVENTS);
        char *end = n > 0 ? memrchr(text, '\n', (size_t)n) : NULL;
        if (!end) break;
        for (char *line = text, *stop; line <= end; line = stop + 1) {
            stop = memchr(line, '\n', (size_t)(end - line) + 1);
            last = TD_MAX(last, step_of(line_arena, line, (size_t)(stop - line)));
        }
        at += end - text + 1;
    }
    *out_step = last;
    return TD_OK;
}

// ---- one checkpoint -----------------------------------------------------------------------------
static td_status sum_files(const struct td_json *manifest, uint64_t *inout_bytes) {
    const struct td_json *files = td_json_get(manifest, "files");
    for (const struct td_json *f = files ? files->first : NULL; f; f = f->next) {
        int64_t bytes = td_json_int(td_json_get(f, "bytes"), -1);
        if (bytes < 0) return td_fail(TD_DATA_LOSS, "its list of files is malformed");
        *inout_bytes += (uint64_t)bytes;
    }
    return TD_OK;
}

static void add_files(const struct td_json *manifest, struct td_event_writer *w) {
    const struct td_json *files = td_json_get(manifest, "files");
    td_event_checkpoint_files(w);
    for (const struct td_json *f = files ? files->first : NULL; f; f = f->next) {
        const char *name = td_json_string(td_json_get(f, "name"), "");
        const char *digest = td_json_string(td_json_get(f, "xxh3_128"), "");
        td_event_add_file(w, name, (uint64_t)td_json_int(td_json_get(f, "bytes"), 0), digest);
    }
    td_event_end_list(w);
}

static void add_metrics(const struct td_json *manifest, struct td_event_writer *w) {
    const struct td_json *metrics = td_json_get(manifest, "metrics");
    bool named = metrics && metrics->kind == TD_JSON_OBJECT;
    td_event_checkpoint_metrics(w);
    for (const struct td_json *m = named ? metrics->first : NULL; m; m = m->next) {
        double sum = (double)NAN;
        (void)td_json_value(td_json_get(m, "sum"), &sum);
        double count = td_json_real(td_json_get(m, "count"), 1);
        td_event_add_metric(w, m->key, count > 0 ? sum / count : (double)NAN);
    }
    td_event_end_list(w);
}

static td_status add_line(const char *dir, const char *label, int64_t step, struct td_buf *b) {
    char path[TD_FS_PATH_BYTES], name[TD_FS_PATH_BYTES], digest[TD_DIGEST_HEX];
    TD_TRY(td_fs_path(name, "%s/%s", label, td_checkpoint_name_of(step).text));
    TD_TRY(td_fs_path(path, "%s/%s/manifest.json", dir, td_checkpoint_name_of(step).text));
    TD_AUTO_BUF text;
    td_buf_init(&text, MANIFEST_MAX);
    TD_TRY(td_fs_read(path, MANIFEST_MAX, &text));
    td_xxh3_128_hex(text.data, text.len, digest);
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *manifest = NULL;
    TD_TRY(td_arena_create(ARENA_MAX, &arena));
    TD_TRY(td_json_parse(arena, text.data, text.len, &manifest));
    if (td_json_int(td_json_get(manifest, "format"), 0) != 1 ||
        td_json_int(td_json_get(manifest, "step"), -1) != step) {
        return td_fail(TD_DATA_LOSS, "'%s' is not the manifest of step %lld", path,
                       (long long)step);
    }
    uint64_t bytes = text.len;
    TD_TRY(sum_files(manifest, &bytes));
    path[strlen(path) - strlen("/manifest.json")] = '\0';
    struct td_event_writer w;
    td_event_open(&w, TD_EVENT_CHECKPOINT, b);
    td_event_checkpoint_step(&w, step);
    td_event_checkpoint_epoch(&w, td_json_int(td_json_get(manifest, "epoch"), 0));
    td_event_checkpoint_path(&w, name);
    td_event_checkpoint_directory(&w, path);
    add_files(manifest, &w);
    add_metrics(manifest, &w);
    td_event_checkpoint_bytes(&w, (int64_t)bytes);
    td_event_checkpoint_manifest(&w, digest);
    td_event_checkpoint_boundary(&w, td_json_int(td_json_get(manifest, "boundary"), 0));
    td_event_real_ns(&w, td_real_now().ns);
    TD_TRY(td_event_close(&w));
    return td_buf_str(b, "\n");
}

// ---- all ----------------------------------------------------------------------------------------
// The lowest step above `above` that is whole on disk; -1: there is none.
static int64_t next_whole(const char *checkpoint_dir, int64_t above) {
    int64_t least = -1;
    DIR *dir = opendir(checkpoint_dir);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        const int64_t step = td_checkpoint_name_step(e->d_name, ""); // -1 is not above
        char path[TD_FS_PATH_BYTES];
        if (step <= above || (least >= 0 && step >= least)) continue;
        td_status s = td_fs_path(path, "%s/%s/manifest.json", checkpoint_dir, e->d_name);
        if (!s && td_fs_exists(path)) least = step;
        td_status_free(s);
    }
    if (dir) closedir(dir);
    return least;
}

td_status td_unreported_lines(int log_fd, const char *checkpoint_dir, struct td_buf *out) {
    const char *label = strrchr(checkpoint_dir, '/');
    int64_t step = -1;
    TD_TRY(last_reported(log_fd, &step));
    while ((step = next_whole(checkpoint_dir, step)) >= 0) {
        size_t before = out->len;
        td_status s = add_line(checkpoint_dir, label ? label + 1 : checkpoint_dir, step, out);
        if (!s && out->len - before > TD_SEGMENT_LINE_MAX) s = td_fail_oom();
        if (s) {
            out->len = before;
            td_status_log(TD_LOG_WARN, s, "checkpoint that no log names is left, continuing");
        } else {
            td_log_info("checkpoint found that no log names dir=%s step=%lld", checkpoint_dir,
                        (long long)step);
        }
    }
    return TD_OK;
}
