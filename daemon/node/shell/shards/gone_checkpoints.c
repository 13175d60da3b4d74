// See the header. A line "removed" takes back the line "checkpoint" of the same path, so what is
// kept meanwhile is what retention keeps, not all that was ever written.

#include "daemon/node/shell/shards/gone_checkpoints.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "lib/attempt/checkpoint_name.h"
#include "lib/attempt/events.h"
#include "lib/attempt/segments.h"
#include "lib/base/files/files.h"
#include "lib/base/map.h"

enum { READ_BYTES = 2 * TD_SEGMENT_LINE_MAX, MOST = 4096, LINE_ARENA_MAX = 1 << 20 };
static char listed[1]; // a value that is not NULL

static td_status take_line(struct td_arena *lines, struct td_map *paths, const char *line,
                           size_t len) {
    const bool is_removed = td_event_line_is(line, len, TD_EVENT_REMOVED);
    if (!is_removed && !td_event_line_is(line, len, TD_EVENT_CHECKPOINT)) return TD_OK;
    struct td_event event;
    td_arena_reset(lines);
    TD_TRY(td_event_parse(lines, line, len, &event));
    const char *path = is_removed ? event.removed.path : event.checkpoint.path;
    if (!td_checkpoint_path_ok(path)) return TD_OK;
    if (is_removed) {
        (void)td_map_remove(paths, path);
        return TD_OK;
    }
    return td_map_put(paths, path, listed, NULL);
}

static td_status read_log(const char *dir, struct td_map *paths) {
    char path[TD_FS_PATH_BYTES];
    TD_AUTO(td_arena) *lines = NULL;
    TD_TRY(td_fs_path(path, "%s/%s", dir, TD_SEGMENT_EVENTS));
    TD_TRY(td_arena_create(LINE_ARENA_MAX, &lines));
    TD_AUTO_CLOSE int fd = -1;
    TD_TRY(td_fs_open(path, &fd, NULL));
    TD_AUTO_FREE char *text = td_calloc(1, READ_BYTES);
    if (!text) return td_fail_oom();
    for (off_t at = 0;;) {
        ssize_t n = pread(fd, text, READ_BYTES, at);
        if (n < 0) return td_fs_fail("read", path);
        char *line = text, *end;
        for (; n > 0 && (end = memchr(line, '\n', (size_t)(text + n - line))); line = end + 1) {
            TD_TRY(take_line(lines, paths, line, (size_t)(end - line)));
        }
        if (line == text) return TD_OK; // no whole line is left
        at += line - text;
    }
}

td_status td_gone_checkpoints(const char *dir, const char *checkpoints, struct td_arena *a,
                              char ***out_paths, size_t *out_n) {
    TD_AUTO(td_map) *paths = NULL;
    size_t n = 0, cursor = 0;
    const char *key;
    void *value;
    TD_TRY(td_map_create(MOST, &paths));
    TD_TRY(read_log(dir, paths));
    char **gone = td_arena_array(a, td_map_count(paths) + 1, sizeof *gone);
    if (!gone) return td_fail_oom();
    while (td_map_next(paths, &cursor, &key, &value)) {
        char manifest[TD_FS_PATH_BYTES];
        TD_TRY(td_fs_path(manifest, "%s/%s/manifest.json", checkpoints, key));
        if (td_fs_exists(manifest)) continue;
        gone[n] = td_arena_printf(a, "%s", key);
        if (!gone[n++]) return td_fail_oom();
    }
    *out_paths = gone;
    *out_n = n;
    return TD_OK;
}
