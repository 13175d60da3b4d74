// See the header. One stat a file and look. The first file that is lost is the one that is named:
// the attempt ends by it.

#include "daemon/launcher/watchdog/lost.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "daemon/launcher/state.h"
#include "lib/attempt/segments.h"
#include "lib/base/files/files.h"
#include "lib/base/log.h"

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
    for (int32_t i = 0; i < l->o.n_ranks && !l->lost[0]; i++) {
        (void)rank_lost(l, &l->ranks[i]);
    }
    if (!l->lost[0]) return false;
    td_log_error("attempt ends why=\"%s\"", l->lost);
    return true;
}
