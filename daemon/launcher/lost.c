// See the header. One stat a file and look. The first file that is lost is the one that is named:
// the attempt ends by it.

#include "daemon/launcher/lost.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/launcher/launcher.h"
#include "lib/attempt/segments.h"
#include "lib/base/fsio.h"
#include "lib/base/log.h"

td_status td_launch_file_init(struct td_launch_file *f, const char *dir, const char *name) {
    char path[PATH_MAX];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (stat(path, &st) != 0) return td_fs_fail("look at", path);
    *f = (struct td_launch_file){.device = st.st_dev, .inode = st.st_ino};
    return TD_OK;
}

bool td_launch_file_lost(const struct td_launch_file *f, const char *dir, const char *name,
                         uint64_t bytes, char *out_text, size_t out_bytes) {
    char path[PATH_MAX];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (stat(path, &st) != 0) {
        if (errno != ENOENT && errno != ENOTDIR) return false;
        snprintf(out_text, out_bytes, "%s of the attempt was removed", name);
    } else if (st.st_dev != f->device || st.st_ino != f->inode) {
        snprintf(out_text, out_bytes, "%s of the attempt was replaced by another file", name);
    } else if ((uint64_t)st.st_size < bytes) {
        snprintf(out_text, out_bytes, "%s of the attempt was cut to %llu of its %llu bytes", name,
                 (unsigned long long)st.st_size, (unsigned long long)bytes);
    } else {
        return false;
    }
    return true;
}

static bool rank_lost(struct td_launcher *l, const struct td_launch_rank *r) {
    const struct {
        const char *format;
        const struct td_launch_file *file;
        uint64_t bytes;
    } files[] = {{TD_SEGMENT_METRICS, &r->metrics_file, r->metrics_bytes},
                 {TD_SEGMENT_OUT, &r->out.file, r->out.file_bytes},
                 {TD_SEGMENT_ERR, &r->err.file, r->err.file_bytes}};
    for (size_t i = 0; i < TD_COUNTOF(files); i++) {
        char name[32];
        snprintf(name, sizeof name, files[i].format, (unsigned)r->rank);
        if (td_launch_file_lost(files[i].file, l->o.dir, name, files[i].bytes, l->lost,
                                sizeof l->lost)) {
            return true;
        }
    }
    return false;
}

// The log cannot say that it is lost. A directory that is gone, too, says it by itself.
static void leave_word(const struct td_launcher *l) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", l->o.dir, TD_SEGMENT_LOST);
    td_status s = td_fs_write(path, l->lost, strlen(l->lost), 0600, TD_FS_WRITE_SYNCED);
    td_status_log(TD_LOG_WARN, s, "why the attempt ends is not written, continuing");
}

bool td_launcher_find_lost(struct td_launcher *l) {
    if (l->lost[0]) return false;
    if (td_launch_file_lost(&l->journal.file, l->o.dir, TD_SEGMENT_EVENTS, l->journal.bytes,
                            l->lost, sizeof l->lost)) {
        leave_word(l);
    }
    for (int32_t i = 0; i < l->o.n_ranks && !l->lost[0]; i++)
        (void)rank_lost(l, &l->ranks[i]);
    if (!l->lost[0]) return false;
    td_log_error("attempt ends why=\"%s\"", l->lost);
    return true;
}
