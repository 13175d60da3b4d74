// See the header. The launcher's lock on the directory is taken meanwhile, so that a mistake about
// its death cannot make two writers: then settling fails and is tried again by the caller.

#include "daemon/node/settle.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/node/untold.h"
#include "lib/base/clock.h"
#include "lib/base/fsio.h"
#include "lib/base/log.h"
#include "lib/base/segments.h"

enum { REST_MAX = 16 << 20 }; // what is appended

// The whole last line, and where the last whole line ends. "" when there is none.
static td_status read_last(int fd, const char *path, char *line, size_t line_bytes,
                           uint64_t *out_end) {
    struct stat st;
    if (fstat(fd, &st) != 0) return td_fs_fail("look at", path);
    uint64_t size = (uint64_t)st.st_size, want = 2 * TD_SEGMENT_LINE_MAX;
    uint64_t from = size > want ? size - want : 0;
    TD_AUTO_FREE char *text = td_calloc(1, (size_t)(size - from) + 1);
    if (!text) return td_fail_oom();
    ssize_t n = pread(fd, text, (size_t)(size - from), (off_t)from);
    if (n < 0) return td_fs_fail("read", path);
    text[n] = '\0';
    char *end = memrchr(text, '\n', (size_t)n);
    line[0] = '\0';
    *out_end = end ? from + (uint64_t)(end - text) + 1 : from;
    if (!end) return TD_OK;
    char *start = memrchr(text, '\n', (size_t)(end - text));
    start = start ? start + 1 : text;
    snprintf(line, line_bytes, "%.*s", (int)(end - start), start);
    return TD_OK;
}

static bool starts(const char *line, const char *event) {
    char prefix[64];
    int n = snprintf(prefix, sizeof prefix, "{\"event\":\"%s\"", event);
    return strncmp(line, prefix, (size_t)n) == 0;
}

td_status td_settle(const char *dir, const char *checkpoint_dir, bool rebooted, uint64_t *out_own) {
    char path[TD_FS_PATH_BYTES], lock_path[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_path(path, "%s/%s", dir, TD_SEGMENT_EVENTS));
    TD_TRY(td_fs_path(lock_path, "%s/%s", dir, TD_SEGMENT_LOCK));
    TD_AUTO_CLOSE int lock_fd = -1;
    TD_TRY(td_fs_lock(lock_path, "traind, settling", &lock_fd));
    TD_AUTO_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return td_fs_fail("open", path);
    char line[128];
    uint64_t end = 0;
    TD_TRY(read_last(fd, path, line, sizeof line, &end));
    *out_own = UINT64_MAX;
    if (starts(line, "launcher_end") || starts(line, "launcher_lost")) return TD_OK;
    if (ftruncate(fd, (off_t)end) != 0) return td_fs_fail("cut", path);
    TD_AUTO_BUF rest;
    td_buf_init(&rest, REST_MAX);
    TD_TRY(td_untold_lines(fd, checkpoint_dir, &rest));
    TD_TRY(td_buf_printf(&rest,
                         "{\"event\":\"launcher_lost\",\"real_ns\":%" PRId64
                         ",\"class\":\"%s\",\"message\":\"%s\"}\n",
                         td_real_now().ns, rebooted ? "node_lost" : "internal",
                         rebooted
                             ? "the machine was restarted while the attempt ran"
                             : "the launcher was killed, and its ranks with it: by somebody on "
                               "this machine, or by the kernel for lack of memory"));
    ssize_t written = pwrite(fd, rest.data, rest.len, (off_t)end);
    if (written != (ssize_t)rest.len) return td_fs_fail("write", path);
    if (fsync(fd) != 0) return td_fs_fail("sync", path);
    *out_own = end;
    return TD_OK;
}

td_status td_settle_behind(const char *dir, uint64_t own, uint64_t committed) {
    char path[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_path(path, "%s/%s", dir, TD_SEGMENT_EVENTS));
    if (committed - own > REST_MAX) {
        return td_fail(TD_DATA_LOSS, "'%s' has lost %" PRIu64 " bytes that were sent", path,
                       committed - own);
    }
    TD_AUTO_CLOSE int fd = open(path, O_RDWR | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) return td_fs_fail("open", path);
    size_t blank = (size_t)(committed - own), lines = (size_t)((uint64_t)st.st_size - own);
    TD_AUTO_FREE char *text = malloc(blank + lines);
    if (!text) return td_fail_oom();
    memset(text, '\n', blank);
    if (pread(fd, text + blank, lines, (off_t)own) != (ssize_t)lines ||
        pwrite(fd, text, blank + lines, (off_t)own) != (ssize_t)(blank + lines) || fsync(fd) != 0) {
        return td_fs_fail("move the end of", path);
    }
    return TD_OK;
}

void td_settle_checkpoints(const char *checkpoint_dir) {
    DIR *dir = opendir(checkpoint_dir);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        unsigned step;
        int end = 0;
        if (sscanf(e->d_name, "step-%9u.tmp%n", &step, &end) != 1 || !end || e->d_name[end])
            continue;
        char path[TD_FS_PATH_BYTES];
        td_status s = td_fs_path(path, "%s/%s", checkpoint_dir, e->d_name);
        if (!s) s = td_fs_remove_tree(path);
        td_status_log(TD_LOG_WARN, s, "half-written checkpoint stays, continuing");
    }
    if (dir) closedir(dir);
}
